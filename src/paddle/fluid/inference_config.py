"""Predictor configurations. Engine and kernel options are stored and reported but have no effect, because XLA
compiles the whole model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum
from typing import Any


class NativeConfig:
    """The plain configuration: a set of fields."""

    def __init__(self):
        self.model_dir = self.prog_file = self.param_file = ""
        self.use_gpu, self.device, self.fraction_of_gpu_memory = False, 0, -1.0
        self.specify_input_name = False
        self._threads = 1

    def set_cpu_math_library_num_threads(self, threads: int) -> None:
        """Stored only; XLA uses all available cores."""
        self._threads = threads

    def cpu_math_library_num_threads(self) -> int:
        return self._threads


class Precision(IntEnum):
    """The precision requested of an engine."""

    Float32 = 0
    Int8 = 1
    Half = 2


class PaddlePassBuilder:
    """An editable list of pass names; XLA has its own passes."""

    def __init__(self, passes: Sequence[str] = ()):
        self._passes, self._analysis = list(passes), []

    def append_pass(self, pass_type: str) -> None:
        self._passes.append(pass_type)

    def insert_pass(self, idx: int, pass_type: str) -> None:
        self._passes.insert(idx, pass_type)

    def delete_pass(self, pass_type: int | str) -> None:
        """Removes a pass by name or index."""
        if isinstance(pass_type, int):
            del self._passes[pass_type]
        else:
            self._passes = [name for name in self._passes if name != pass_type]

    def set_passes(self, passes: Sequence[str]) -> None:
        self._passes = list(passes)

    def all_passes(self) -> list[str]:
        return list(self._passes)

    def append_analysis_pass(self, pass_type: str) -> None:
        self._analysis.append(pass_type)

    def analysis_passes(self) -> list[str]:
        return list(self._analysis)

    def debug_string(self) -> str:
        return "\n".join(["Passes to apply:", *(f"  - {name}" for name in self._passes)])

    def turn_on_debug(self) -> None:
        """Does nothing: there are no passes to debug."""


class AnalysisConfig:
    """Selects the model and the device of a predictor.

    Args:
      model_dir: a directory with one file per parameter or, together with ``params_file``, the program file.
      params_file: the file with the combined parameters.
    """

    Precision = Precision

    def __init__(self, model_dir: str = "", params_file: str | None = None):
        self._model_dir = self._prog_file = self._params_file = ""
        self._buffers: tuple[bytes, bytes] | None = None
        self._use_gpu, self._device, self._memory = False, 0, 100
        self._set = {"ir_optim": True, "use_feed_fetch_ops": True, "specify_input_name": False, "glog_info": True}
        self._threads = 1
        self._passes = PaddlePassBuilder()
        if model_dir:
            self.set_model(model_dir, params_file)

    def set_model(self, model_dir: str, params_file: str | None = None) -> None:
        """Sets a directory, or a program file and a parameters file."""
        if params_file is None:
            self._model_dir = os.fspath(model_dir)
        else:
            self._prog_file, self._params_file = os.fspath(model_dir), os.fspath(params_file)

    def set_model_buffer(self, prog: bytes, prog_size: int, params: bytes, params_size: int) -> None:
        """Sets the contents of the model files directly."""
        self._buffers = bytes(prog[:prog_size]), bytes(params[:params_size])

    def set_prog_file(self, path: str) -> None:
        self._prog_file = path

    def set_params_file(self, path: str) -> None:
        self._params_file = path

    def model_dir(self) -> str:
        return self._model_dir

    def prog_file(self) -> str:
        return self._prog_file

    def params_file(self) -> str:
        return self._params_file

    def model_from_memory(self) -> bool:
        return self._buffers is not None

    def enable_use_gpu(self, memory_pool_init_size_mb: int, device_id: int = 0) -> None:
        """Selects a GPU."""
        self._use_gpu, self._memory, self._device = True, memory_pool_init_size_mb, device_id

    def disable_gpu(self) -> None:
        """Selects the CPU."""
        self._use_gpu = False

    def use_gpu(self) -> bool:
        return self._use_gpu

    def gpu_device_id(self) -> int:
        return self._device

    def memory_pool_init_size_mb(self) -> int:
        return self._memory

    def fraction_of_gpu_memory_for_pool(self) -> float:
        return 0.0

    def switch_ir_optim(self, x: Any = True) -> None:
        self._set["ir_optim"] = bool(x)

    def ir_optim(self) -> bool:
        return self._set["ir_optim"]

    def switch_ir_debug(self, x: Any = True) -> None:
        """Does nothing: there are no passes to debug."""

    def switch_use_feed_fetch_ops(self, x: Any = True) -> None:
        """Does nothing: both ways to run a predictor always work."""
        self._set["use_feed_fetch_ops"] = bool(x)

    def use_feed_fetch_ops_enabled(self) -> bool:
        return self._set["use_feed_fetch_ops"]

    def switch_specify_input_names(self, x: Any = True) -> None:
        """Does nothing: named inputs are always matched by name."""
        self._set["specify_input_name"] = bool(x)

    def specify_input_name(self) -> bool:
        return self._set["specify_input_name"]

    def disable_glog_info(self) -> None:
        self._set["glog_info"] = False

    def glog_info_disabled(self) -> bool:
        return not self._set["glog_info"]

    def set_cpu_math_library_num_threads(self, threads: int) -> None:
        """Stored only; XLA uses all available cores."""
        self._threads = threads

    def cpu_math_library_num_threads(self) -> int:
        return self._threads

    def to_native_config(self) -> NativeConfig:
        """Returns a plain configuration with the same model and device."""
        config = NativeConfig()
        config.model_dir, config.prog_file, config.param_file = self._model_dir, self._prog_file, self._params_file
        config.use_gpu, config.device = self._use_gpu, self._device
        return config

    def pass_builder(self) -> PaddlePassBuilder:
        """Returns the list of requested passes."""
        return self._passes

    def delete_pass(self, pass_name: str) -> None:
        self._passes.delete_pass(pass_name)

    def enable_quantizer(self) -> None:
        """Raises an error, because quantization would change the results."""
        raise NotImplementedError("enable_quantizer: int8 is not supported; predictors compute in the model's dtypes")

    def tensorrt_engine_enabled(self) -> bool:
        return False

    def lite_engine_enabled(self) -> bool:
        return False

    def mkldnn_enabled(self) -> bool:
        return False

    def _ignored(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: XLA generates its own kernels and plans its own memory."""

    enable_lite_engine = enable_memory_optim = enable_mkldnn = enable_profile = _ignored
    enable_tensorrt_engine = set_mkldnn_cache_capacity = set_mkldnn_op = set_optim_cache_dir = _ignored
    set_trt_dynamic_shape_info = _ignored


for _precision in Precision:  # also available as AnalysisConfig.Float32
    setattr(AnalysisConfig, _precision.name, _precision)
