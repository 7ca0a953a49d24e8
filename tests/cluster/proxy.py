"""A TCP proxy for tests: a network that is slow, loses packets, is cut in one or both directions, or forgets.

    with Proxy("127.0.0.1:6174") as proxy:
        ...                                 # clients use proxy.endpoint
        proxy.cut("up")                     # what clients send goes nowhere
        proxy.heal()

What is lost or cut off arrives later, as TCP sends it again. A loss holds a connection up for `RESEND` seconds, which
is what TCP takes to notice it.
"""

import asyncio
import random
import threading
from contextlib import suppress

RESEND = 0.2  # seconds
BOTH = ("up", "down")  # to the server, to the client
_CHUNK = 1 << 16


class Proxy:
    """Forwards connections to a target.

    Attributes:
      delay: seconds that every byte takes, each way.
      loss: the part of all chunks that is lost at first.
      rate: bytes per second of each connection and direction; None for any.
      port: where it listens.
    """

    def __init__(self, target, delay=0.0, loss=0.0, rate=None):
        host, _, port = target.rpartition(":")
        self.target, self.delay, self.loss, self.rate, self.port = (host, int(port)), delay, loss, rate, 0
        self.forwarded = 0  # bytes
        self._chance = random.Random(5)
        self._writers = set()
        self._tasks = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.port}"

    def __enter__(self):
        self._thread.start()
        self._call(self._begin())
        return self

    def __exit__(self, *_):
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, *directions):
        """Stops the bytes in both directions, or the given ones, of all connections; new ones do not come about."""
        self._call(self._set(directions or BOTH, passable=False))

    def heal(self):
        """Lets everything through, and what was held up."""
        self._call(self._set(BOTH, passable=True))

    def reset(self):
        """Breaks all connections; both sides notice."""
        self._call(self._abort())

    def forget(self):
        """Drops all connections without a word: what is sent on them is never answered. New ones work."""
        self._call(self._set_forgotten())

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    # On the thread of the loop

    async def _begin(self):
        self._passable = {direction: asyncio.Event() for direction in BOTH}
        self._age = 0  # connections that are older were forgotten
        await self._set(BOTH, passable=True)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _set(self, directions, *, passable):
        for direction in directions:
            (self._passable[direction].set if passable else self._passable[direction].clear)()

    async def _set_forgotten(self):
        self._age += 1

    async def _abort(self):
        for writer in list(self._writers):
            writer.transport.abort()

    async def _close(self):
        self._server.close()
        await self._abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self._writers.add(writer)
        age, other = self._age, None
        try:
            for direction in BOTH:
                await self._passable[direction].wait()
            far, other = await asyncio.open_connection(*self.target)
            self._writers.add(other)
            await asyncio.gather(self._forward("up", reader, other, age), self._forward("down", far, writer, age))
        except OSError:
            pass
        finally:
            for each in (writer, other):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()
            self._tasks.discard(asyncio.current_task())

    async def _forward(self, direction, reader, writer, age):
        """Copies one direction; reading goes on while chunks are on their way."""
        sent = asyncio.Queue(64)
        delivery = asyncio.ensure_future(self._deliver(direction, sent, writer, age))
        try:
            while chunk := await reader.read(_CHUNK):
                await sent.put((self._loop.time() + self.delay, chunk))
            await sent.put((self._loop.time() + self.delay, b""))
            await delivery
        finally:
            delivery.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await delivery

    async def _deliver(self, direction, sent, writer, age):
        while True:
            due, chunk = await sent.get()
            if self.loss and self._chance.random() < self.loss:
                due += RESEND
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._passable[direction].wait()
            if age < self._age:
                continue
            if not chunk:
                writer.write_eof()
                return
            writer.write(chunk)
            self.forwarded += len(chunk)
            await writer.drain()
            if self.rate:
                await asyncio.sleep(len(chunk) / self.rate)
