"""Tables that grow: rows of any 64-bit ids, which live on servers and begin when they are used first.

These facts are shared by the programs that describe such tables and by the memory that holds them.
"""

from __future__ import annotations

SHARDS = 256  # what servers share a table out by, whatever their number; a power of two
NO_ROW = 2**63 - 1  # the one id that no row can have: it stands for padding

# The initialisers whose numbers can be computed row by row: their attributes, and the order in which kernels know them.
ROW_INITIALIZERS = {
    "fill_constant": ("value", ""),
    "uniform_random": ("min", "max"),
    "gaussian_random": ("mean", "std"),
    "truncated_gaussian_random": ("mean", "std"),
}
