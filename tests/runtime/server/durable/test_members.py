"""What a restarted server knows of trainers, which may have come, gone or been replaced since it was saved."""

import pytest

from cluster.handlers import Trainer, gradients, make_servers
from cluster.jobs import wait_until
from refluid import flags
from refluid.runtime.server import exchange, membership, server
from refluid.runtime.server.server import RestartedError
from refluid.runtime.server.shard import Shard
from refluid.runtime.transport.wire import pb

ASYNC = {"trainers": 2, "sync_mode": False}


class Servers:
    """One server after the other, of the same endpoint and with the same files."""

    def __init__(self, options):
        self._options = options
        self.start()

    def start(self):
        self.held, *self.others = make_servers(**self._options).values()

    def restart(self):
        self.crash()
        self.start()

    def crash(self):
        for each in (self.held, *self.others):
            each._recovery.close(finished=False)

    def save(self):
        self.held._recovery.snapshot()


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Makes servers that survive, and trainers that have joined."""
    monkeypatch.setattr(exchange, "_PENDING_AFTER", 0.05)
    monkeypatch.setattr(server, "_DECIDE_EVERY", 0.01)
    monkeypatch.setattr(membership, "TAKEOVER_AFTER", 0.01)
    made = []

    def make(*, log, **options):
        folders = {"FLAGS_rpc_server_snapshots": str(tmp_path / "snapshots")}
        if log:
            folders["FLAGS_rpc_server_log"] = str(tmp_path / "log")
        monkeypatch.setattr(flags, "_set", {"FLAGS_rpc_lost_trainer": "leave_out", **folders})
        servers = Servers(options)
        made.append(servers)
        trainers = [Trainer(servers.held, number) for number in range(options["trainers"])]
        for trainer in trainers:
            trainer.join()
        if not servers.others:  # which had parameters, and a part in the first snapshot
            wait_until(lambda: not trainers[0].exchange(pb.ExchangeRequest.OFFER)[0].pending)
        return servers, trainers

    yield make
    for servers in made:
        servers.crash()


def test_nobody_hangs_who_waits_for_the_first_snapshot(job):
    servers, trainers = job(log=False, count=2, trainers=1)  # the other server has no parameters to save
    reply, _ = trainers[0].exchange(pb.ExchangeRequest.OFFER)
    assert reply.pending and list(reply.awaited) == ["the first snapshot of all servers"]
    with servers.held._changed:
        servers.held._exchange.fail(RuntimeError("the job has failed"))
    with pytest.raises(RuntimeError, match="the job has failed"):
        trainers[0].exchange(pb.ExchangeRequest.OFFER)


def lose(servers, trainer):
    servers.held._membership.members[trainer].seen -= 31
    servers.held.check_trainers()


def talk_to(servers, *trainers):
    for trainer in trainers:
        trainer.server = servers.held


@pytest.mark.parametrize("log", [True, False])
def test_a_trainer_that_was_left_out_and_is_back_is_not_forgotten(job, log):
    servers, (here, other) = job(log=log, **ASYNC)
    lose(servers, 1)
    servers.save()
    other.tell("Heartbeat")
    servers.held.check_trainers()
    here.tell("Leave")
    if not log:
        servers.save()
    servers.restart()
    assert not servers.held.all_left.is_set(), "it would end, and remove its files"
    talk_to(servers, other)
    with pytest.raises(RestartedError):
        other.push(gradients(servers.held))
    other.join()
    other.exchange(pb.ExchangeRequest.STEP, gradients(servers.held))
    assert servers.held.round == 1


def test_one_that_is_left_out_and_turns_up_after_a_restart_joins_first(job):
    servers, (_, other) = job(log=True, **ASYNC)
    lose(servers, 1)
    servers.save()
    servers.restart()
    talk_to(servers, other)
    with pytest.raises(RestartedError):
        other.push(gradients(servers.held))


@pytest.mark.parametrize("added", [False, True])
def test_a_process_that_joined_after_the_last_snapshot_is_not_refused_but_joins_again(job, added):
    servers, _ = job(log=False, **ASYNC)
    new = Trainer(servers.held, 2) if added else Trainer(servers.held, 1, incarnation=99)
    new.join(trainers=3)
    servers.restart()
    talk_to(servers, new)
    for request in (lambda: new.tell("Heartbeat"), lambda: new.barrier(1), lambda: new.push(gradients(servers.held))):
        with pytest.raises(RestartedError):
            request()
    new.join(trainers=3)
    new.tell("Heartbeat")
    new.exchange(pb.ExchangeRequest.STEP, gradients(servers.held))
    assert servers.held.round == 1


def test_a_server_that_lost_everything_takes_no_push_of_a_trainer_that_has_not_noticed():
    (held,) = make_servers().values()
    trainer = Trainer(held)
    for request in (lambda: trainer.push(gradients(held)), lambda: trainer.barrier(1)):
        with pytest.raises(RestartedError, match="trainer 0 has not joined server 127.0.0.1:1"):
            request()
    assert held.round == 0


@pytest.mark.parametrize("log", [True, False])
def test_a_successor_that_has_trained_waits_at_barriers_also_after_a_restart(job, log):
    servers, (here, _) = job(log=log, **ASYNC)
    new = Trainer(servers.held, 1, incarnation=99)
    new.join()
    new.push(gradients(servers.held))
    if not log:
        servers.save()
    servers.restart()
    talk_to(servers, here, new)
    here.join()
    new.join()
    assert new.barrier(1).pending and not here.barrier(1).pending and not new.barrier(1).pending


@pytest.mark.parametrize("log", [True, False])
def test_a_request_to_give_up_rows_counts_once_however_often_it_arrives(job, monkeypatch, log):
    shrunk = []

    def shrink(shard, names, options):
        shrunk.append(servers.held._changed._is_owned())
        return {"table": 3}

    monkeypatch.setattr(Shard, "shrink", shrink)
    servers, (here, _) = job(log=log, **ASYNC)

    def ask():
        request = pb.ShrinkRequest(caller=here.caller, id=7)
        return here.call("Shrink", request, reply=pb.Text)[0].text

    assert ask() == ask() == '{"table": 3}'
    assert shrunk == [True], "between two updates, as it is replayed"
    if not log:
        servers.save()
    servers.restart()
    talk_to(servers, here)
    here.join()
    del shrunk[:]
    assert ask() == '{"table": 3}' and not shrunk
