"""The predictors of Fluid 1.5 and 1.6, available in ``fluid.core``: configurations, tensors, predictors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from paddle.fluid.inference_config import AnalysisConfig, NativeConfig, PaddlePassBuilder
from refluid.errors import FeedError
from refluid.files.inference_models import load_inference, save_inference
from refluid.files.storage import at
from refluid.inference.models import InferenceModel, open_model
from refluid.inference.predictor import Predictor
from refluid.places import CPUPlace, CUDAPlace
from refluid.scope import Scope
from refluid.tensors import LoDTensor

__all__ = [
    "AnalysisConfig",
    "AnalysisPredictor",
    "NativeConfig",
    "NativePaddlePredictor",
    "PaddleBuf",
    "PaddleDType",
    "PaddlePassBuilder",
    "PaddlePlace",
    "PaddlePredictor",
    "PaddleTensor",
    "ZeroCopyTensor",
    "create_paddle_predictor",
    "paddle_dtype_size",
]


class PaddleDType(IntEnum):
    """The element types of predictor tensors."""

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2


class PaddlePlace(IntEnum):
    """The device of a predictor tensor."""

    UNK = -1
    CPU = 0
    GPU = 1


_DTYPES = {PaddleDType.FLOAT32: "float32", PaddleDType.INT64: "int64", PaddleDType.INT32: "int32"}


class PaddleBuf:
    """A flat buffer without a shape: a list of floats, an array, or a number of bytes to allocate."""

    def __init__(self, data: Any):
        self._data = np.zeros(0, "float32")
        self.reset(np.zeros(data, "uint8") if isinstance(data, int) else data)

    def reset(self, data: Any) -> None:
        """Replaces the elements."""
        array = np.asarray(data, None if isinstance(data, np.ndarray) else "float32")
        self._data = np.array(array.ravel())

    def resize(self, length: int) -> None:
        """Allocates a number of bytes."""
        self._data = np.zeros(length, "uint8")

    def empty(self) -> bool:
        return self._data.size == 0

    def length(self) -> int:
        """The number of bytes."""
        return self._data.nbytes

    def tolist(self, dtype: str) -> list[Any]:
        return self._data.view(dtype).tolist()

    def float_data(self) -> list[float]:
        return self.tolist("float32")

    def int64_data(self) -> list[int]:
        return self.tolist("int64")

    def int32_data(self) -> list[int]:
        return self.tolist("int32")


class PaddleTensor:
    """A named array passed to a predictor or returned by it."""

    def __init__(self, data: Any = None, name: str = "", lod: Sequence[Sequence[int]] = (), copy: bool = True):
        array = np.zeros([0], "float32") if data is None else np.asarray(data)
        self.name, self.lod, self.shape = name, [list(level) for level in lod], list(array.shape)
        self.dtype = _paddle_dtype(array)
        self.data = PaddleBuf(array)

    def as_ndarray(self) -> np.ndarray:
        """Returns the elements in their shape."""
        return self.data._data.view(_DTYPES[self.dtype]).reshape(self.shape)


def _paddle_dtype(array: np.ndarray) -> PaddleDType:
    for dtype, name in _DTYPES.items():
        if array.dtype == name:
            return dtype
    raise TypeError(f"a predictor tensor must be float32, int64 or int32, not {array.dtype}")


class ZeroCopyTensor:
    """A slot of a predictor: an input to fill before zero_copy_run, or an output to read after it."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None] | None, name: str):
        self._read, self._write, self.name = read, write, name

    def copy_from_cpu(self, array: np.ndarray) -> None:
        """Fills an input."""
        if self._write is None:
            raise RuntimeError(f"{self.name} is an output; only inputs can be filled")
        self._write(LoDTensor(np.array(array)))

    def copy_to_cpu(self) -> np.ndarray:
        """Returns the current array."""
        return np.array(self._tensor())

    def reshape(self, shape: Sequence[int]) -> None:
        """Does nothing: inputs take the shape of their array."""

    def shape(self) -> list[int]:
        return self._tensor().shape()

    def type(self) -> PaddleDType:
        return _paddle_dtype(np.asarray(self._tensor().value))

    def lod(self) -> list[list[int]]:
        return self._tensor().lod()

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Sets the sequence offsets of a filled input."""
        self._tensor().set_lod(lod)

    def _tensor(self) -> LoDTensor:
        value = self._read()
        if value is None:
            hint = "run the predictor first" if self._write is None else "fill it with copy_from_cpu"
            raise RuntimeError(f"{self.name} has no value yet; {hint}")
        return value if isinstance(value, LoDTensor) else LoDTensor(value)


class PaddlePredictor:
    """Runs an inference model: `run` on a list of tensors, or `zero_copy_run` on its input slots."""

    def __init__(self, predictor: Predictor, config: Any = None):
        self._predictor, self._config = predictor, config
        self._inputs: dict[str, LoDTensor] = {}
        self._outputs: dict[str, Any] = {}

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Returns the outputs for inputs given in order, or by name if the tensors have names."""
        feeds = self._predictor.feeds
        if len(inputs) != len(feeds):
            raise ValueError(f"the model has {len(feeds)} inputs ({', '.join(feeds)}), got {len(inputs)}")
        named = all(tensor.name in feeds for tensor in inputs)
        names = [tensor.name for tensor in inputs] if named else feeds
        feed = {name: LoDTensor(t.as_ndarray(), t.lod) for name, t in zip(names, inputs, strict=True)}
        results = self._predictor.run(feed)
        return [_output(name, value) for name, value in zip(self._predictor.fetches, results, strict=True)]

    def get_input_names(self) -> list[str]:
        return list(self._predictor.feeds)

    def get_output_names(self) -> list[str]:
        return list(self._predictor.fetches)

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """Returns the slot of an input."""
        if name not in self._predictor.feeds:
            raise FeedError(name, "the model has no such input", f"its inputs are {', '.join(self._predictor.feeds)}")
        return ZeroCopyTensor(lambda: self._inputs.get(name), lambda tensor: self._inputs.update({name: tensor}), name)

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """Returns the slot of an output."""
        if name not in self._predictor.fetches:
            raise ValueError(f"the model has no output {name}; its outputs are {', '.join(self._predictor.fetches)}")
        return ZeroCopyTensor(lambda: self._outputs.get(name), None, name)

    def zero_copy_run(self) -> bool:
        """Runs on the input slots and fills the output slots."""
        missing = [name for name in self._predictor.feeds if name not in self._inputs]
        if missing:
            raise FeedError(
                missing[0], "it has not been filled", f"get_input_tensor('{missing[0]}').copy_from_cpu(array)"
            )
        self._outputs = dict(zip(self._predictor.fetches, self._predictor.run(self._inputs), strict=True))
        return True

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """Returns the declared shapes of the inputs."""
        block = self._predictor.model.program.global_block()
        return {name: list(block.var(name).shape) for name in self._predictor.feeds}

    def get_serialized_program(self) -> bytes:
        """Returns the program as a ProgramDesc message."""
        return self._predictor.model.program.desc.serialize_to_string()

    def program(self) -> Any:
        """Returns the program."""
        return self._predictor.model.program

    def scope(self) -> Scope:
        """Returns the scope that holds the parameters."""
        return self._predictor.model.scope

    def clone(self) -> PaddlePredictor:
        """Returns another predictor with its own slots that shares parameters and compiled code."""
        return type(self)(self._predictor, self._config)


class AnalysisPredictor(PaddlePredictor):
    """The predictor of an AnalysisConfig."""

    def SaveOptimModel(self, dir: str) -> None:
        """Saves the model as ``model`` and ``params`` in a directory."""
        model = self._predictor.model
        save_inference(model.scope, model.program, dir, "model", "params", parameters=True)


class NativePaddlePredictor(PaddlePredictor):
    """The predictor of a NativeConfig."""


def paddle_dtype_size(dtype: PaddleDType) -> int:
    """Returns the size of an element in bytes."""
    return np.dtype(_DTYPES[dtype]).itemsize


def create_paddle_predictor(config: AnalysisConfig | NativeConfig) -> PaddlePredictor:
    """Creates a predictor for the model in ``config``."""
    if isinstance(config, NativeConfig):
        device = config.device if config.use_gpu else None
        model = _open(config.model_dir, config.prog_file, config.param_file, None)
        kind: type[PaddlePredictor] = NativePaddlePredictor
    elif isinstance(config, AnalysisConfig):
        device = config.gpu_device_id() if config.use_gpu() else None
        model = _open(config.model_dir(), config.prog_file(), config.params_file(), config._buffers)
        kind = AnalysisPredictor
    else:
        raise TypeError(
            f"create_paddle_predictor expects an AnalysisConfig or a NativeConfig, not {type(config).__name__}"
        )
    return kind(Predictor(model, CPUPlace() if device is None else CUDAPlace(device)), config)


def _open(folder: str, program_file: str, params_file: str, buffers: tuple[bytes, bytes] | None) -> InferenceModel:
    if buffers is None and not (program_file and params_file):
        if not folder:
            raise ValueError("the configuration has no model: set a directory, or a program file and a parameters file")
        return open_model(folder)
    if buffers is None:
        program, params = at(program_file), at(params_file)
        if str(program.parent) == str(params.parent):
            return open_model(program.parent, program.name, params.name)
        buffers = program.read_bytes(), params.read_bytes()
    scope = Scope()
    program, feeds, fetches = load_inference(scope, None, *buffers)
    return InferenceModel(program, feeds, [variable.name for variable in fetches], scope)


def _output(name: str, value: Any) -> PaddleTensor:
    if isinstance(value, LoDTensor):
        return PaddleTensor(np.array(value), name, value.lod())
    return PaddleTensor(value, name)
