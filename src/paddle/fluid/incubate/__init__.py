"""What Fluid keeps here until it is settled: Fleet, the face of distributed training."""

__version__ = "0.1.0"
