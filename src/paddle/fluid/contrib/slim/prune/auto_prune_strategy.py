"""Pruning by search, which needs architecture search."""

from __future__ import annotations

from typing import Any

__all__ = ["AutoPruneStrategy"]


class AutoPruneStrategy:
    """Not supported: it trains many pruned models under a search controller."""

    def __init__(
        self,
        pruner: Any = None,
        controller: Any = None,
        start_epoch: int = 0,
        end_epoch: int = 10,
        min_ratio: float = 0.5,
        max_ratio: float = 0.7,
        metric_name: str = "top1_acc",
        pruned_params: str = "conv.*_weights",
        retrain_epoch: int = 0,
        uniform_range: float | None = None,
        init_tokens: Any = None,
    ):
        raise NotImplementedError(
            "AutoPruneStrategy is not supported; SensitivePruneStrategy prunes by measured sensitivities, and "
            "slim.searcher.SAController can drive a search of your own"
        )
