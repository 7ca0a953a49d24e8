"""Which parameter servers this is built with."""

BUILD_MODE = 1


def is_transpiler() -> bool:
    """True: the parameter servers are those of the transpiler."""
    return True
