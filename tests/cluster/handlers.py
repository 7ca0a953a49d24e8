"""Parameter servers without sockets: their requests are function calls."""

import types

import numpy as np

import paddle.fluid as fluid
from cluster.one_process import Role
from refluid.runtime.server.server import Server
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import Rows, pb


class Direct:
    """A connection to a server of this process."""

    def __init__(self, servers, endpoint):
        self._servers, self._endpoint = servers, endpoint

    def call(self, method, buffers, timeout):
        return b"".join(self._servers[self._endpoint].handle(method, b"".join(buffers)))

    def close(self):
        pass


def make_servers(count=1, **options):
    """Servers of a job that are not listening, by endpoint."""
    endpoints = [f"127.0.0.1:{number}" for number in range(1, count + 1)]
    servers = {}
    for endpoint in endpoints:
        role = Role(endpoints, **options)
        program = role.transpiler.get_pserver_program(endpoint)
        role.exe.run(role.transpiler.get_startup_program(endpoint, program), scope=role.scope)
        op = program.global_block().ops[-1]
        servers[endpoint] = Server(op, role.scope, fluid.CPUPlace(), lambda other: Direct(servers, other))
    return servers


def gradients(held, value=1.0):
    """A push of ones for every variable that the server takes."""
    found = {}
    for name in held._exchange.shard.pushable:
        dtype, shape, sparse = held._exchange.shard.describe(name)
        values = np.full((2, *shape[1:]) if sparse else shape, value, dtype)
        found[name] = Rows(np.array([0, 3]), values) if sparse else values
    return found


class Trainer:
    """Sends the requests of one trainer to one server."""

    def __init__(self, server, number=0, incarnation=None):
        self.server = server
        self.caller = pb.Caller(trainer=number, incarnation=10 + number if incarnation is None else incarnation)
        self.sequence = 0

    def call(self, method, header, tensors=types.MappingProxyType({}), reply=pb.Empty):
        message = b"".join(self.server.handle(method, b"".join(wire.encode(header, tensors))))
        return wire.decode(reply, message), message

    def join(self, **changes):
        given = {
            "protocol": wire.PROTOCOL,
            "endpoint": self.server.endpoint,
            "trainers": self.server.trainers,
            "mode": self.server.mode.name.lower(),
            "host": f"node{self.caller.trainer}:{self.caller.incarnation}",
        }
        return self.call("Join", pb.JoinRequest(caller=self.caller, **{**given, **changes}), reply=pb.JoinReply)[0]

    def exchange(self, purpose, pushed=None, wanted=(), sequence=None):
        """The reply's header and tensors."""
        pushed = pushed or {}
        header = pb.ExchangeRequest(
            caller=self.caller,
            purpose=purpose,
            sequence=self.sequence if sequence is None else sequence,
            steps=1,
            wanted=wanted,
        )
        reply, message = self.call("Exchange", header, pushed, pb.ExchangeReply)
        return reply, {name: np.array(value) for name, value in wire.decode_tensors(reply, message).items()}

    def push(self, pushed, wanted=()):
        self.sequence += 1
        return self.exchange(pb.ExchangeRequest.STEP, pushed, wanted)

    def barrier(self, number, repeats=0):
        request = pb.ExchangeRequest(caller=self.caller, sequence=number, steps=repeats)
        return self.call("Barrier", request, reply=pb.ExchangeReply)[0]

    def tell(self, method, reply=pb.Empty):
        return self.call(method, pb.CallerRequest(caller=self.caller), reply=reply)[0]
