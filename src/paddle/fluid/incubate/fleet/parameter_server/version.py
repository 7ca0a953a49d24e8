"""The parameter server implementation in use."""

BUILD_MODE = 1


def is_transpiler() -> bool:
    """Returns True: the parameter servers are the transpiler's."""
    return True
