"""What a pass over a dataset reports: where its time goes, and the values that the user asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from refluid.datasets.meter import Meter
from refluid.log import Log
from refluid.tensors import LoDTensor

PERIOD = 5.0  # seconds between two progress lines
_DEBUG_EVERY = 100  # batches between two reports of ``debug=True``, as in Fluid
_STAGES = ("read", "parse", "batch", "wait", "compile", "exchange", "compute")
_DTYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "int64_t", "float16": "float16"}


class Progress:
    """Where the time of a pass goes, logged every few seconds and at its end.

    Reading, parsing and batching happen on other threads, so their shares may add up to more than the whole. ``wait``
    is the time in which steps had no data, ``exchange`` the time they waited for parameter servers, ``compute`` the
    rest of them; ``compile`` are the first steps of each shape.
    """

    def __init__(self, name: str, log: Log):
        self._name, self._log = name, log
        self.meter = Meter()  # of other threads
        self.spent = dict.fromkeys(("wait", "compile", "exchange", "compute"), 0.0)  # by the thread that calls steps
        self.steps = self.samples = 0
        self._began = time.perf_counter()
        self._logged, self._before = self._began, (0, {})  # when the last line was written, and what it counted

    def stepped(self, samples: int) -> None:
        """Counts a step, and logs a line if it is time for one."""
        self.steps += 1
        self.samples += samples
        now = time.perf_counter()
        if now - self._logged >= PERIOD:
            seconds, (samples_before, before) = self._seconds(), self._before
            spent = {stage: total - before.get(stage, 0.0) for stage, total in seconds.items()}
            self._write(self._name, self.samples - samples_before, spent, now - self._logged)
            self._logged, self._before = now, (self.samples, seconds)

    def end(self) -> None:
        """Logs the line of the whole pass."""
        elapsed = time.perf_counter() - self._began
        self._write(f"{self._name} ended", self.samples, self._seconds(), elapsed)

    def debug(self) -> None:
        """Prints what Fluid prints with ``debug=True``, but for the ops: XLA does not run them one by one."""
        if self.steps % _DEBUG_EVERY:
            return
        elapsed, waited = time.perf_counter() - self._began, self.spent["wait"]
        print(f"mean read time: {waited / self.steps:.6f}s")
        print(f"IO percent: {100 * waited / elapsed:.6f}")
        print(f"{self.samples / elapsed:.6g} instances/s", flush=True)

    def _seconds(self) -> dict[str, float]:
        return {**self.meter.seconds(), **self.spent}

    def _write(self, message: str, samples: int, spent: Mapping[str, float], elapsed: float) -> None:
        shares = {stage: f"{100 * spent[stage] / elapsed:.0f}%" for stage in _STAGES if spent.get(stage)}
        rate = round(samples / elapsed, 1)
        self._log.info(message, step=self.steps, samples=self.samples, samples_per_second=rate, **shares)


def described(info: str, name: str, value: LoDTensor) -> str:
    """A fetched tensor as Fluid's trainers print it."""
    array = np.asarray(value.value)
    lod = "".join("{" + ", ".join(map(str, level)) + "}" for level in value.lod())
    dims = ", ".join(map(str, array.shape))
    numbers = array.reshape(-1).tolist()
    data = " ".join(f"{number:g}" if isinstance(number, float) else str(int(number)) for number in numbers)
    dtype = _DTYPES.get(array.dtype.name, array.dtype.name)
    return f"{info}\t{name}\t\tlod: {{{lod}}}\n\tdim: {dims}\n\tlayout: NCHW\n\tdtype: {dtype}\n\tdata: [{data}]\n\t"


def samples_in(value: Any) -> int:
    """How many samples a fed value holds: its sequences, or its rows."""
    return len(value._lod[0]) - 1 if isinstance(value, LoDTensor) and value._lod else len(value)
