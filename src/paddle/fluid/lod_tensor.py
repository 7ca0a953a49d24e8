"""Creation of LoD tensors from lists and arrays."""

import itertools

import numpy as np

from refluid.tensors import LoDTensor

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]


def create_lod_tensor(data, recursive_seq_lens, place):
    """Creates a tensor whose rows are divided into sequences.

    Args:
      data: rows as a NumPy array or a LoDTensor, or a list of sequences whose elements become rows of size 1.
      recursive_seq_lens: the lengths of the sequences, level by level.
    """
    if isinstance(data, LoDTensor):
        data = np.array(data)
    elif isinstance(data, list):
        data = _rows(data, recursive_seq_lens)
    elif not isinstance(data, np.ndarray):
        raise TypeError(f"data must be a LoDTensor, a NumPy array or a list, not {type(data).__name__}")
    if not recursive_seq_lens:
        tensor = LoDTensor()
        tensor.set(data, place)
        return tensor
    if data.dtype.kind not in "biufcV":  # V: bfloat16
        raise TypeError(f"data must be numbers, not {data.dtype}")
    tensor = LoDTensor(np.array(data))  # on the host, where sequences are padded before a step takes them to its place
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


def create_random_int_lodtensor(recursive_seq_lens, base_shape, place, low, high):
    """Creates a tensor of random integers in [low, high], with rows of shape ``base_shape``."""
    if not isinstance(base_shape, list):
        raise TypeError(f"base_shape must be a list, not {type(base_shape).__name__}")
    shape = [sum(recursive_seq_lens[-1]), *base_shape]
    return create_lod_tensor(np.random.randint(low, high + 1, shape, dtype=np.int64), recursive_seq_lens, place)


def _rows(sequences, recursive_seq_lens):
    rows, lengths = sequences, []
    for _ in recursive_seq_lens:
        lengths.append([len(sequence) for sequence in rows])
        rows = list(itertools.chain.from_iterable(rows))
    if lengths != [list(level) for level in recursive_seq_lens]:
        raise ValueError(f"the data has sequences of lengths {lengths}, but recursive_seq_lens is {recursive_seq_lens}")
    return np.expand_dims(np.array(rows), -1)
