"""Timing of a program's steps: a printed table, and a trace file for a browser."""

import warnings
from contextlib import contextmanager

from refluid import profiling

__all__ = ["cuda_profiler", "profiler", "reset_profiler", "start_profiler", "stop_profiler"]


@contextmanager
def profiler(state, sorted_key=None, profile_path="/tmp/profile", tracer_option="Default", jax_trace_dir=None):
    """Profiles the code inside the context, then prints a table and writes a trace.

    Args:
      state: "CPU", "GPU" or "All"; all record the same events.
      sorted_key: "calls", "total", "max", "min" or "ave"; None keeps the order of appearance.
      profile_path: the trace file; open it in chrome://tracing or ui.perfetto.dev.
      jax_trace_dir: a directory for the trace of JAX's profiler, which shows the kernels inside a step.
    """
    start_profiler(state, tracer_option, jax_trace_dir)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


def start_profiler(state, tracer_option="Default", jax_trace_dir=None):
    """Starts recording; see `profiler`."""
    _require_one_of("state", state, ("CPU", "GPU", "All"))
    _require_one_of("tracer_option", tracer_option, ("Default", "OpDetail", "AllOpDetail"))
    profiling.start(jax_trace_dir)


def stop_profiler(sorted_key=None, profile_path="/tmp/profile"):
    """Stops recording, prints the table and writes the trace; see `profiler`."""
    _require_one_of("sorted_key", sorted_key, (None, "default", *profiling.SORT_KEYS))
    recording = profiling.stop()
    if recording is None:
        return
    key = None if sorted_key == "default" else sorted_key
    order = "in order of appearance" if key is None else f"sorted by {key}"
    print(f"Profiling report, times in milliseconds, {order}")
    print(profiling.table(profiling.summarize(recording, key)))
    profiling.write_trace(recording, profile_path)


def reset_profiler():
    """Discards the events recorded so far."""
    profiling.reset()


@contextmanager
def cuda_profiler(output_file, output_mode=None, config=None):
    """Runs the code inside the context with a warning: nvprof, which this controlled, no longer exists."""
    _require_one_of("output_mode", output_mode, (None, "kvp", "csv"))
    warnings.warn(
        f"cuda_profiler used nvprof, which no longer exists; {output_file} is not written. "
        "Use fluid.profiler.profiler(..., jax_trace_dir=...) to see the kernels inside a step.",
        stacklevel=3,
    )
    yield


def _require_one_of(name, value, allowed):
    if value not in allowed:
        raise ValueError(f"profiler: {name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
