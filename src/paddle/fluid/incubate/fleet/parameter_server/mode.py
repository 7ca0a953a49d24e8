"""Modes of parameter server training."""

__all__ = ["DistributedMode", "PSMode"]


class PSMode:
    """The parameter server implementation: the transpiler's, or pslib, which was never published."""

    TRANSPILER = 1
    PSLIB = 2


class DistributedMode:
    """When trainers exchange data with servers, and what they wait for."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3
