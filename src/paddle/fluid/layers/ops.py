"""Fluid's module path of layers that apply one function to each element.

Here layers are sorted by topic; every one of them is found through this path too.
"""

from typing import Any

from paddle.fluid.layers._topics.building.single_op import find_layer

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    return find_layer(name)
