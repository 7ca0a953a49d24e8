"""How the parts of a kernel are shared between the calling thread and threads of XLA's pool.

A pool thread that has run parts of a kernel waits for the next one in a slot: waking a sleeping thread takes as long as
a small kernel does, and a step may have dozens. It stops waiting as soon as the operating system needs the core, or
after a time limit, which is shorter at call sites where waiting was useless before: an XLA operation that follows the
kernel would find the pool's threads busy.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

from llvmlite import binding

from refluid.kernels.frame import (
    KERNEL,
    MOST_PARTS,
    REQUEST_SIZE,
    attribute,
    call_site,
    compiled,
    count_threads,
    schedule,
    word,
    words,
)
from refluid.kernels.memory import (
    allocate,
    atomic_add,
    atomic_load,
    call_part,
    compare_and_swap,
    read_clock,
    release,
    symbol_address,
    yield_core,
)

# The record of a running kernel, in words of 8 bytes; the last field has room for a request to XLA.
_FRAME, _WORK, _NEXT, _PARTS, _DONE, _USERS, _THREADS, _WAIT_LIMIT, _REQUEST = range(9)
_SIZE = _REQUEST + REQUEST_SIZE

TABLE = "refluid_kernel_table"  # the addresses of kernels
TASK = "refluid_kernel_task"  # the address of `run_task`
_SLOTS, _WAIT_LIMITS = "refluid_kernel_slots", "refluid_kernel_wait_limits"

_SLOT_COUNT, _FIRST_SLOT = 0, 1  # the table of slots: their number, then the state of each
_EMPTY, _WAITING = 0, 1  # or the record that the waiting thread is to work on
_CALL_SITES = 256  # in programs that kernels are called from; several may share an entry
_SHORTEST_WAIT, _LONGEST_WAIT = 20_000, 1_000_000  # nanoseconds; training loops begin their next step sooner
_PREEMPTED = 20_000  # nanoseconds that a yield may take before the core counts as needed by others


def shared_words(name: str, values: Sequence[int]) -> Any:
    """Memory of 8-byte words that compiled code finds by name, because numba's cache outlives this process.

    It is never freed: XLA's threads read it while Python shuts down.
    """
    memory = (ctypes.c_int64 * len(values))(*values)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    binding.add_symbol(name, ctypes.addressof(memory))
    return memory


@compiled
def begin(frame):
    """Creates the record of a kernel and requests other threads to run parts of it."""
    record = allocate(8 * _SIZE)
    state = words(record, _SIZE)
    for i in range(_SIZE):
        state[i] = 0
    state[_FRAME], state[_WORK] = frame, word(symbol_address(TABLE), attribute(frame, KERNEL))
    state[_WAIT_LIMIT] = symbol_address(_WAIT_LIMITS) + 8 * (call_site(frame) // 16 % _CALL_SITES)
    request = record + 8 * _REQUEST
    if not count_threads(frame, request, record + 8 * _THREADS):
        state[_THREADS] = 1
    parts = max(1, min(attribute(frame, MOST_PARTS), state[_THREADS]))
    state[_PARTS], state[_USERS], state[_NEXT] = parts, parts, 1
    for _ in range(parts - 1 - _assign(record, parts - 1)):
        if not schedule(frame, request, symbol_address(TASK), record):
            atomic_add(record + 8 * _USERS, -1)
    return record


@compiled
def _run_parts(record, part):
    """Runs that part, then parts that no thread has claimed."""
    state = words(record, _SIZE)
    parts = state[_PARTS]
    while part < parts:  # a late thread finds none left, and the frame may be gone by then
        call_part(state[_WORK], state[_FRAME], part, parts)
        atomic_add(record + 8 * _DONE, 1)
        part = atomic_add(record + 8 * _NEXT, 1)


@compiled
def _leave(record):
    if atomic_add(record + 8 * _USERS, -1) == 1:
        release(record)


@compiled
def work(record):
    """Runs the calling thread's share: the first part, then unclaimed ones; returns when all parts are done.

    The same thread takes the same part in every kernel, so that it finds its earlier results in its cache.
    """
    _run_parts(record, 0)
    while atomic_load(record + 8 * _DONE) < word(record, _PARTS):
        yield_core()
    _leave(record)


@compiled
def _take_parts(record):
    """Runs unclaimed parts; returns the address of the wait limit of the call site, or 0 if no part was left."""
    part = atomic_add(record + 8 * _NEXT, 1)
    site = word(record, _WAIT_LIMIT) if part < word(record, _PARTS) else 0
    _run_parts(record, part)
    _leave(record)
    return site


@compiled
def run_task(record):
    """Runs in a thread of XLA's pool; a thread that finds no part left returns to XLA at once."""
    site = _take_parts(record)
    table = symbol_address(_SLOTS)
    for i in range(word(table, _SLOT_COUNT)):
        slot = table + 8 * (_FIRST_SLOT + i)
        if site != 0 and compare_and_swap(slot, _EMPTY, _WAITING):
            _wait_for_work(slot, site)
            return


@compiled
def _assign(record, wanted):
    """Assigns the record to waiting threads; returns how many there were."""
    table = symbol_address(_SLOTS)
    assigned = 0
    for i in range(word(table, _SLOT_COUNT)):
        slot = table + 8 * (_FIRST_SLOT + i)
        if assigned < wanted and atomic_load(slot) == _WAITING and compare_and_swap(slot, _WAITING, record):
            assigned += 1
    return assigned


@compiled
def _wait_for_work(slot, site):
    """Runs what is assigned to the slot, until nothing comes within the limit or the core is needed."""
    clock = allocate(16)
    limit = words(site, 1)
    came = now = read_clock(clock)
    while True:
        record = atomic_load(slot)
        if record != _WAITING:
            limit[0] = _LONGEST_WAIT
            site = _take_parts(record)
            limit = words(site, 1) if site != 0 else limit
            atomic_add(slot, _WAITING - record)
            came = now = read_clock(clock)
        before = now
        yield_core()
        now = read_clock(clock)
        is_late = now - came > limit[0]
        if (is_late or now - before > _PREEMPTED) and compare_and_swap(slot, _WAITING, _EMPTY):
            break
    if is_late:
        limit[0] = max(limit[0] // 2, _SHORTEST_WAIT)
    release(clock)


# At least one thread of the pool is left to XLA.
shared_words(_SLOTS, [min(64, max(1, (os.cpu_count() or 1) - 1)), *[_EMPTY] * 64])
shared_words(_WAIT_LIMITS, [_LONGEST_WAIT] * _CALL_SITES)
