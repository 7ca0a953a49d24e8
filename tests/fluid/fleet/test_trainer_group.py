"""How workers of a job find each other."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import paddle.fluid as fluid
from cluster.jobs import free_endpoints
from paddle.fluid.incubate.fleet.base import trainer_group
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from paddle.fluid.incubate.fleet.base.trainer_group import group_of, sum_over_workers
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import DistributedTranspiler


class Session:
    """The session of a worker: everybody is at the barrier already."""

    def __init__(self, others):
        self.others, self.actions = others, []

    def barrier(self, text, patience):
        assert patience == 900
        return {0: text, **self.others}

    def on_leave(self, action):
        self.actions.append(action)


class Fleet:
    def __init__(self, worker=0, workers=2, servers=(), endpoints=(), session=None):
        self.worker, self.workers, self.servers, self.endpoints = worker, workers, servers, endpoints
        self.role_maker, self.session = UserDefinedRoleMaker(0, 1, workers, ["127.0.0.1:1"]), session

    def worker_index(self):
        return self.worker

    def worker_num(self):
        return self.workers

    def server_endpoints(self):
        return list(self.servers)

    def worker_endpoints(self):
        return list(self.endpoints)

    def _session(self):
        return self.session


def test_one_worker_is_no_group():
    assert group_of(None) is None and group_of(Fleet(workers=1)) is None
    assert sum_over_workers(None, "a size", 7) == 7


@pytest.mark.parametrize("given", ["by the role", "by the environment"])
def test_workers_without_servers_are_where_their_endpoints_say(given, monkeypatch):
    endpoints = free_endpoints(2)
    fleets = [Fleet(i, endpoints=endpoints) for i in range(2)]
    if given == "by the environment":
        monkeypatch.setenv(trainer_group.TRAINER_ENDPOINTS, ", ".join(endpoints))
        fleets = [Fleet(i, servers=["127.0.0.1:1"]) for i in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda i: sum_over_workers(fleets[i], "a size", i + 3), range(2))) == [7, 7]
        assert [group_of(fleet).endpoints for fleet in fleets] == [endpoints, endpoints]
        assert group_of(Fleet(1, servers=fleets[0].servers, endpoints=endpoints)) is group_of(fleets[1])
        list(pool.map(lambda fleet: group_of(fleet).close(), fleets))


def test_a_wrong_number_of_endpoints_is_reported():
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ENDPOINTS has 1 addresses .a:1., but the job has 2 workers"):
        group_of(Fleet(endpoints=["a:1"]))


def test_workers_tell_each_other_their_addresses_through_servers():
    session = Session({1: "127.0.0.1:1"})
    fleet = Fleet(servers=["127.0.0.1:1"], session=session)
    group = group_of(fleet)
    host, port = group.endpoints[0].split(":")
    assert host == "127.0.0.1" and int(port) > 0 and group.endpoints[1] == "127.0.0.1:1"
    assert group_of(fleet) is group
    session.actions[0]()
    assert group.is_closed, "with the session"


def test_workers_that_have_left_are_named():
    with pytest.raises(RuntimeError, match=r"workers \[1\] have left the job, so data cannot be shuffled across all 2"):
        group_of(Fleet(servers=["127.0.0.1:1"], session=Session({})))


def test_workers_cannot_meet_before_their_servers_are_known():
    fleet = DistributedTranspiler()
    fleet.init(UserDefinedRoleMaker(0, Role.WORKER, 2, free_endpoints(1)))
    with pytest.raises(ValueError, match="minimize.loss. before workers meet"):
        group_of(fleet)


def test_without_a_fleet_samples_stay_here(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"1 {i + 1}\n" for i in range(40)))
    dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    with fluid.program_guard(fluid.Program()):
        dataset.set_use_var([fluid.layers.data("a", [1], dtype="int64")])
    dataset.set_filelist([str(tmp_path / "a.txt")])
    dataset.load_into_memory()
    for fleet in (None, Fleet(workers=1)):
        dataset.global_shuffle(fleet)
        ids = [int(value) for feed in dataset.feeds() for value in feed["a"].ravel()]
        assert sorted(ids) == [*range(1, 41)] and ids != sorted(ids)
        assert dataset.get_memory_data_size(fleet) == dataset.get_shuffle_data_size(fleet) == 40
