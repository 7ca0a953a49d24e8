"""Names from Fluid's C++ core that scripts use: places, scopes, tensors, enumerations, errors."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

from paddle.fluid import inference as _inference
from paddle.fluid.inference import *  # noqa: F403
from paddle.fluid.recordio_writer import RecordIOWriter
from refluid import profiling
from refluid.errors import EnforceNotMet, EOFException
from refluid.flags import read_flag, write_flag
from refluid.ir.graph import Graph
from refluid.ir.vartype import VarType, as_numpy
from refluid.ops.core.registry import EMPTY, GRAD_SUFFIX, gradient_of, is_known, lookup
from refluid.places import CPUPlace, CUDAPinnedPlace, CUDAPlace, cuda_device_count, is_compiled_with_cuda
from refluid.scope import Scope, ScopeVariable
from refluid.tensors import LoDTensor, LoDTensorArray
from refluid.tensors import SelectedRowsTensor as SelectedRows

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "Graph",
    "LoDTensor",
    "LoDTensorArray",
    "RecordIOWriter",
    "Scope",
    "SelectedRows",
    "VarDesc",
    "get_cuda_device_count",
    "is_compiled_with_brpc",
    "is_compiled_with_cuda",
    "is_float16_supported",
    "op_support_gpu",
]
__all__ += _inference.__all__

_Scope = Scope
Variable = ScopeVariable
Tensor = LoDTensor


class _Flags:
    """All flags, as `globals` gives them: read and set by name, like a dict."""

    def __getitem__(self, name: str) -> Any:
        return read_flag(name)

    def __setitem__(self, name: str, value: Any) -> None:
        write_flag(name, value)


def globals() -> _Flags:
    """Returns the FLAGS_* of this process."""
    return _Flags()


class VarDesc:
    """Namespace of the variable types, as in ``core.VarDesc.VarType.FP32``."""

    VarType = VarType


get_cuda_device_count = cuda_device_count


def is_compiled_with_dist() -> bool:
    """Returns True: parameter servers and collectives are always there."""
    return True


def is_compiled_with_mkldnn() -> bool:
    """Returns False: XLA computes."""
    return False


def is_profiler_enabled() -> bool:
    """Returns whether `fluid.profiler` is recording."""
    return profiling.recorder is not None


def _set_eager_deletion_mode(threshold: float, fraction: float, use_gpu: bool) -> None:
    """Does nothing: XLA frees memory within a step as soon as it can."""


def set_num_threads(num: int) -> None:
    """Does nothing: XLA uses the cores that the process may use."""


def grad_var_suffix() -> str:
    """Returns what the name of a gradient ends with."""
    return GRAD_SUFFIX


def empty_var_name() -> str:
    """Returns the name of a variable that is not needed."""
    return EMPTY


kGradVarSuffix, kEmptyVarName = grad_var_suffix, empty_var_name


def kTempVarName() -> str:
    """Returns the name of a temporary."""
    return "@TEMP@"


def size_of_dtype(dtype: VarType) -> int:
    """Returns how many bytes an element takes."""
    return as_numpy(dtype).itemsize


def has_grad_op_maker(op_type: str) -> bool:
    """Returns whether gradients flow through an op."""
    return gradient_of(lookup(op_type)) is not None


def get_op_attrs_default_value(op_type: str | bytes) -> dict[str, Any]:
    """Returns the attributes of an op that have a default, with it."""
    attrs = lookup(op_type.decode() if isinstance(op_type, bytes) else op_type).attrs
    return {name: list(v) if isinstance(v, tuple) else v for name, v in attrs.items() if v is not Parameter.empty}


def op_support_gpu(op_type: str) -> bool:
    """Returns True: every op runs on GPUs too."""
    return is_known(op_type)


def is_float16_supported(place: object) -> bool:
    """Returns whether half precision is fast on a place."""
    return isinstance(place, CUDAPlace)


def is_compiled_with_brpc() -> bool:
    """Returns False: refluid's servers use gRPC."""
    return False
