"""The dropout layer."""

from __future__ import annotations

from paddle.fluid.layers._topics.core.append import append_single_op, require_floating, without_gradient
from refluid.ir import Variable, VarType

__all__ = ["dropout"]


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Sets elements to zero with probability ``dropout_prob`` during training.

    Args:
      is_test: keep all elements; ``Program.clone(for_test=True)`` sets this.
      seed: drop the same elements in every step; by default every step derives its own from the program's seed.
      dropout_implementation: "downgrade_in_infer" multiplies by 1 - dropout_prob at inference; "upscale_in_train"
        divides by it during training.
    """
    require_floating("dropout", x=x)
    attrs = {
        "dropout_prob": dropout_prob,
        "is_test": is_test,
        "fix_seed": seed is not None,
        "seed": seed or 0,
        "dropout_implementation": dropout_implementation,
    }
    made = append_single_op("dropout", {"X": x}, {"Out": x.dtype, "Mask": VarType.UINT8}, attrs, name)
    without_gradient(made["Mask"])
    return made["Out"]
