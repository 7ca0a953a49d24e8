"""Passes over datasets with parameter servers: the numbers of `Executor.run`, with rows requested early."""

import threading

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.one_process import Role, servers
from refluid import flags
from refluid.errors import OutOfRangeError
from refluid.runtime.trainer import session as sessions
from refluid.runtime.trainer.server_calls import ROWS

STEPS = 6
SGD = {"optimizer": lambda: fluid.optimizer.SGD(0.1)}
MODES = {
    "sync": {},
    "half_async": {"sync_mode": False, "half_async": True},
    "async": {"sync_mode": False},
    "async in the background": {"sync_mode": False, "runtime_split_send_recv": True},
    "geo": {"sync_mode": False, "geo_sgd_mode": True, "geo_sgd_need_push_nums": 2},
}


class Batches:
    """A dataset of ready feeds."""

    def __init__(self, feeds):
        self._feeds = feeds

    def feeds(self, threads=None, meter=None):
        yield from self._feeds


class Trainer(Role):
    """A trainer that counts its requests for rows."""

    def __init__(self, endpoints, **options):
        super().__init__(endpoints, **options)
        self.start()
        self.session = sessions.current()
        self.lookups, exchange = 0, self.session.exchange

        def counted(purpose, *arguments):
            self.lookups += purpose == ROWS
            return exchange(purpose, *arguments)

        self.session.exchange = counted

    def feed_all(self):
        for seed in range(STEPS):
            self.step(seed)

    def train(self, feeds=None):
        feeds = [self._samples(seed, None) for seed in range(STEPS)] if feeds is None else feeds
        self.exe.train_from_dataset(self.main, Batches(feeds), scope=self.scope)

    def table(self):
        return np.array(self.scope.find_var("table").get_tensor())


def table_after(mode, train):
    """The table after training, and how often rows were requested on their own."""
    with servers(2, **SGD, **MODES[mode]) as endpoints:
        trainer = Trainer(endpoints, **SGD, **MODES[mode])
        train(trainer)
        lookups, table = trainer.lookups, trainer.table()
        trainer.close()
    return table, lookups


@pytest.fixture
def max_staleness(monkeypatch):
    return lambda steps: monkeypatch.setitem(flags._set, "FLAGS_communicator_max_staleness", steps)


@pytest.mark.parametrize("mode", MODES)
def test_a_pass_equals_single_runs_and_rows_come_with_the_push(mode, max_staleness):
    max_staleness(0)
    fed, lookups = table_after(mode, Trainer.feed_all)
    passed, fewer = table_after(mode, Trainer.train)
    np.testing.assert_array_equal(passed, fed)
    assert (lookups, fewer) == ((0, 0) if mode == "geo" else (STEPS, 2))  # the first step is not known as such yet


def test_rows_are_requested_ahead_within_the_allowed_staleness(max_staleness):
    max_staleness(2)
    mode = {**SGD, **MODES["async in the background"]}
    with servers(2, **mode) as endpoints:
        trainer = Trainer(endpoints, **mode)
        ahead, lags = trainer.session.rows_ahead, []
        take = ahead.take
        ahead.take = lambda *arguments: (take(*arguments), lags.append(ahead.lag))[0]
        trainer.train([trainer._samples(seed, None) for seed in range(30)])
        (communicator,) = trainer.session.communicators
        assert 1 <= max(lags) <= communicator.worst_staleness <= 2
        trainer.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rows ahead")]


def test_an_id_out_of_range_is_an_error_of_its_own_batch():
    with servers(1) as endpoints:
        trainer = Trainer(endpoints)
        feeds = [trainer._samples(seed, None) for seed in range(STEPS)]
        feeds[4]["ids"] = feeds[4]["ids"] + 1000
        with pytest.raises(OutOfRangeError) as raised:
            trainer.train(feeds)
        assert raised.value.__notes__ == [
            "in train_from_dataset, step 5: batch 5 of the dataset (samples 25 to 30 of the pass)"
        ]
        trainer.train()  # and training goes on
        trainer.close()


def test_inferring_pushes_nothing():
    with servers(1) as endpoints:
        trainer = Trainer(endpoints)
        before = trainer.table()
        feeds = [trainer._samples(seed, None) for seed in range(3)]
        trainer.exe.infer_from_dataset(trainer.main, Batches(feeds), scope=trainer.scope, fetch_list=[trainer.loss])
        np.testing.assert_array_equal(trainer.table(), before)
        assert trainer.session.step == 0
        trainer.close()


def test_processes_train_on_files(jobs):
    case = {"embedding": True, "rate": 0.05, "steps": 6}
    for one, other in zip(*jobs.train([case, {**case, "dataset": True}]), strict=True):
        np.testing.assert_array_equal(one["table"], other["table"])
