"""Unique names, under Fluid's module path."""

from refluid.ir.unique_name import UniqueNameGenerator, generate, guard, switch

__all__ = ["UniqueNameGenerator", "generate", "guard", "switch"]
