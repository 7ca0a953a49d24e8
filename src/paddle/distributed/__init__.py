"""Starting distributed jobs: ``python -m paddle.distributed.launch_ps`` and ``python -m paddle.distributed.launch``."""
