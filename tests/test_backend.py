"""The XLA client is set up late, once, and as the user chose."""

import os
import subprocess
import sys

import jax
import pytest

import paddle.fluid as fluid
from refluid.lowering.compiled_piece import PieceFunction
from refluid.lowering.step import CompiledStep

SCRIPT = """
import jax, paddle.fluid as fluid
from jax._src.xla_bridge import backends_are_initialized
states = [jax.config.read("jax_cpu_enable_async_dispatch"), backends_are_initialized()]
image = fluid.layers.data("image", [1, 4, 4])
fluid.layers.dropout(fluid.layers.conv2d(image, 2, 3), 0.5)  # their rules ask for the platform and for a key
fluid.Executor()
states.append(jax.config.read("jax_cpu_enable_async_dispatch"))
print(*states)
"""


@pytest.mark.parametrize(
    ("chosen", "states"), [(None, "True False False"), ("1", "True False True"), ("0", "True False False")]
)
def test_the_calling_thread_runs_steps_unless_the_user_chose(chosen, states):
    environment = {key: value for key, value in os.environ.items() if key != "JAX_CPU_ENABLE_ASYNC_DISPATCH"}
    if chosen is not None:
        environment["JAX_CPU_ENABLE_ASYNC_DISPATCH"] = chosen
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == states


@pytest.mark.parametrize(
    ("cores", "flags", "size", "chosen"),
    [
        (2, "", 4, True),
        (1, "", 4, False),
        (2, "--xla_cpu_experimental_ynn_fusion_type=x", 4, False),
        (2, "", 1024, False),
    ],
)
def test_products_are_shared_between_cores_where_that_is_faster(monkeypatch, cores, flags, size, chosen):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setenv("XLA_FLAGS", flags)
    given = []
    monkeypatch.setattr(jax, "jit", lambda function, compiler_options, **_: given.append(compiler_options))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        hidden = fluid.layers.fc(fluid.layers.data("x", [size]), size)
        loss = fluid.layers.mean(fluid.layers.fc(hidden, size))
        fluid.optimizer.SGD(0.1).minimize(loss)
        (piece,) = CompiledStep(loss.block, ("x",), (loss.name,), fluid.CPUPlace()).pieces
        PieceFunction(piece)
    assert given == [{"xla_cpu_experimental_ynn_fusion_type": ""} if chosen else {}]
