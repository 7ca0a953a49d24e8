"""refluid: Fluid programs on XLA.

The compiler behind ``paddle.fluid``, usable without it: `refluid.to_jax` turns a program into a pure JAX function,
`refluid.load` a saved model into a predictor, `refluid.export` into StableHLO; `refluid.shard_parameters` lets the
devices of a data-parallel program share out its parameters; `refluid.table_options` says how tables live on
servers, `refluid.shrink_tables` gives up rows of theirs, and `refluid.save_delta` saves what has changed in them;
`refluid.applied_steps` tells a trainer that was started again where it is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refluid.bridges.flax_layer import flax_layer
    from refluid.bridges.jax_layer import jax_layer
    from refluid.bridges.optax_optimizer import OptaxOptimizer
    from refluid.bridges.to_flax import to_flax
    from refluid.embedding_tables import table_options
    from refluid.inference.predictor import load
    from refluid.inference.stablehlo import export
    from refluid.jax_function import to_jax
    from refluid.pytrees import from_pytree, to_pytree
    from refluid.runtime.trainer.session import applied_steps
    from refluid.runtime.trainer.shrinking import shrink_tables
    from refluid.runtime.trainer.table_saving import save_delta
    from refluid.sharding import shard_parameters

__version__ = "0.1.0"
__all__ = [
    "OptaxOptimizer",
    "applied_steps",
    "export",
    "flax_layer",
    "from_pytree",
    "jax_layer",
    "load",
    "save_delta",
    "shard_parameters",
    "shrink_tables",
    "table_options",
    "to_flax",
    "to_jax",
    "to_pytree",
]

# Imported when asked for: JAX takes its time, and a program may only want the version.
_HOMES = {
    "OptaxOptimizer": "refluid.bridges.optax_optimizer",
    "applied_steps": "refluid.runtime.trainer.session",
    "export": "refluid.inference.stablehlo",
    "flax_layer": "refluid.bridges.flax_layer",
    "from_pytree": "refluid.pytrees",
    "jax_layer": "refluid.bridges.jax_layer",
    "load": "refluid.inference.predictor",
    "save_delta": "refluid.runtime.trainer.table_saving",
    "shard_parameters": "refluid.sharding",
    "shrink_tables": "refluid.runtime.trainer.shrinking",
    "table_options": "refluid.embedding_tables",
    "to_flax": "refluid.bridges.to_flax",
    "to_jax": "refluid.jax_function",
    "to_pytree": "refluid.pytrees",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'refluid' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
