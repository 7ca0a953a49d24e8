"""Calibrator, which real Fluid has dropped for PostTrainingQuantization."""

from __future__ import annotations

from typing import Any

__all__ = ["Calibrator"]


class Calibrator:
    """Not supported: it writes models for Intel's library, with operators that only that library has."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError(
            "Calibrator is not supported: its models are for Intel's MKL-DNN; "
            "use fluid.contrib.slim.quantization.PostTrainingQuantization(algo='KL') on a saved model"
        )

    def sample_data(self) -> None:
        """Would sample activations."""

    def save_int8_model(self) -> None:
        """Would save the model."""
