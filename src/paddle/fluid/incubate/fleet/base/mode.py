"""The kinds of Fleet."""

__all__ = ["Mode"]


class Mode:
    """How the processes of a job cooperate."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
