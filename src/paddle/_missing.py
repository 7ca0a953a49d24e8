"""Names that Fluid 1.5 to 1.8 have and refluid does not: whether they are planned, and what to use instead.

A module of `paddle` says ``__getattr__ = missing_names(__name__)``. Whoever asks it for one of these names, with a dot
or with ``from ... import``, is told. `tests/api/test_missing.py` compares the list with the names of real Fluid.
"""

from __future__ import annotations

import difflib
import dis
import sys
from collections.abc import Callable
from typing import Any, NoReturn

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]

_DYNAMIC = "dynamic graphs come later; write the model with fluid.layers, or in JAX with refluid.jax_layer"
_ALPHA = "not planned, as it is an early form of Paddle 2"

_COLLATE = "planned; use fluid.io.DataLoader.from_generator with a reader"
_PLACES = "planned; without it, all operators run at the place of the executor"
_CPP = "not planned, as operators are JAX functions here; use refluid.jax_layer or fluid.layers.py_func"
_VERSION_1 = "not planned, as it belongs to the Paddle before Fluid"
_MKLDNN = "not planned, as it prepares models for Intel's library; use fluid.contrib.slim.quantization passes"

# Module -> names -> whether they are planned, and what to use instead.
MISSING: dict[str, dict[str, str]] = {
    "paddle": {
        "complex incubate": f"{_ALPHA}; use JAX with refluid.jax_layer",
        "device distribution regularizer": f"{_ALPHA}; use fluid.core, layers.distributions and fluid.regularizer",
        "check_import_scipy common_ops_import": "not planned, as only Fluid itself imports it",
    },
    "paddle.distributed": {"cloud_utils utils": "not planned, as only Fluid's launcher uses it; use refluid launch"},
    "paddle.utils": {
        "dump_config image_util plotcurve preprocess_img preprocess_util profiler show_pb torch2paddle": _VERSION_1,
    },
    "paddle.fluid": {
        "dygraph dygraph_grad_clip dygraph_utils enable_dygraph enable_imperative VarBase "
        "load_dygraph save_dygraph Layer "
        "BatchNorm BilinearTensorProduct Conv2D Conv2DTranspose Conv3D Conv3DTranspose Dropout Embedding FC GRUUnit "
        "GroupNorm InstanceNorm LayerNorm Linear NCE PRelu Pool2D SpectralNorm TreeConv": _DYNAMIC,
        "ComplexVariable": f"{_ALPHA}; use JAX with refluid.jax_layer",
        "device_guard": _PLACES,
        "load_op_library": _CPP,
        "DistMultiTrainer MultiTrainer PipelineTrainer TrainerDesc device_worker trainer_desc trainer_factory": (
            "not planned, as they only configure Fluid's C++ trainers; exe.train_from_dataset needs none"
        ),
        "dataloader multiprocess_utils": _COLLATE,
        "distributed": "not planned, as it drives PSLib; use fluid.DistributeTranspiler or fleet",
        "graphviz": "not planned; use fluid.debugger.draw_block_graphviz or fluid.net_drawer",
    },
    "paddle.fluid.framework": {
        "ComplexVariable": f"{_ALPHA}; use JAX with refluid.jax_layer",
        "device_guard": _PLACES,
        "load_op_library": _CPP,
    },
    "paddle.fluid.io": {"default_collate_fn": _COLLATE},
    "paddle.fluid.reader": {"default_collate_fn": _COLLATE},
    "paddle.fluid.incubate.fleet.utils": {"http_server": "not planned; trainers find each other by their endpoints"},
    "paddle.fluid.incubate.fleet.utils.utils": {
        "check_saved_vars_try_dump": "planned; use check_pruned_program_vars, or refluid check for a saved model",
    },
    "paddle.fluid.contrib.mixed_precision": {
        "fp16_utils": "not planned; fluid.contrib.mixed_precision.decorate rewrites programs",
    },
    "paddle.fluid.contrib.slim.nas": {
        "ControllerServer SearchAgent controller_server lock search_agent": (
            "not planned, as a search runs in one process here; use fluid.contrib.slim.searcher.SAController"
        ),
    },
    "paddle.fluid.contrib.slim.quantization": {
        "MKLDNNPostTrainingQuantStrategy Qat2Int8MkldnnPass QatInt8MkldnnPass mkldnn_post_training_strategy "
        "qat2_int8_mkldnn_pass qat_int8_mkldnn_pass": _MKLDNN,
    },
    "paddle.fluid.layers": {
        "addcmul": "planned; use layers.elementwise_add and layers.elementwise_mul",
        "arange": "planned; use layers.range",
        "clamp": "planned; use layers.clip",
        "elementwise_equal": "planned; use layers.equal",
        "flip": "planned; use layers.reverse",
        "full": "planned; use layers.fill_constant",
        "full_like": "planned; use layers.zeros_like and layers.scale",
        "index_sample": "planned; use layers.gather_nd",
        "index_select": "planned; use layers.gather",
        "interpolate": "planned; use layers.image_resize",
        "log_softmax": "planned; use layers.log and layers.softmax",
        "logsumexp": "planned; use layers.log, layers.reduce_sum and layers.exp",
        "meshgrid": "planned; use layers.expand",
        "nonzero": "planned; use layers.where",
        "randint": "planned; use layers.uniform_random and layers.cast",
        "randn": "planned; use layers.gaussian_random",
        "randperm": "planned; use layers.argsort of layers.uniform_random",
        "roll": "planned; use layers.concat and layers.slice",
        "t": "planned; use layers.transpose",
        "BasicDecoder DecodeHelper GreedyEmbeddingHelper SampleEmbeddingHelper TrainingHelper": (
            "planned; use layers.rnn to train, and layers.BeamSearchDecoder with layers.dynamic_decode to decode"
        ),
    },
}


def find(module: str, name: str) -> str | None:
    """What a script that asks ``module`` for ``name`` should know, or None if Fluid does not have it either."""
    for names, advice in MISSING.get(module, {}).items():
        if name in names.split():
            return advice
    return None


def missing_names(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module that lacks some of Fluid's names."""

    def __getattr__(name: str) -> NoReturn:
        raise_missing(module, name, sys._getframe(1))

    return __getattr__


def raise_missing(module: str, name: str, frame: Any) -> NoReturn:
    """Raises AttributeError, or ImportError for an import in ``frame``, whose own message Python would replace."""
    advice = find(module, name)
    if advice is None:
        close = difflib.get_close_matches(name, vars(sys.modules[module]).get("__all__", ()), n=1, cutoff=0.85)
        text = f"module {module!r} has no attribute {name!r}" + (f"; did you mean {close[0]}?" if close else "")
    else:
        text = f"{module}.{name} is in Fluid, but not in refluid: {advice}"
        if frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM:
            raise ImportError(text, name=module)
    # With an obj, Python would suggest the module's nearest name, however far it is.
    raise AttributeError(text, name=name, obj=None)
