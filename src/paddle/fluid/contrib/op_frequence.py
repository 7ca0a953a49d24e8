"""Op statistics of programs."""

from collections import Counter

from paddle.fluid.framework import Program

__all__ = ["op_freq_statistic"]


def op_freq_statistic(program):
    """Counts op types and producer-consumer pairs; returns two lists of (name, count), most frequent first.

    Names in the second list have the form ``producer->consumer``.
    """
    if not isinstance(program, Program):
        raise TypeError(f"op_freq_statistic expects a Program, not {type(program).__name__}")
    single, pairs, writers = Counter(), Counter(), {}
    for op in program.global_block().ops:
        single[op.type] += 1
        pairs.update(f"{writers[name]}->{op.type}" for name in op.input_arg_names if name in writers)
        writers.update(dict.fromkeys(op.output_arg_names, op.type))
    return single.most_common(), pairs.most_common()
