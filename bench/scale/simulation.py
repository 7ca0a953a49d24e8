"""A job as discrete events: trainers take turns in computing and asking, servers answer one message after the other.

Cores, processes and network cards serve first come, first served. `model.limits` says what each resource allows by itself;
this adds the time that everybody waits for everybody else.
"""

import heapq
from collections import deque
from dataclasses import dataclass
from functools import partial

import numpy as np
from model import MESSAGES, message_bytes


class Events:
    """Actions to come, taken in the order of their times; each is called with its time."""

    def __init__(self):
        self._heap, self._count = [], 0

    def at(self, time, action):
        self._count += 1
        heapq.heappush(self._heap, (time, self._count, action))

    def run(self):
        """Takes all of them; returns the time of the last."""
        now = 0.0
        while self._heap:
            now, _, action = heapq.heappop(self._heap)
            action(now)
        return now


class Resource:
    """Places that serve one request each at a time."""

    def __init__(self, events, places=1):
        self._events, self._free, self.places = events, places, places
        self._waiting, self.busy = deque(), 0.0

    def serve(self, now, seconds, then):
        """Serves a request when its turn comes; ``then`` is called when it is done."""
        if not self._free:
            self._waiting.append((seconds, then))
            return
        self._free -= 1
        self.busy += seconds
        self._events.at(now + seconds, partial(self._done, then))

    def _done(self, then, now):
        self._free += 1
        if self._waiting:
            self.serve(now, *self._waiting.popleft())
        then(now)


class Link:
    """One direction of a network card: what comes later leaves later."""

    def __init__(self):
        self._free = self.busy = 0.0

    def carry(self, now, seconds):
        """When all bytes are through that begin now, or after those that came before."""
        self._free = max(now, self._free) + seconds
        self.busy += seconds
        return self._free


class Process:
    """A server or a trainer: does one thing at a time, on one of the cores of its host."""

    def __init__(self, cores, link_in, link_out):
        self._cores, self.link_in, self.link_out = cores, link_in, link_out
        self._waiting, self._works, self.busy = deque(), False, 0.0

    def work(self, now, seconds, then):
        """Works for so long when its turn comes; ``then`` is called when that is done."""
        if self._works:
            self._waiting.append((seconds, then))
            return
        self._works = True
        self.busy += seconds
        self._cores.serve(now, seconds, partial(self._done, then))

    def _done(self, then, now):
        self._works = False
        if self._waiting:
            self.work(now, *self._waiting.popleft())
        then(now)


@dataclass(frozen=True)
class Outcome:
    """Steps per second over all trainers, and the share of time that the busiest resource of each kind was busy."""

    steps_per_second: float
    busy: dict

    @property
    def bottleneck(self):
        return max(self.busy, key=self.busy.get)


class Simulation:
    """A job in which every trainer takes so many steps.

    Args:
      shared: the cores of one host that all processes run on, as in a test on this machine.
    """

    def __init__(self, job, costs, steps=20, shared=None, seed=0):
        self.job, self.costs, self.steps = job, costs, steps
        self._events, self._random, self._shares = Events(), np.random.RandomState(seed), np.array(job.shares)
        self._delay = costs.latency + (0.0 if shared else job.server_host.delay)
        one = Resource(self._events, shared) if shared else None
        self.servers = self._processes(job.servers, job.server_host, job.per_host, one)
        self.trainers = [_Trainer(process) for process in self._processes(job.trainers, job.trainer_host, 1, one)]
        self._round = [[] for _ in range(job.servers)]  # sync: what waits for the pushes of others
        self._taken, self._counted = 0, (0, 0.0)  # steps, and how many of them by when do not count

    def _processes(self, count, host, per_host, cores):
        found = []
        for number in range(count):
            if number % per_host == 0:
                of_host = cores or Resource(self._events, host.cores), Link(), Link()
            found.append(Process(*of_host))
        return found

    def run(self):
        """Runs to the end of all steps; the first tenth does not count."""
        for trainer in self.trainers:
            self._events.at(0.0, partial(self._begin_step, trainer))
        end = self._events.run()
        steps, begin = self._counted
        return Outcome((self._taken - steps) / (end - begin), self._busy(end))

    def _busy(self, seconds):
        def most(resources):
            return max(each.busy for each in resources) / seconds

        trainers = [trainer.process for trainer in self.trainers]
        return {
            "trainers": most(trainers),
            "servers": most(self.servers),
            "network of servers": most([link for each in self.servers for link in (each.link_in, each.link_out)]),
            "network of trainers": most([link for each in trainers for link in (each.link_in, each.link_out)]),
        }

    # A step: rows from all servers, computation, gradients to all servers

    def _begin_step(self, trainer, now):
        trainer.parts = self._random.multinomial(self.job.batch_rows, self._shares)
        self._ask(trainer, now, self._costs_of_rows() + self.costs.trainer_step, self._answer, self._push)

    def _push(self, trainer, now):
        handle = self._gather if self.job.sync else self._answer
        self._ask(trainer, now, self._costs_of_rows() + self.job.compute, handle, self._end_step)

    def _end_step(self, trainer, now):
        trainer.steps += 1
        self._taken += 1
        if 10 * self._taken <= self.steps * len(self.trainers):
            self._counted = self._taken, now
        if trainer.steps < self.steps:
            self._begin_step(trainer, now)

    def _costs_of_rows(self):
        """Processor seconds of a trainer for the rows of a batch, in one of the two exchanges."""
        job, costs = self.job, self.costs
        return job.batch_rows * (costs.trainer_row + job.width * costs.trainer_value) / MESSAGES

    def _ask(self, trainer, now, seconds, handle, then):
        """After some work, sends a message to every server; ``then`` is called when the last reply has come."""
        trainer.replies, looks_up = 0, then == self._push
        trainer.process.work(now, seconds, lambda now: None)
        for number, rows in enumerate(trainer.parts.tolist()):
            to, back = message_bytes(self.job, rows / self.job.batch_rows)
            reply = partial(self._replied, trainer, then)
            answer = partial(self._send, self.servers[number], trainer.process, back if looks_up else 0.0, reply)
            serve = partial(self._serve, number, rows, partial(handle, number, answer))
            send = partial(self._send, trainer.process, self.servers[number], to / MESSAGES, serve)
            trainer.process.work(now, self.costs.trainer_message, send)

    def _send(self, sender, receiver, size, then, now):
        """Moves bytes through the network cards of both sides."""
        seconds = size / self.job.trainer_host.network
        self._events.at(sender.link_out.carry(now, seconds) + self._delay, partial(self._receive, receiver, size, then))

    def _receive(self, receiver, size, then, now):
        seconds = size / self.job.server_host.network
        self._events.at(receiver.link_in.carry(now, seconds), then)

    def _serve(self, number, rows, then, now):
        costs, job = self.costs, self.job
        seconds = costs.server_message + rows * (costs.server_row + job.width * costs.server_value) / MESSAGES
        self.servers[number].work(now, seconds, then)

    def _answer(self, number, answer, now):
        answer(now)

    def _gather(self, number, answer, now):
        """Answers when the pushes of all trainers have come."""
        self._round[number].append(answer)
        if len(self._round[number]) == len(self.trainers):
            waiting, self._round[number] = self._round[number], []
            for each in waiting:
                each(now)

    def _replied(self, trainer, then, now):
        trainer.replies += 1
        if trainer.replies == self.job.servers:
            then(trainer, now)


class _Trainer:
    """Where a trainer is in its step."""

    def __init__(self, process):
        self.process, self.parts, self.replies, self.steps = process, np.empty(0), 0, 0
