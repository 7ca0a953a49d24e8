"""The decorators of the functions in this folder."""

from refluid.numba_functions import functions_in

kernel, part = functions_in(__file__)
