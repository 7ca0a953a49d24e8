"""Fleet: one face for distributed training, with parameter servers or by collectives."""

__version__ = "0.1.0"
