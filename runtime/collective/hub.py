"""The meeting point of a job's ranks, in the process of rank 0: one connection to each, one thread for all.

A rank that dies closes its connection, so the others hear of it at once; one that stops is silent.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from refluid import access
from refluid.log import Log
from refluid.runtime.collective.lines import LONGEST, Lines, Message, encode
from refluid.runtime.collective.roster import Patience, Reply, Roster
from refluid.runtime.transport.refusals import MALFORMED, TOKEN, Refusals

TICK = 0.5  # seconds between two heartbeats
TAKEN = b"\n\n"  # the answer to a process that the hub talks to; what follows are messages
_GRACE = 2.0  # seconds for the last messages
_CONNECTIONS = 8  # open at once, per rank; most are of strangers then
_HELLO = 10.0  # seconds to say who one is
_MOST_TEXT = 300  # characters of what is wrong with a message
LONGEST_HELLO = 1 << 20  # bytes; what a process may send before it has a rank


@dataclass
class _Peer:
    """A connected process; it has a rank once it has said so."""

    socket: socket.socket
    lines: Lines = field(default_factory=lambda: Lines(LONGEST_HELLO))
    rank: int | None = None
    hello: Any = None  # until it has shown that it knows the token
    nonce: str = ""
    since: float = field(default_factory=time.monotonic)


class Hub:
    """Receives what ranks send, asks the roster, and sends its replies."""

    def __init__(self, listener: socket.socket, endpoints: Sequence[str], welcome: Message, patience: Patience):
        self._roster = Roster(endpoints, welcome, patience, time.monotonic())
        self._refusals = Refusals(Log(role="trainer", rank=0))
        self._listener = listener
        self._peers: dict[int, _Peer] = {}  # by rank
        self._stopping = threading.Event()
        self._steps: int | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="collective-hub", daemon=True)
        self._thread.start()

    def stop(self, steps: int | None) -> None:
        """Closes all connections; the others learn that rank 0 has finished, after so many steps, unless it failed."""
        self._steps = steps
        self._stopping.set()
        self._thread.join(_GRACE)

    def _serve(self) -> None:
        ticked = time.monotonic()
        while not self._stopping.is_set():
            for key, _ in self._selector.select(TICK / 2):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._receive(key.data)
            if time.monotonic() - ticked >= TICK:
                ticked = time.monotonic()
                self._close_strangers(ticked)
                self._send([(None, {"beat": True}), *self._roster.tick(ticked)])
        if self._steps is not None:
            self._send([(None, {"hub_left": self._steps})])
        for key in list(self._selector.get_map().values()):
            if key.data is not None:  # a rank, or somebody who has not become one
                self._close(key.data)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone again, or this process has too many files open; ranks try again
            return
        if len(self._selector.get_map()) > _CONNECTIONS * len(self._roster.endpoints) + 1:
            connection.close()  # strangers; ranks try again
            return
        connection.settimeout(_GRACE)  # for sending; a rank that does not read is as good as gone
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, _Peer(connection))

    def _close_strangers(self, now: float) -> None:
        """Closes connections that have not become ranks: they would keep ranks out."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None and key.data.rank is None and now - key.data.since > _HELLO:
                self._close(key.data)

    def _receive(self, peer: _Peer) -> None:
        try:
            data = peer.socket.recv(1 << 16)
            messages = list(peer.lines.feed(data))
        except OSError:
            data, messages = b"", []
        except ValueError as error:
            self._refusals.add(MALFORMED, _address(peer.socket), problem=str(error))
            data, messages = b"", []
        for message in messages:
            try:
                self._send(self._handle(peer, message))
            except Exception as error:  # noqa: BLE001 - not what a rank says; the others go on
                self._refusals.add(MALFORMED, _address(peer.socket), problem=repr(error)[:_MOST_TEXT])
                data = b""
                break
        if not data:
            self._close(peer)
            if peer.rank is not None:
                self._send(self._roster.lose(peer.rank))

    def _handle(self, peer: _Peer, message: Message) -> list[Reply]:
        now, rank = time.monotonic(), peer.rank
        if rank is None and access.tokens():
            return self._challenge(peer, message, now)
        if rank is None:
            return self._meet(peer, message.get("hello"), now)
        if "beat" in message:
            return self._roster.beat(rank, message["beat"], now)
        if "note" in message:
            return self._roster.note(rank, message["note"], message["lines"], now)
        if "sizes" in message:
            return self._roster.size(rank, message["of"], message["sizes"], now)
        if "failed" in message:
            return self._roster.fail(rank, message["failed"])
        return self._roster.leave(rank, now)

    def _challenge(self, peer: _Peer, message: Message, now: float) -> list[Reply]:
        """Both sides show that they know the token; neither sends it."""
        if peer.nonce:
            if access.is_proof(message.get("proof"), "rank", peer.nonce):
                return self._meet(peer, peer.hello, now)
            self._refusals.add(TOKEN, _address(peer.socket), problem="a process does not know the job's token")
            self._close(peer)
            return []
        peer.hello, peer.nonce = message.get("hello"), secrets.token_hex(16)
        theirs = peer.hello.get("nonce") if isinstance(peer.hello, dict) else None
        answer: Message = {"challenge": peer.nonce, "proof": access.prove("hub", str(theirs))}
        with contextlib.suppress(OSError):
            peer.socket.sendall(encode(answer))
        return []

    def _meet(self, peer: _Peer, hello: Any, now: float) -> list[Reply]:
        try:
            rank, endpoint, endpoints = hello["rank"], str(hello["endpoint"]), list(map(str, hello["endpoints"]))
        except (KeyError, TypeError):  # not one of ours
            self._close(peer)
            return []
        if self._roster.has_left(rank):  # it has left this job, and comes for the next one
            self._close(peer)
            return []
        with contextlib.suppress(OSError):
            peer.socket.sendall(TAKEN)
        refusal = self._roster.refusal(rank, endpoints) or hello.get("cannot_join")
        if refusal is not None or self._roster.verdict is not None:
            end = self._roster.verdict or {"rank": rank, "endpoint": endpoint, "problem": refusal}
            with contextlib.suppress(OSError):
                peer.socket.sendall(encode({"end": end}))
            self._close(peer)
            return self._roster.refuse(end)
        peer.rank, self._peers[rank] = rank, peer
        peer.lines.longest = LONGEST
        return self._roster.join(rank, now)

    def _send(self, replies: Sequence[Reply]) -> None:
        for to, message in replies:
            for peer in [self._peers.get(to)] if to is not None else list(self._peers.values()):
                if peer is not None:
                    with contextlib.suppress(OSError):  # its end is seen when it is read from
                        peer.socket.sendall(encode(message))

    def _close(self, peer: _Peer) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(peer.socket)
        peer.socket.close()
        if peer.rank is not None:
            self._peers.pop(peer.rank, None)


def _address(connection: socket.socket) -> str:
    try:
        return "{}:{}".format(*connection.getpeername()[:2])
    except OSError:
        return "an address that is gone"
