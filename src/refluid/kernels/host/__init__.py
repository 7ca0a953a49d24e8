"""Loops that ops call on the host, between compiled pieces: how much they find is not bounded, or not known before."""
