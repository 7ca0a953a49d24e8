"""Starting distributed jobs: ``python -m paddle.distributed.launch_ps`` and ``python -m paddle.distributed.launch``."""

from paddle._missing import missing_names

__getattr__ = missing_names(__name__)
