"""Light NAS as a part of compression."""

from __future__ import annotations

from typing import Any

__all__ = ["LightNASStrategy"]


class LightNASStrategy:
    """Not supported: it searches architectures with several machines."""

    def __init__(
        self,
        controller: Any = None,
        end_epoch: int = 1000,
        target_flops: int = 629145600,
        target_latency: float = 0,
        retrain_epoch: int = 1,
        metric_name: str = "top1_acc",
        server_ip: str | None = None,
        server_port: int = 0,
        is_server: bool = False,
        max_client_num: int = 100,
        search_steps: int | None = None,
        key: str = "light-nas",
    ):
        raise NotImplementedError(
            "LightNASStrategy is not supported; write the loop around slim.searcher.SAController: next_tokens, train "
            "and evaluate the network, update"
        )
