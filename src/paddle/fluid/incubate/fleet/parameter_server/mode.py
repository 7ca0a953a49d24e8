"""The modes of training with parameter servers."""

__all__ = ["DistributedMode", "PSMode"]


class PSMode:
    """Whose parameter servers: those of the transpiler, or pslib, which was never published."""

    TRANSPILER = 1
    PSLIB = 2


class DistributedMode:
    """When trainers exchange with servers, and what they wait for."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3
