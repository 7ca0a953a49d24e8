"""What a server checks before a trainer may join: both must run the same job and the same program."""

from __future__ import annotations

from typing import Any

from refluid.runtime.server.shard import Shard
from refluid.runtime.transport import wire


def check_join(request: Any, endpoint: str, mode: str, trainers: int, shard: Shard) -> None:
    """Compares a JoinRequest with the server's own configuration.

    Raises:
        ValueError: they differ; the message says in what.
    """
    trainer = request.caller.trainer
    for theirs, ours, text in (
        (request.protocol, wire.PROTOCOL, "speaks protocol version {}; this server speaks {}"),
        (request.endpoint, endpoint, "looks for server {}; this server is {}"),
        (request.mode, mode, "trains in mode {}; this server is configured for mode {}"),
        (request.trainers, trainers, "expects {} trainers; this server is configured for {}"),
    ):
        if theirs != ours:
            raise ValueError(f"trainer {trainer} {text.format(theirs, ours)}. Do both run the same script?")
    if not 0 <= trainer < trainers:
        raise ValueError(f"there is no trainer {trainer} in a job of {trainers} trainers, numbered from 0")
    for verb, tensors in (("pushes", request.pushes), ("pulls", request.pulls)):
        for tensor in tensors:
            _check_tensor(trainer, verb, tensor, shard)


def _check_tensor(trainer: int, verb: str, tensor: Any, shard: Shard) -> None:
    try:
        dtype, shape, sparse = shard.describe(tensor.name)
    except KeyError:
        raise ValueError(
            f"trainer {trainer} {verb} {tensor.name}, which this server does not have. Do both run the same program?"
        ) from None
    theirs, ours = f"{tensor.dtype}{list(tensor.dims)}", f"{dtype}{list(shape)}"
    if verb == "pushes":
        theirs, ours = theirs + " rows" * tensor.sparse, ours + " rows" * sparse
    if theirs != ours:
        raise ValueError(
            f"trainer {trainer} {verb} {tensor.name} as {theirs}; on this server it is {ours}. "
            "Do both run the same program?"
        )
