"""Conversion of samples to feeds for Executor.run, and type checks for layer arguments."""

import itertools
import os

import numpy as np

from refluid.ir.variable import Variable
from refluid.ir.vartype import VarType, as_numpy
from refluid.places import CUDAPlace, cuda_device_count
from refluid.readers.batching import Slot
from refluid.readers.sources import Batches
from refluid.tensors import LoDTensor

__all__ = ["DataFeeder"]

_DTYPES = ("bool", "float16", "uint16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


class DataFeeder:
    """Converts batches of samples to feeds.

    Args:
      feed_list: the variables to feed or their names, in the order of a sample's fields.
      place: where training runs; for a GPU place, feed_parallel counts GPUs.
      program: where names are looked up; defaults to the default main program.
    """

    def __init__(self, feed_list, place, program=None):
        if program is None:
            from refluid.ir.program import default_main_program

            program = default_main_program()
        self.place = place
        slots = [slot_of(variable, program) for variable in feed_list]
        self._batches = Batches(tuple(slots))
        self.feed_names = [slot.name for slot in slots]
        self.feed_shapes = [slot.shape for slot in slots]
        self.feed_dtypes = [slot.dtype.name for slot in slots]
        self.feed_lod_level = [slot.lod_level for slot in slots]

    def feed(self, iterable):
        """Returns the feed of one batch: variable name -> tensor.

        Args:
          iterable: samples, each with one field per variable.
        """
        return dict(zip(self.feed_names, map(as_tensor, self._batches.of_list(iterable)), strict=True))

    def feed_parallel(self, iterable, num_places=None):
        """Returns the feeds of several batches, one per device.

        Args:
          iterable: as many batches as devices.
          num_places: the number of devices; defaults to all GPUs, or to CPU_NUM.
        """
        batches, count = list(iterable), self._number_of_places(num_places)
        if len(batches) != count:
            raise ValueError(
                f"feed_parallel expects one batch per device: got {len(batches)} batches for {count} devices"
            )
        for batch in batches:
            yield self.feed(batch)

    def decorate_reader(self, reader, multi_devices, num_places=None, drop_last=True):
        """Returns a reader of feeds or, with ``multi_devices``, of lists with one feed per device.

        Args:
          drop_last: drop the last batches if there are fewer than devices; otherwise they are an error.
        """

        def single():
            return map(self.feed, reader())

        def parallel():
            count, batches = self._number_of_places(num_places), iter(reader())
            while group := list(itertools.islice(batches, count)):
                if len(group) == count:
                    yield list(self.feed_parallel(group, count))
                elif not drop_last:
                    raise ValueError(
                        f"{len(group)} batches are left over for {count} devices; pass drop_last=True to drop them"
                    )

        return parallel if multi_devices else single

    def _number_of_places(self, num_places):
        if num_places is not None:
            return int(num_places)
        if isinstance(self.place, CUDAPlace):
            return cuda_device_count()
        return int(os.environ.get("CPU_NUM", "1"))


def slot_of(variable, program):
    """What a fed variable, or the variable of that name in a program, expects."""
    if isinstance(variable, str):
        variable = program.block(0).var(variable)
    if not isinstance(variable, Variable):
        raise TypeError(f"feed_list must hold variables or their names, not {type(variable).__name__}")
    return Slot(variable.name, variable.shape, as_numpy(variable.dtype), variable.lod_level)


def as_tensor(value):
    """A LoDTensor with that value, unless it is one."""
    return value if isinstance(value, LoDTensor) else LoDTensor(value)


def convert_dtype(dtype):
    """Returns the name of a dtype given as a Fluid dtype, a NumPy dtype or type, or a name."""
    if isinstance(dtype, VarType) and dtype in (*range(7), VarType.UINT8, VarType.INT8, VarType.BF16):
        return as_numpy(dtype).name
    if isinstance(dtype, type) and issubclass(dtype, np.generic):
        dtype = np.dtype(dtype).name
    if isinstance(dtype, np.dtype):
        dtype = dtype.name
    if isinstance(dtype, str) and dtype in _DTYPES:
        return dtype
    raise ValueError(f"{dtype!r} is not a Fluid dtype; expected one of {', '.join(_DTYPES)}")


def check_variable_and_dtype(input, input_name, expected_dtype, op_name, extra_message=""):
    """Raises TypeError unless ``input`` is a variable whose dtype is one of ``expected_dtype``."""
    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


def check_type(input, input_name, expected_type, op_name, extra_message=""):
    """Raises TypeError unless ``input`` is an instance of ``expected_type``."""
    if not isinstance(input, expected_type):
        types = expected_type if isinstance(expected_type, tuple) else (expected_type,)
        _refuse(op_name, input_name, [expected.__name__ for expected in types], type(input).__name__, extra_message)


def check_dtype(input_dtype, input_name, expected_dtype, op_name, extra_message=""):
    """Raises TypeError unless the dtype is one of ``expected_dtype``."""
    dtype = convert_dtype(input_dtype)
    expected = [expected_dtype] if isinstance(expected_dtype, str) else list(expected_dtype)
    if dtype not in expected:
        _refuse(op_name, input_name, expected, dtype, extra_message)


def _refuse(op_name, input_name, expected, found, extra_message):
    raise TypeError(f"{op_name}: {input_name} must be {' or '.join(expected)}, not {found}. {extra_message}".rstrip())
