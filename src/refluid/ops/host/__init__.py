"""Ops that run on the host or only exist between processes."""
