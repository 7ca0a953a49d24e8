"""Measures the `Costs` of a machine: small jobs, which differ in one thing each, and files."""

import os
import tempfile
import time

import real_jobs
import table_files
import tables
from real_jobs import Shape
from model import MESSAGES, Costs

FEW, MANY, NARROW, WIDE, SPREAD = 64, 8192, 8, 64, 4
SAVED = 300000  # rows of the tables that are saved
WRITTEN = 256 << 20  # bytes that are written to know the speed of the disk


def measure(steps, folder, say=print):
    """The costs of this machine; prints what it measures."""
    cases = {
        "few": Shape(1, 1, FEW, NARROW, steps),
        "spread": Shape(SPREAD, 1, FEW, NARROW, steps),
        "many": Shape(1, 1, MANY, NARROW, steps),
        "wide": Shape(1, 1, MANY, WIDE, steps),
    }
    found = {}
    for name, shape in cases.items():
        found[name] = real_jobs.run(shape)
        say("%-6s %s" % (name, found[name]), flush=True)
    return Costs(**of_jobs(found), **of_files(folder))


def of_jobs(found):
    """Costs of messages, rows and values, from differences between jobs."""
    costs = {}
    for side in ("trainer", "server"):
        few, many, wide = (getattr(found[name], side) for name in ("few", "many", "wide"))
        value = max(0.0, (wide - many) / (MANY * (WIDE - NARROW)))
        row = max(0.0, (many - few) / (MANY - FEW) - NARROW * value)
        costs[side + "_value"], costs[side + "_row"] = value, row
    few, spread = found["few"], found["spread"]
    rest = few.trainer - FEW * (costs["trainer_row"] + NARROW * costs["trainer_value"])
    message = max(0.0, (spread.trainer - few.trainer) / (MESSAGES * (SPREAD - 1)))
    costs["trainer_message"], costs["trainer_step"] = message, max(0.0, rest - MESSAGES * message)
    served = few.server - FEW * (costs["server_row"] + NARROW * costs["server_value"])
    costs["server_message"] = max(0.0, served / MESSAGES)
    waited = few.shortest - few.trainer - few.server
    costs["latency"] = max(0.0, waited / (2 * MESSAGES))
    return costs


def of_files(folder):
    """Costs of rows and bytes that are saved, and the speed of a folder's disk."""
    _saving(NARROW, 1000, folder)  # loads the kernels
    times = {width: _saving(width, SAVED, folder) for width in (NARROW, WIDE)}
    (less, small), (more, large) = times[NARROW], times[WIDE]
    byte = max(0.0, (more - less) / (large - small))
    return {"saved_byte": byte, "saved_row": max(0.0, (less - byte * small) / SAVED), "disk": _disk(folder)}


def _saving(width, rows, folder):
    """Processor seconds and bytes of a snapshot."""
    table = tables.made(rows, width)
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        began = time.process_time()
        saved = table_files.save(table, inside)
        return time.process_time() - began, saved.manifest.bytes


def _disk(folder):
    """Bytes per second that reach a file."""
    block = b"\1" * (1 << 20)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        began = time.time()
        for _ in range(WRITTEN // len(block)):
            file.write(block)
        os.fsync(file.fileno())
        return WRITTEN / (time.time() - began)
