"""A job in one process, without a network: the shipped trainers and servers, connected by function calls.

Only the transport differs from a real job: the bytes of a message are handed to `Server.handle` instead of gRPC. Every
trainer has a session, a scope and, during a step, a thread of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import numpy as np

import paddle.fluid as fluid
from refluid.ir import Program
from refluid.ir.slices import slices_of
from refluid.lowering.plan import communicates
from refluid.runtime.server import server as shipped
from refluid.runtime.trainer.exchange_plan import SlicedVariable, job_of
from refluid.runtime.trainer.packing import join
from refluid.runtime.trainer.session import Session, bound
from refluid.runtime.transport.connection import Connection
from refluid.scope import Scope

EXE = fluid.Executor(fluid.CPUPlace())
_open = []


class InMemoryConnection(Connection):
    """Calls the methods of a server in the same process."""

    def __init__(self, servers, endpoint, sent=None, received=None):
        self.endpoint, self._servers = endpoint, servers

    def call(self, method, buffers, timeout, reply_size=0):
        try:
            return b"".join(self._servers[self.endpoint].server.handle(method, b"".join(buffers)))
        except Exception as error:
            raise RefusedError(shipped.describe(error)) from error

    def send(self, method, buffers, timeout, reply_size=0):
        """There are no streams: requests wait on threads."""

    def close(self):
        pass


class RefusedError(grpc.RpcError):
    """What gRPC makes of a server's exception."""

    def code(self):
        return grpc.StatusCode.FAILED_PRECONDITION

    def details(self):
        return str(self)


class Role:
    """A process: its programs, and the scope they run in."""

    def __init__(self, program, startup):
        self.program, self.startup, self.scope = program, startup, Scope()

    def __getitem__(self, name):
        return self.scope.find_var(name).value

    def __setitem__(self, name, value):
        self.scope.var(name).value = value


class Server(Role):
    def __init__(self, program, startup, servers, load=None):
        super().__init__(program, startup)
        EXE.run(startup, scope=self.scope)
        if load is not None:
            with fluid.scope_guard(self.scope):
                fluid.io.load_persistables(EXE, str(load), program)
        self.listen = program.global_block().ops[-1]
        self.server = shipped.Server(self.listen, self.scope, fluid.CPUPlace(), partial(InMemoryConnection, servers))


class Trainer(Role):
    def __init__(self, program, startup, servers):
        super().__init__(program, startup)
        ops = [op for op in program.global_block().ops if communicates(op)]
        self.session = Session(job_of(ops), partial(InMemoryConnection, servers))
        with bound(self.session):
            EXE.run(startup, scope=self.scope)

    def step(self, feed):
        """A step. In async mode, its gradients are applied and the next step starts with what came of them."""
        with bound(self.session):
            inputs = {name: feed[name] for name in feed if self.program.global_block().has_var(name)}
            EXE.run(self.program, feed=inputs, scope=self.scope)
            for communicator in self.session.communicators:
                communicator.flush()
                for name, value in communicator.unpack(communicator.read()).items():
                    self[name] = value


class Job:
    """All roles of a job, made by ``build`` and ``transpile`` as every process would make them on its own.

    ``as_data``: programs take a trip through protobuf, which those that call Python code cannot.
    ``load``: a folder that servers load before they begin.
    """

    def __init__(self, build, servers=2, trainers=2, config=None, sync_mode=True, as_data=True, load=None):
        read = reread if as_data else Program.clone
        self.endpoints = [f"127.0.0.1:{6170 + place}" for place in range(servers)]
        self.servers, self.trainers = {}, []
        _open.append(self)
        for trainer in range(trainers):
            main, startup = Program(), Program()
            with fluid.program_guard(main, startup), fluid.unique_name.guard():
                build()
                transpiler = fluid.DistributeTranspiler(config() if config else None)
                pservers = ",".join(self.endpoints)
                transpiler.transpile(trainer, pservers=pservers, trainers=trainers, sync_mode=sync_mode)
            if not self.servers:
                for endpoint in self.endpoints:
                    programs = map(read, transpiler.get_pserver_programs(endpoint))
                    self.servers[endpoint] = Server(*programs, self.servers, load)
            program = transpiler.get_trainer_program(wait_port=False)
            self.trainers.append(Trainer(read(program), read(startup), self.servers))

    def step(self, feeds):
        """One step of all trainers, at the same time."""
        with ThreadPoolExecutor(len(self.trainers)) as threads:
            steps = zip(self.trainers, feeds, strict=True)
            for step in [threads.submit(trainer.step, feed) for trainer, feed in steps]:
                step.result()

    def whole(self, name):
        """A variable joined from the slices that servers have of it."""
        every = (piece for endpoint, server in self.servers.items() for piece in slices_of(server.program, endpoint))
        held = [piece for piece in every if piece.whole == name]
        values = {}
        for piece in held:
            values.setdefault(piece.endpoint, {})[piece.name] = np.asarray(self.servers[piece.endpoint][piece.name])
        if held[0].is_whole:  # a schedule or a power, which every server keeps for itself
            copies = [values[piece.endpoint][piece.name] for piece in held]
            assert all((copy == copies[0]).all() for copy in copies)
            return copies[0]
        dtype = values[held[0].endpoint][held[0].name].dtype
        return join(SlicedVariable(name, tuple(held), dtype), values)

    def close(self):
        """Trainers leave, which ends their threads."""
        for trainer in self.trainers:
            trainer.session.leave()


def close_jobs():
    """Closes all jobs that a test has made."""
    while _open:
        _open.pop().close()


def reread(program):
    """A program after a trip through protobuf: what is not in there does not exist."""
    read = Program.parse_from_string(program.desc.serialize_to_string())
    read.random_seed = program.random_seed
    return read
