"""Loops over loaders with parameter servers: the next batch is announced, so its rows come with the push before it."""

import time

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.one_process import ROWS as HEIGHT
from cluster.one_process import Role, servers
from refluid import flags
from refluid.runtime.trainer import session as sessions
from refluid.runtime.trainer.server_calls import ROWS

STEPS = 6
SGD = {"optimizer": lambda: fluid.optimizer.SGD(0.1)}
MODES = {
    "sync": {},
    "half_async": {"sync_mode": False, "half_async": True},
    "async": {"sync_mode": False},
    "async in the background": {"sync_mode": False, "runtime_split_send_recv": True},
}


def network(made, **loader):
    """A model with a loader, which is added to ``made``; ids are sequences, so batches are padded."""

    def build():
        x = fluid.layers.data("x", [4])
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        made.append(fluid.io.DataLoader.from_generator([x, ids], capacity=STEPS, **loader))
        rows = fluid.layers.embedding(ids, [HEIGHT, 3], is_sparse=True, is_distributed=True, param_attr="table")
        hidden = fluid.layers.fc(fluid.layers.concat([x, fluid.layers.sequence_pool(rows, "sum")], axis=1), 8)
        return fluid.layers.mean(fluid.layers.square(hidden))

    return build


def batches():
    for seed in range(STEPS):
        random = np.random.RandomState(seed)
        lengths = random.randint(1, 4, 6).tolist()
        ids = fluid.create_lod_tensor(random.randint(0, HEIGHT, (sum(lengths), 1)), [lengths], fluid.CPUPlace())
        yield random.randn(6, 4).astype("float32"), ids


class Trainer(Role):
    """A trainer with a loader, which counts its requests for rows."""

    def __init__(self, endpoints, mode="sync", source=batches, **loader):
        made, self.scope = [], fluid.core.Scope()
        with fluid.scope_guard(self.scope):  # the queue of a loader goes there
            super().__init__(endpoints, network=network(made, **loader), **SGD, **MODES[mode])
        self.start()
        (self.loader,) = made
        self.loader.set_batch_generator(source)
        self.session = sessions.current()
        self.messages, exchange = [], self.session.exchange

        def counted(purpose, *arguments):
            self.messages.append(purpose)
            return exchange(purpose, *arguments)

        self.session.exchange = counted

    @property
    def lookups(self):
        return self.messages.count(ROWS)

    def run(self, feed=None):
        return self.exe.run(self.main, feed=feed, fetch_list=[self.loss], scope=self.scope)

    def feed_all(self):
        """A loop without a loader."""
        for x, ids in batches():
            self.run({"x": x, "ids": ids})

    def begin(self):
        """A pass of an iterable loader whose batches have all been read."""
        begun = iter(self.loader)
        until(lambda: len(begun._ahead) == STEPS)
        return begun

    def iterate(self):
        for feed in self.begin():
            self.run(feed)

    def read(self):
        with fluid.scope_guard(self.scope):
            self.loader.start()
            until(lambda: self.loader.queue.size() == STEPS)
            with pytest.raises(fluid.core.EOFException):
                while True:
                    self.run()
            self.loader.reset()

    def rows(self):
        return self.scope.find_var("table").value.read_rows(np.arange(HEIGHT))


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setitem(flags._set, "FLAGS_communicator_max_staleness", 0)


def trained(mode, how, **loader):
    """The table after a pass, and how often rows were requested on their own."""
    with servers(2, network=network([], **loader), **SGD, **MODES[mode]) as endpoints:
        trainer = Trainer(endpoints, mode, **loader)
        how(trainer)
        lookups, rows = trainer.lookups, trainer.rows()
        trainer.close()
    return rows, lookups


@pytest.mark.parametrize("mode", MODES)
def test_rows_come_with_the_push_before_and_numbers_stay(mode):
    fed, lookups = trained(mode, Trainer.feed_all)
    for how, loader in ((Trainer.iterate, {}), (Trainer.read, {"iterable": False})):
        rows, fewer = trained(mode, how, **loader)
        np.testing.assert_array_equal(rows, fed)
        assert (lookups, fewer) == (STEPS, 2), "the first step is not known as such yet"


@pytest.fixture
def trainer():
    with servers(1, network=network([]), **SGD) as endpoints:
        trainer = Trainer(endpoints)
        yield trainer
        trainer.close()


def test_a_loop_may_break_off_and_begin_again(trainer):
    for number, feed in enumerate(trainer.begin()):
        trainer.run(feed)
        if number == 2:
            break
    assert trainer.lookups == 2
    trainer.iterate()
    assert trainer.lookups <= 4, "the announced batch is not the first one of the next pass"
    trainer.feed_all()
    assert trainer.lookups <= 4 + STEPS


def test_batches_that_are_changed_or_skipped_are_looked_up_anew():
    def loop(trainer, *, announces):
        for number, (feed,) in enumerate(trainer.begin()):
            if number == 3:
                continue
            if number == 4:
                feed["ids"] = fluid.create_lod_tensor(np.array([[HEIGHT - 1]] * 6), [[1] * 6], fluid.CPUPlace())
            if number == 5:  # in place
                feed["ids"].set(np.full_like(np.array(feed["ids"]), 7), fluid.CPUPlace())
            trainer.run(feed if announces else dict(feed))

    changed, lookups = trained("sync", lambda trainer: loop(trainer, announces=True))
    plain, all_lookups = trained("sync", lambda trainer: loop(trainer, announces=False))
    np.testing.assert_array_equal(changed, plain)
    assert (lookups, all_lookups) == (4, 5), "of five batches, only the third was what had been announced"


def test_an_error_in_between_does_no_harm():
    def loop(trainer):
        for number, (feed,) in enumerate(trainer.begin()):
            if number == 2:
                with pytest.raises(ValueError, match="x"):
                    trainer.run({**feed, "x": np.zeros((6, 5), "float32")})
            trainer.run(feed)

    np.testing.assert_array_equal(trained("sync", loop)[0], trained("sync", Trainer.feed_all)[0])


def test_a_loader_that_is_late_announces_nothing(trainer):
    def late():
        for number, batch in enumerate(batches()):
            until(lambda number=number: trainer.messages.count(ROWS) >= number)
            yield batch

    trainer.loader.set_batch_generator(late)
    for feed in trainer.loader():
        trainer.run(feed)
    assert trainer.lookups == STEPS
