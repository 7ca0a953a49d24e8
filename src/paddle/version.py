"""The version of Fluid whose names and behaviour are implemented; scripts compare it."""

full_version = "1.6.3"
major, minor, patch = full_version.split(".")
rc = "0"
istaged = True
commit = "refluid"
with_mkl = "OFF"


def show():
    """Prints the version."""
    print(f"full_version: {full_version}\nmajor: {major}\nminor: {minor}\npatch: {patch}\nrc: {rc}")


def mkl():
    """Returns OFF: XLA computes, not MKL."""
    return with_mkl
