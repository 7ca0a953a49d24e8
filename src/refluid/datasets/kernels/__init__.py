"""The loops over bytes, compiled by numba: importing one of these modules loads numba and is slow."""

NEGLIGIBLE = 1e-6  # real Fluid drops smaller floats from sequences in memory
