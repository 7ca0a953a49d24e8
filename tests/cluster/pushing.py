"""Trainers that compute nothing: they push arrays, through the shipped session, as fast as they can."""

import grpc
import numpy as np

from cluster import counting
from refluid.lowering.plan import communicates
from refluid.runtime.trainer.exchange_plan import job_of
from refluid.runtime.trainer.packing import Message
from refluid.runtime.trainer.server_calls import OFFER, READ
from refluid.runtime.trainer.session import Session
from refluid.runtime.transport.connection import Connection
from refluid.runtime.transport.wire import dense

PARAMETER, GRADIENT = "w0", "w0@GRAD"


class Pusher:
    """A trainer of a job of `counting` with one server and without a table; every push adds 1 to all elements."""

    def __init__(self, case, number, connect=Connection):
        made, *_ = counting.transpiled(case, number)
        ops = made.get_trainer_program(wait_port=False).global_block().ops
        self.session = Session(job_of([op for op in ops if communicates(op)]), connect)
        (self.endpoint,) = case["endpoints"]
        size = case.get("size", case["trainers"])
        self._bytes = 4 * size
        self._one = np.full(size, -1.0, "float32")
        if number == 0:
            self.session.exchange(OFFER, {self.endpoint: Message({PARAMETER: np.zeros(size, "float32")}, [])})

    def push(self):
        """Pushes once and waits for the parameter."""
        self.session.push({self.endpoint: Message({GRADIENT: self._one}, [PARAMETER], self._bytes)})

    def total(self):
        """The sum that the server has."""
        replies = self.session.exchange(READ, {self.endpoint: Message({}, [PARAMETER], self._bytes)})
        values = dense(replies[self.endpoint][PARAMETER])
        assert (values == values[0]).all(), "a parameter of two instants"
        return int(values[0])


class LostError(grpc.RpcError):
    """What gRPC says when a connection breaks."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "the reply was lost"


def unreliable(chance, lost=0.2, doubled=0.2):
    """A kind of connection that loses replies and delivers requests twice, drawn from ``chance``."""

    class Unreliable(Connection):
        def call(self, method, buffers, timeout, reply_size=0):
            if chance.random() < doubled:
                super().call(method, buffers, timeout, reply_size)
            reply = super().call(method, buffers, timeout, reply_size)
            if chance.random() < lost:
                raise LostError
            return reply

        def send(self, method, buffers, timeout, reply_size=0):
            """Without streams, so that every message goes through `call`."""

    return Unreliable
