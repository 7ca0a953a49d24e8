"""Kernels called by several threads at once, and processes that end while pool threads wait."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from refluid.kernels.matmul import Form, matmul

PROGRAM = """
import numpy as np
import paddle.fluid as fluid
hidden = fluid.data("x", [None, 256])
for _ in range(6):
    hidden = fluid.layers.fc(hidden, 256, act="tanh")
loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
fluid.optimizer.Adam(0.001).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
feed = {"x": np.ones((128, 256), "float32")}
for _ in range(200):
    exe.run(feed=feed, fetch_list=[loss])
print("done")
"""


def test_threads_that_call_kernels_at_the_same_time():
    random = np.random.RandomState(0)
    x, y = random.randn(2, 128, 128).astype("float32")
    multiply = jax.jit(lambda x, y: matmul(Form.PLAIN, x, y))
    expected = np.asarray(multiply(x, y))

    def run(_):
        return all((np.asarray(multiply(x, y)) == expected).all() for _ in range(200))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(run, range(12)))


def test_a_process_may_end_while_pool_threads_wait():
    """On a busy machine they still read shared memory when Python frees what is left."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
