import sys
import threading
import types

import numpy as np
import pytest

from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.base.role_maker import (
    GeneralRoleMaker,
    MPISymetricRoleMaker,
    PaddleCloudRoleMaker,
    Role,
    RoleMakerBase,
    UserDefinedCollectiveRoleMaker,
    UserDefinedRoleMaker,
)

SERVERS = ["127.0.0.1:6001", "127.0.0.1:6002"]


def test_a_worker_that_the_script_defines():
    role = UserDefinedRoleMaker(current_id=1, role=Role.WORKER, worker_num=3, server_endpoints=SERVERS)
    assert (role.is_worker(), role.is_server(), role.is_first_worker()) == (True, False, False)
    assert (role.worker_index(), role.worker_num(), role.get_pserver_endpoints()) == (1, 3, SERVERS)
    assert role.get_trainer_endpoints() == []
    assert role.to_string() == f"role: 1, current_id: 1, worker_endpoints: [], server_endpoints: {SERVERS}"


def test_a_server_that_the_script_defines():
    role = UserDefinedRoleMaker(current_id=0, role=Role.SERVER, worker_num=3, server_endpoints=SERVERS)
    assert (role.is_worker(), role.is_server(), role.is_first_worker(), role.server_index()) == (False, True, False, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, Role.WORKER, 3), TypeError, "server_endpoints must be a list of strings"),
        ((0, Role.WORKER, 3, SERVERS[0]), TypeError, "server_endpoints must be a list of strings"),
        ((0, Role.WORKER, 3, [1]), TypeError, "server_endpoints must be a list of strings"),
        ((0, Role.WORKER, 3, []), ValueError, "server_endpoints must not be empty"),
        ((0, Role.WORKER, 3, SERVERS + SERVERS[:1]), ValueError, "must not contain duplicates"),
        ((-1, Role.WORKER, 3, SERVERS), ValueError, "current_id must be from 0 to 2 in a job of 3 workers, not -1"),
        ((3, Role.WORKER, 3, SERVERS), ValueError, "current_id must be from 0 to 2 in a job of 3 workers, not 3"),
        ((2, Role.SERVER, 3, SERVERS), ValueError, "current_id must be from 0 to 1 in a job of 2 servers, not 2"),
        (("0", Role.WORKER, 3, SERVERS), TypeError, "current_id must be an int, not '0'"),
        ((0, "worker", 3, SERVERS), TypeError, "role must be Role.WORKER or Role.SERVER, not 'worker'"),
        ((0, Role.WORKER, "3", SERVERS), TypeError, "worker_num must be an int, not '3'"),
        ((0, Role.WORKER, 0, SERVERS), ValueError, "worker_num must be greater than 0"),
    ],
)
def test_what_cannot_be_a_place_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        UserDefinedRoleMaker(*arguments)


def test_a_collective_worker():
    role = UserDefinedCollectiveRoleMaker(1, ["a:1", "b:2"])
    assert (role.is_worker(), role.worker_num(), role.worker_index()) == (True, 2, 1)
    assert (role.get_trainer_endpoints(), role.get_pserver_endpoints()) == (["a:1", "b:2"], [])
    with pytest.raises(ValueError, match="current_id must be from 0 to 1"):
        UserDefinedCollectiveRoleMaker(2, ["a:1", "b:2"])


@pytest.fixture
def cluster(monkeypatch):
    """Sets the variables of a cluster, and no others."""
    names = "TRAINING_ROLE POD_IP PADDLE_PORT PADDLE_PSERVERS PADDLE_PSERVER_IPS PADDLE_PSERVER_PORT PADDLE_CURRENT_IP"
    names += " PADDLE_TRAINING_ROLE PADDLE_TRAINERS PADDLE_TRAINERS_NUM PADDLE_TRAINER_ID PADDLE_TRAINER_ENDPOINTS"

    def set_variables(**variables):
        for name in [*names.split(), "PADDLE_PSERVERS_IP_PORT_LIST"]:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


WORKER = {
    "TRAINING_ROLE": "TRAINER",
    "PADDLE_TRAINERS_NUM": "2",
    "PADDLE_TRAINER_ID": "1",
    "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(SERVERS),
}
SERVER = {k: v for k, v in WORKER.items() if k != "PADDLE_TRAINER_ID"} | {
    "TRAINING_ROLE": "PSERVER",
    "POD_IP": "127.0.0.1",
    "PADDLE_PORT": "6002",
}
OLDEST_WORKER = {
    "PADDLE_TRAINING_ROLE": "TRAINER",
    "PADDLE_TRAINERS": "2",
    "PADDLE_TRAINER_ID": "1",
    "PADDLE_PSERVER_IPS": "10.0.0.1,10.0.0.2",
    "PADDLE_PSERVER_PORT": "6174",
}
OLDEST_SERVER = {**OLDEST_WORKER, "PADDLE_TRAINING_ROLE": "PSERVER", "PADDLE_CURRENT_IP": "10.0.0.2"}
FLUID_1_5 = {k: v for k, v in WORKER.items() if "LIST" not in k} | {
    "PADDLE_PSERVERS": "10.0.0.1",
    "PADDLE_PORT": "6174",
}


@pytest.mark.parametrize("maker", [PaddleCloudRoleMaker, GeneralRoleMaker])
def test_the_place_of_a_worker_in_a_cluster(cluster, maker):
    cluster(**WORKER)
    role = maker()
    assert (role.is_worker(), role.worker_index(), role.worker_num()) == (True, 1, 2)
    assert role.get_pserver_endpoints() == SERVERS


def test_the_place_of_a_server_in_a_cluster(cluster):
    cluster(**SERVER)
    role = PaddleCloudRoleMaker()
    assert (role.is_server(), role.server_index(), role.worker_num()) == (True, 1, 2)


@pytest.mark.parametrize(
    ("variables", "index", "servers"),
    [
        (OLDEST_WORKER, 1, ["10.0.0.1:6174", "10.0.0.2:6174"]),
        (OLDEST_SERVER, 1, ["10.0.0.1:6174", "10.0.0.2:6174"]),
        (FLUID_1_5, 1, ["10.0.0.1:6174"]),
    ],
)
def test_older_variables_are_understood(cluster, variables, index, servers):
    cluster(**variables)
    role = PaddleCloudRoleMaker()
    assert (role.worker_index(), role.worker_num(), role.get_pserver_endpoints()) == (index, 2, servers)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, r"TRAINING_ROLE \(or the older PADDLE_TRAINING_ROLE\) is not set"),
        ({**WORKER, "PADDLE_PSERVERS_IP_PORT_LIST": ""}, "set PADDLE_PSERVERS_IP_PORT_LIST"),
        ({**WORKER, "PADDLE_TRAINERS_NUM": ""}, "PADDLE_TRAINERS_NUM"),
        ({**WORKER, "PADDLE_TRAINER_ID": ""}, "PADDLE_TRAINER_ID is not set"),
        ({**WORKER, "PADDLE_TRAINER_ID": "first"}, "PADDLE_TRAINER_ID is 'first'; expected a number"),
        ({**WORKER, "PADDLE_TRAINER_ID": "2"}, "PADDLE_TRAINER_ID is 2, but the job has 2 trainers"),
        ({**WORKER, "TRAINING_ROLE": "MASTER"}, "TRAINING_ROLE is 'MASTER'; expected TRAINER or PSERVER"),
        ({**SERVER, "POD_IP": ""}, "POD_IP"),
        (
            {**SERVER, "PADDLE_PORT": "7000"},
            "POD_IP and PADDLE_PORT give this server the address 127.0.0.1:7000, which is not in",
        ),
    ],
)
def test_what_is_missing_or_wrong_in_a_cluster_is_named(cluster, variables, message):
    cluster(**variables)
    with pytest.raises(ValueError, match=message):
        PaddleCloudRoleMaker().generate_role()


def test_a_collective_place_in_a_cluster(cluster):
    cluster(PADDLE_TRAINER_ENDPOINTS="a:1,b:2", PADDLE_TRAINER_ID="1")
    role = PaddleCloudRoleMaker(is_collective=True)
    assert (role.is_worker(), role.worker_index(), role.get_trainer_endpoints()) == (True, 1, ["a:1", "b:2"])
    cluster(PADDLE_TRAINER_ENDPOINTS="a:1,b:2", PADDLE_TRAINER_ID="2")
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ENDPOINTS lists 2 trainers"):
        PaddleCloudRoleMaker(is_collective=True).generate_role()


def test_a_role_maker_of_ones_own():
    class Mine(RoleMakerBase):
        def generate_role(self):
            self._role, self._current_id, self._worker_num = Role.WORKER, 0, 1
            self._role_is_generated = True

    role = Mine()
    assert role.is_first_worker() and role.worker_num() == 1
    with pytest.raises(NotImplementedError, match="Mine.all_gather: this role maker has no connection between workers"):
        role.all_gather(1)


def test_without_mpi_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r"requires mpi4py: pip install mpi4py, or pass UserDefinedRoleMaker"):
        MPISymetricRoleMaker()


class Communicator:
    """MPI's communicator among threads."""

    def __init__(self, rank, size, shared=None):
        self.rank, self.size = rank, size
        self.shared = shared or {"barrier": threading.Barrier(size), "values": {}, "split": {}}

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def barrier(self):
        self.shared["barrier"].wait(30)

    def allgather(self, value):
        self.shared["values"][self.rank] = value
        self.barrier()
        found = [self.shared["values"][rank] for rank in range(self.size)]
        self.barrier()
        return found

    def Split(self, colour):
        colours = self.allgather(colour)
        fellows = [rank for rank, other in enumerate(colours) if other == colour]
        if self.rank == fellows[0]:
            self.shared["split"][colour] = Communicator(0, len(fellows)).shared
        self.barrier()
        return Communicator(fellows.index(self.rank), len(fellows), self.shared["split"][colour])


def test_mpi_gives_as_many_servers_as_workers(monkeypatch):
    world = Communicator(0, 4)
    mpi = types.SimpleNamespace(MPI=types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "mpi4py", mpi)
    monkeypatch.setattr(role_maker.MPIRoleMaker, "get_local_ip", lambda self: "127.0.0.1")
    roles, sums = {}, {}

    def process(rank):
        role = MPISymetricRoleMaker()
        role._comm = Communicator(rank, 4, world.shared)
        role.generate_role()
        roles[rank] = role
        output = np.zeros(2)
        role.all_reduce_worker(np.array([rank, 1.0]), output)
        role.barrier_all()
        sums[rank] = output.tolist(), role.all_gather(rank)

    mpi.MPI.COMM_WORLD = world
    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [roles[rank].is_server() for rank in range(4)] == [True, False, True, False]
    assert [roles[rank].worker_index() for rank in range(4)] == [0, 0, 1, 1]
    assert {role.worker_num() for role in roles.values()} == {2}
    assert len({tuple(role.get_pserver_endpoints()) for role in roles.values()}) == 1
    assert len(set(roles[0].get_pserver_endpoints())) == 2
    assert sums == {0: ([0, 0], [0, 2]), 1: ([4, 2], [1, 3]), 2: ([0, 0], [0, 2]), 3: ([4, 2], [1, 3])}
