"""What the lowering stores for a program: its compiled steps and the schedules of its inner blocks.

It is an attribute of the program and is freed with it. Compiled steps refer to operators, and operators to their
program, so a separate table, even one with weak keys, would keep every program alive.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import ref

from refluid.ir.program import Program

if TYPE_CHECKING:
    from refluid.lowering.interpreter import Schedule
    from refluid.lowering.step import CompiledStep, Step, StepKey

MOST_STEPS = 256  # compiled steps of one program; the least recently used is evicted, and compiled again if needed
MOST_CALLS = 1024  # forms of a call that find their step directly; the table is cleared when it is full


class CompiledSteps:
    """The compiled steps of a program by key, least recently used first; safe to use from several threads."""

    def __init__(self):
        self._steps: OrderedDict[StepKey, CompiledStep] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: StepKey) -> CompiledStep | None:
        with self._lock:
            found = self._steps.get(key)
            if found is not None:
                self._steps.move_to_end(key)
            return found

    def add(self, key: StepKey, step: CompiledStep) -> None:
        with self._lock:
            self._steps[key] = step
            self._steps.move_to_end(key)
            while len(self._steps) > MOST_STEPS:
                self._steps.popitem(last=False)

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[StepKey]:
        with self._lock:
            return iter(list(self._steps))


class Lowered:
    """What is stored for one program."""

    def __init__(self):
        self.first_run = threading.RLock()  # threads compile a program once
        self.steps = CompiledSteps()
        self.inner: dict[int, tuple[int, Schedule]] = {}  # block index -> program version, schedule
        # Steps by the form of a call of `Executor.run`. Weak, because a step also belongs to its scope.
        self.by_call: dict[tuple[Any, ...], ref[Step]] = {}
        self.reading: Any = None  # `refluid.reading.Reading` of one version of the program

    def remember_call(self, call: tuple[Any, ...], step: Step) -> None:
        """Lets later calls of the same form find their step directly."""
        if len(self.by_call) >= MOST_CALLS:
            self.by_call.clear()
        self.by_call[call] = ref(step)


_making = threading.Lock()


def lowered(program: Program) -> Lowered:
    """What is stored for ``program``; created on first use."""
    if program.lowered is None:
        with _making:
            if program.lowered is None:
                program.lowered = Lowered()
    return program.lowered
