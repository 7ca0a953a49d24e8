"""What tables do to many rows at once, compiled by numba and without the interpreter lock."""
