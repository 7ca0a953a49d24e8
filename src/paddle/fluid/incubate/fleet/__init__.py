"""Fleet: one API for distributed training with parameter servers or collectives."""

__version__ = "0.1.0"
