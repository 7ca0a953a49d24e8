"""How the parts of a kernel are shared between the thread that calls it and threads of XLA's pool.

A thread that has helped stays for a moment and waits for the next kernel: to wake a sleeping one takes as long as a
small kernel does, and a step may have dozens. It goes as soon as anybody else wants the core, and when nothing comes
for a while. That is shorter where waiting was in vain before: an operation of XLA's that follows a kernel would find
the pool's threads asleep.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

from llvmlite import binding

from refluid.kernels.frame import (
    REQUEST_SIZE,
    call_site,
    compiled,
    count_threads,
    kernel_number,
    most_parts,
    schedule,
    word,
    words,
)
from refluid.kernels.memory import (
    allocate,
    call_part,
    count,
    let_others_run,
    read,
    read_clock,
    release,
    replace,
    symbol_address,
)

# The record of a running kernel, in words of 8 bytes; the last field has room for a request to XLA.
_FRAME, _WORK, _NEXT, _PARTS, _DONE, _USERS, _THREADS, _PLACE, _REQUEST = range(9)
_SIZE = _REQUEST + REQUEST_SIZE

TABLE = "refluid_kernel_table"  # the addresses of kernels
TASK = "refluid_kernel_task"  # the function that `help_out` is
_BENCH, _PATIENCE = "refluid_kernel_bench", "refluid_kernel_patience"

_SEATS, _FIRST = 0, 1  # the bench: how many seats there are, and who is on each
_NOBODY, _HELPER = 0, 1  # or the record that a helper is to work at
_PLACES = 256  # in programs that kernels are called from; some share what is known about them
_LEAST, _MOST = 20_000, 1_000_000  # nanoseconds to wait; a training loop gets from one step to the next in less
_TAKEN = 20_000  # nanoseconds; who is let run for so long has something to do


def shared_words(name: str, values: Sequence[int]) -> Any:
    """Words that compiled code, which outlives this process in numba's cache, finds by their name.

    They are never freed: threads of XLA's look at them while Python comes to its end.
    """
    memory = (ctypes.c_int64 * len(values))(*values)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    binding.add_symbol(name, ctypes.addressof(memory))
    return memory


@compiled
def begin(frame):
    """The record of a kernel that begins, with other threads asked to help."""
    record = allocate(8 * _SIZE)
    state = words(record, _SIZE)
    for i in range(_SIZE):
        state[i] = 0
    state[_FRAME], state[_WORK] = frame, word(symbol_address(TABLE), kernel_number(frame))
    state[_PLACE] = symbol_address(_PATIENCE) + 8 * (call_site(frame) // 16 % _PLACES)
    request = record + 8 * _REQUEST
    if not count_threads(frame, request, record + 8 * _THREADS):
        state[_THREADS] = 1
    parts = max(1, min(most_parts(frame), state[_THREADS]))
    state[_PARTS], state[_USERS], state[_NEXT] = parts, parts, 1
    for _ in range(parts - 1 - _call_helpers(record, parts - 1)):
        if not schedule(frame, request, symbol_address(TASK), record):
            count(record + 8 * _USERS, -1)
    return record


@compiled
def _work_at(record, part):
    """Works at that part, and then at what nobody has begun."""
    state = words(record, _SIZE)
    parts = state[_PARTS]
    while part < parts:  # who comes late finds none, and the frame may be gone then
        call_part(state[_WORK], state[_FRAME], part, parts)
        count(record + 8 * _DONE, 1)
        part = count(record + 8 * _NEXT, 1)


@compiled
def _leave(record):
    if count(record + 8 * _USERS, -1) == 1:
        release(record)


@compiled
def work(record):
    """What the calling thread does: works at the first part, then at what nobody has begun; waits until all are done.

    With the same part in every kernel, a thread finds in its cache what it has computed before.
    """
    _work_at(record, 0)
    while read(record + 8 * _DONE) < word(record, _PARTS):
        let_others_run()
    _leave(record)


@compiled
def _help(record):
    """Works at what nobody has begun; gives where it is kept how long to wait afterwards, or 0 if there was nothing."""
    part = count(record + 8 * _NEXT, 1)
    place = word(record, _PLACE) if part < word(record, _PARTS) else 0
    _work_at(record, part)
    _leave(record)
    return place


@compiled
def help_out(record):
    """What a thread of XLA's pool does. If it comes too late it goes again: XLA may have something for it."""
    place = _help(record)
    bench = symbol_address(_BENCH)
    for i in range(word(bench, _SEATS)):
        seat = bench + 8 * (_FIRST + i)
        if place != 0 and replace(seat, _NOBODY, _HELPER):
            _wait_for_work(seat, place)
            return


@compiled
def _call_helpers(record, wanted):
    """Gives the record to helpers who wait on the bench; how many there were."""
    bench = symbol_address(_BENCH)
    called = 0
    for i in range(word(bench, _SEATS)):
        seat = bench + 8 * (_FIRST + i)
        if called < wanted and read(seat) == _HELPER and replace(seat, _HELPER, record):
            called += 1
    return called


@compiled
def _wait_for_work(seat, place):
    """Sits there, and works at what is put there, until nothing has come for a while or the core is wanted."""
    clock = allocate(16)
    patience = words(place, 1)
    came = now = read_clock(clock)
    while True:
        record = read(seat)
        if record != _HELPER:
            patience[0] = _MOST
            place = _help(record)
            patience = words(place, 1) if place != 0 else patience
            count(seat, _HELPER - record)
            came = now = read_clock(clock)
        before = now
        let_others_run()
        now = read_clock(clock)
        is_late = now - came > patience[0]
        if (is_late or now - before > _TAKEN) and replace(seat, _HELPER, _NOBODY):
            break
    if is_late:
        patience[0] = max(patience[0] // 2, _LEAST)
    release(clock)


# One thread of the pool is always left to XLA.
shared_words(_BENCH, [min(64, max(1, (os.cpu_count() or 1) - 1)), *[_NOBODY] * 64])
shared_words(_PATIENCE, [_MOST] * _PLACES)
