"""Configurations of predictors. What chose an engine or a kernel in Fluid is kept and reported, and changes nothing:
XLA compiles the whole model."""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Any


class NativeConfig:
    """The plain configuration: fields to be set."""

    def __init__(self):
        self.model_dir = self.prog_file = self.param_file = ""
        self.use_gpu, self.device, self.fraction_of_gpu_memory = False, 0, -1.0
        self.specify_input_name = False
        self._threads = 1

    def set_cpu_math_library_num_threads(self, threads: int) -> None:
        """Kept; XLA uses the cores there are."""
        self._threads = threads

    def cpu_math_library_num_threads(self) -> int:
        return self._threads


class Precision(IntEnum):
    """The precision asked of an engine."""

    Float32 = 0
    Int8 = 1
    Half = 2


class AnalysisConfig:
    """Which model a predictor runs, and where.

    Args:
      model_dir: a folder with one file per parameter, or with another argument the program's file.
      params_file: the file of combined parameters.
    """

    Precision = Precision

    def __init__(self, model_dir: str = "", params_file: str | None = None):
        self._model_dir = self._prog_file = self._params_file = ""
        self._buffers: tuple[bytes, bytes] | None = None
        self._use_gpu, self._device, self._memory = False, 0, 100
        self._set = {"ir_optim": True, "use_feed_fetch_ops": True, "specify_input_name": False, "glog_info": True}
        self._threads = 1
        if model_dir:
            self.set_model(model_dir, params_file)

    def set_model(self, model_dir: str, params_file: str | None = None) -> None:
        """Names a folder, or a program's file and a parameters' file."""
        if params_file is None:
            self._model_dir = os.fspath(model_dir)
        else:
            self._prog_file, self._params_file = os.fspath(model_dir), os.fspath(params_file)

    def set_model_buffer(self, prog: bytes, prog_size: int, params: bytes, params_size: int) -> None:
        """Takes the contents of the files instead of their names."""
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
        """Runs on a GPU."""
        self._use_gpu, self._memory, self._device = True, memory_pool_init_size_mb, device_id

    def disable_gpu(self) -> None:
        """Runs on the CPU."""
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
        """There are no passes to be shown."""

    def switch_use_feed_fetch_ops(self, x: Any = True) -> None:
        """Both ways to run a predictor work, whatever this says."""
        self._set["use_feed_fetch_ops"] = bool(x)

    def use_feed_fetch_ops_enabled(self) -> bool:
        return self._set["use_feed_fetch_ops"]

    def switch_specify_input_names(self, x: Any = True) -> None:
        """Inputs that have names go by their names, whatever this says."""
        self._set["specify_input_name"] = bool(x)

    def specify_input_name(self) -> bool:
        return self._set["specify_input_name"]

    def disable_glog_info(self) -> None:
        self._set["glog_info"] = False

    def glog_info_disabled(self) -> bool:
        return not self._set["glog_info"]

    def set_cpu_math_library_num_threads(self, threads: int) -> None:
        """Kept; XLA uses the cores there are."""
        self._threads = threads

    def cpu_math_library_num_threads(self) -> int:
        return self._threads

    def to_native_config(self) -> NativeConfig:
        """The same model and place in a plain configuration."""
        config = NativeConfig()
        config.model_dir, config.prog_file, config.param_file = self._model_dir, self._prog_file, self._params_file
        config.use_gpu, config.device = self._use_gpu, self._device
        return config

    def tensorrt_engine_enabled(self) -> bool:
        return False

    def lite_engine_enabled(self) -> bool:
        return False

    def mkldnn_enabled(self) -> bool:
        return False

    def _ignored(self, *args: Any, **kwargs: Any) -> None:
        """Accepted: XLA makes its own kernels and plans its own memory."""

    delete_pass = enable_lite_engine = enable_memory_optim = enable_mkldnn = enable_profile = _ignored
    enable_tensorrt_engine = set_mkldnn_cache_capacity = set_mkldnn_op = set_optim_cache_dir = _ignored
    set_trt_dynamic_shape_info = _ignored


for _precision in Precision:  # reachable as AnalysisConfig.Float32 too
    setattr(AnalysisConfig, _precision.name, _precision)
