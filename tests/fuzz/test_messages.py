"""Damaged, forged and foreign messages and frames against a live server, while a trainer trains beside them.

REFLUID_FUZZ_EXAMPLES=100000 .venv/bin/python -m pytest tests/fuzz/test_messages.py
"""

from __future__ import annotations

import math
import os
import random
import resource
import socket
import struct
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context

import grpc
import numpy as np

from cluster.one_process import Role, servers
from refluid.runtime.trainer import session
from refluid.runtime.transport import protocol_pb2, wire
from refluid.runtime.transport.connection import IN_CHUNKS, SERVICE, SIZE_KEY, STREAMED
from refluid.runtime.transport.wire import Rows, pb

EXAMPLES = int(os.environ.get("REFLUID_FUZZ_EXAMPLES", "600"))
ATTACKERS = 2  # processes
_PACE = 0.02  # seconds between two steps of the trainer, so that the server has time for the others
GROWTH = 400 << 10  # KB; what one message may make the process take, and what training and gRPC take anyway
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
METHODS = protocol_pb2.DESCRIPTOR.services_by_name["ParameterServer"].methods
LARGE_NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))


def forged(descriptor, dice, depth=0):
    """A message of a kind with anything in its fields; a foreign process is its caller."""
    made = getattr(pb, descriptor.name)()
    for field in descriptor.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if dice.random() < 0.3 or is_map:
            continue
        values = [_value(field, dice, depth) for _ in range(dice.choice([0, 1, 3, 40]) if field.is_repeated else 1)]
        if field.is_repeated:
            getattr(made, field.name).extend(values)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(values[0])
        else:
            setattr(made, field.name, values[0])
    return made


def _value(field, dice, depth):
    if field.message_type is not None:
        return forged(field.message_type, dice, depth + 1)
    if field.type == field.TYPE_STRING:
        names = ["", "table", "table.block0", "float32", "int64", "O", "f4,f4", "x" * 300, "../../etc", "0" * 32]
        return dice.choice(names)
    if field.type == field.TYPE_ENUM:
        return dice.choice([0, 1, 2, 3, 4, 5, 77])
    if field.type == field.TYPE_BOOL:
        return dice.random() < 0.5
    if field.type == field.TYPE_DOUBLE:
        return dice.choice([0.0, math.inf, -1.0])
    low, high = {field.TYPE_INT32: (-(2**31), 2**31 - 1), field.TYPE_INT64: (-(2**63), 2**63 - 1)}.get(
        field.type, (0, 2**32 - 1)
    )
    return max(low, min(high, dice.choice([0, 0, *LARGE_NUMBERS])))


def message_for(method, dice):
    """The bytes of a request: as the protocol has it, with any fields, damaged, or just any."""
    if dice.random() < 0.1:
        return dice.randbytes(dice.choice([0, 3, 4, 5, 64, 5000]))
    tensors = {}
    if dice.random() < 0.5:
        tensors = {"table": np.arange(3), "w": Rows(np.arange(2), np.ones((2, 3), np.float32))}
    header = forged(method.input_type, dice)
    carries = "tensors" in {field.name for field in method.input_type.fields}
    message = bytearray(b"".join(wire.encode(header, tensors if carries else {})))
    for _ in range(dice.choice([0, 0, 1, 4])):
        place = dice.randrange(len(message) + 1)
        damage = dice.randrange(5)
        if damage == 0:
            del message[place:]
        elif damage == 1 and place < len(message):
            message[place] ^= 1 << dice.randrange(8)
        elif damage == 2:
            message[place:place] = dice.randbytes(dice.choice([1, 8, 100]))
        elif damage == 3:
            message[:4] = struct.pack("<I", dice.choice([0, 1, 2**31, 2**32 - 1, len(message)]))
        else:
            del message[place : place + dice.choice([1, 8])]
    return bytes(message)


def frames(dice):
    """What no HTTP/2 client sends: random bytes, or frames of any type, length and content after a good beginning."""
    if dice.random() < 0.3:
        return dice.randbytes(dice.choice([1, 24, 1000, 70000]))
    sent = PREFACE + struct.pack(">I", 0)[1:] + b"\4\0" + bytes(4)
    for _ in range(dice.choice([1, 5, 50])):
        body = dice.randbytes(dice.choice([0, 4, 8, 100]))
        length = len(body) if dice.random() < 0.8 else dice.choice([0, 2**14, 2**24 - 1])
        kind, flags, stream = dice.randrange(12), dice.randrange(256), dice.choice([0, 1, 3, 5, 2**31 - 1])
        sent += struct.pack(">I", length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body
    return sent


def send_frames(endpoint, dice):
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        try:
            stranger.sendall(frames(dice))
            if dice.random() < 0.2:
                stranger.settimeout(0.05)
                stranger.recv(1000)
        except OSError:
            pass


def attack(endpoint, count, seed):
    """Sends so many messages and frames; returns what became of them."""
    codes, dice = Counter(), random.Random(seed)
    with grpc.insecure_channel(endpoint, [("grpc.max_send_message_length", -1)]) as channel:
        for number in range(count):
            if number % 10 == 0:
                send_frames(endpoint, dice)
                codes["frames"] += 1
                continue
            # A join waits for a sign of life of the trainer that holds the id, so there are few of them.
            method = dice.choice(METHODS) if dice.random() < 0.02 else dice.choice(METHODS[1:])
            form = dice.choice(["", STREAMED, IN_CHUNKS])
            sent = [message_for(method, dice) for _ in range(dice.choice([1, 1, 3]))]
            sizes = ((SIZE_KEY, dice.choice(["100000", "10", "-1", "99999999999999"])),) if dice.random() < 0.9 else ()
            try:
                call = channel.stream_stream(f"/{SERVICE}/{method.name}{form}")
                replies = list(call(iter(sent), timeout=0.2 if method.name == "Join" else 20, metadata=sizes))
                codes[f"answered by {method.name}" if replies else "no reply"] += 1
            except grpc.RpcError as error:
                codes[error.code().name] += 1
    return codes


def test_training_goes_on_beside_an_attack():
    codes: Counter[str] = Counter()
    with ProcessPoolExecutor(ATTACKERS, get_context("spawn")) as attackers, servers(count=1) as (endpoint,):
        trainer = Role([endpoint])
        trainer.start()
        trainer.step()
        steps, before = 1, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        attacks = [attackers.submit(attack, endpoint, EXAMPLES // ATTACKERS, seed) for seed in range(ATTACKERS)]
        while wait(attacks, _PACE).not_done or steps < 5:
            assert np.isfinite(trainer.step(steps % 7))
            steps += 1
        for each in attacks:
            codes.update(each.result())
        (status,) = session.current().status()
        assert status["round"] == steps, "every push was applied once, and no other"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < GROWTH
        assert sum(codes.values()) == EXAMPLES
        answered = {name.removeprefix("answered by ") for name in codes if name.startswith("answered by")}
        assert answered <= {"Status", "Lost"}, "which need no trainer; the others know theirs"
        assert codes["INVALID_ARGUMENT"] and codes["FAILED_PRECONDITION"]
        print(f"{EXAMPLES} messages and frames beside {steps} steps, {grown >> 10} MB more memory: {dict(codes)}")
        trainer.close()
