"""The loops over bytes, compiled by numba: importing one of these modules loads numba and is slow."""
