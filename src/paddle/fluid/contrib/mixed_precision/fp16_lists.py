"""Which ops compute in 16 bits."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["AutoMixedPrecisionLists"]

white_list = {"conv2d", "matmul", "mul"}
black_list = set(
    "cos_sim cross_entropy cross_entropy2 exp log mean sigmoid_cross_entropy_with_logits softmax "
    "softmax_with_cross_entropy square sum".split()
)
gray_list = set(
    "batch_norm cast dropout elementwise_add elementwise_div elementwise_floordiv elementwise_max elementwise_min "
    "elementwise_mod elementwise_mul elementwise_pow elementwise_sub fill_constant flatten2 gather gaussian_random "
    "gaussian_random_batch_size_like get_tensor_from_selected_rows leaky_relu lookup_table pool2d pool3d rank relu "
    "relu6 reshape2 scale sigmoid sign slice soft_relu stack tanh top_k transpose2 uniform_random_batch_size_like "
    "unstack".split()
)


class AutoMixedPrecisionLists:
    """Which op types compute in 16 bits (white), in 32 bits (black), or follow their inputs (gray).

    Args:
      custom_white_list: types to move to the white list.
      custom_black_list: types to move to the black list.
      custom_black_varnames: names of variables whose ops compute in 32 bits.
    """

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        custom_black_varnames: Iterable[str] | None = None,
    ):
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        both = sorted(white & black)
        if both:
            raise ValueError(f"{', '.join(both)} cannot be in both custom_white_list and custom_black_list")
        self.white_list = (white_list | white) - black
        self.black_list = (black_list | black) - white
        self.gray_list = gray_list - white - black
        self.black_varnames = set(custom_black_varnames or ())
