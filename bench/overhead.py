"""What Executor.run costs beyond the computation: a linear-regression step, beside the same step in plain jax.jit.

    python bench/overhead.py

Both feed NumPy arrays and read the loss back. The two take turns in short stretches, and the best stretch of each counts,
so that other load on the machine does not favour one of them. Both run inline, because refluid comes first and sets up the
client; JAX_CPU_ENABLE_ASYNC_DISPATCH=1 hands both to XLA's thread. Prints microseconds per step and their ratio.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import paddle.fluid as fluid

STRETCH, TURNS = 100, 150


def refluid_step(x, y):
    inputs = [fluid.layers.data("x", [13]), fluid.layers.data("y", [1])]
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(inputs[0], 1), inputs[1]))
    fluid.optimizer.SGD(0.01).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return lambda: exe.run(fluid.default_main_program(), feed={"x": x, "y": y}, fetch_list=[loss])


def jax_step(x, y):
    def update(state, x, y):
        loss, gradient = jax.value_and_grad(lambda s: jnp.mean((x @ s[0] + s[1] - y) ** 2))(state)
        return jax.tree.map(lambda p, g: p - 0.01 * g, state, gradient), loss

    jitted = jax.jit(update, donate_argnums=0)
    state = [(jnp.zeros((13, 1)), jnp.zeros(1))]

    def step():
        state[0], loss = jitted(state[0], x, y)
        return np.asarray(loss)

    return step


def main():
    rng = np.random.RandomState(0)
    x, y = rng.randn(20, 13).astype("float32"), rng.randn(20, 1).astype("float32")
    steps = {"Executor.run": refluid_step(x, y), "jax.jit": jax_step(x, y)}
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(TURNS):
        for name, step in steps.items():
            step()
            started = time.perf_counter()
            for _ in range(STRETCH):
                step()
            best[name] = min(best[name], (time.perf_counter() - started) / STRETCH)
    for name, seconds in best.items():
        print(f"{name:<14} {seconds * 1e6:7.1f} us")
    print(f"{'ratio':<14} {best['Executor.run'] / best['jax.jit']:7.2f}")


if __name__ == "__main__":
    main()
