"""Names from Fluid's C++ core that scripts use: places, scopes, tensors, enumerations, errors."""

from __future__ import annotations

from paddle.fluid import inference as _inference
from paddle.fluid.inference import *  # noqa: F403
from paddle.fluid.recordio_writer import RecordIOWriter
from refluid.errors import EnforceNotMet, EOFException
from refluid.ir.graph import Graph
from refluid.ir.vartype import VarType
from refluid.ops.core.registry import is_known
from refluid.places import CPUPlace, CUDAPinnedPlace, CUDAPlace, cuda_device_count, is_compiled_with_cuda
from refluid.scope import Scope
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


class VarDesc:
    """Namespace of the variable types, as in ``core.VarDesc.VarType.FP32``."""

    VarType = VarType


get_cuda_device_count = cuda_device_count


def op_support_gpu(op_type: str) -> bool:
    """Returns True: every op runs on GPUs too."""
    return is_known(op_type)


def is_float16_supported(place: object) -> bool:
    """Returns whether half precision is fast on a place."""
    return isinstance(place, CUDAPlace)


def is_compiled_with_brpc() -> bool:
    """Returns False: refluid's servers use gRPC."""
    return False
