"""What a flax layer and an optax optimizer cost inside of a program: steps next to those of plain flax and optax.

    python bench/bridges.py [--steps 200] [--rounds 7]

The same module, batch and transformation, from the same parameters, in one process; the two take turns. Prints the median
time of a step of both, the ratio, and the losses after as many steps. On a busy machine, run it with a priority of its own:
``chrt -r 1 taskset -c 1 python bench/bridges.py``.
"""

import argparse
import statistics
import time
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import paddle.fluid as fluid
import refluid


class Classifier(nn.Module):
    """A residual stack of dense layers."""

    width: int = 512
    depth: int = 4

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        for _ in range(self.depth):
            x = x + nn.Dense(self.width)(nn.gelu(nn.LayerNorm()(x)))
        return nn.Dense(10)(x)


class Attention(nn.Module):
    """Two blocks of self-attention over sequences, and their mean."""

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x))
            x = x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(256)(nn.LayerNorm()(x))))
        return nn.Dense(10)(x.mean(1))


MODELS = {
    "dense": (Classifier(), [128], [256]),
    "attention": (Attention(), [16], [32, 128]),
    "small": (Classifier(64, 1), [32], [32]),
}


def in_program(module, sample, transformation):
    """A step of a program, and its parameters."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        x = fluid.layers.data("x", sample)
        label = fluid.layers.data("label", [1], dtype="int64")
        logits = refluid.flax_layer(module, x, name="m")
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))
        refluid.OptaxOptimizer(transformation).minimize(loss)
    startup.random_seed = 3
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    params = refluid.to_pytree(main, scope)["m"]

    def step(x, y):
        return float(exe.run(main, feed={"x": x, "label": y}, fetch_list=[loss], scope=scope)[0][0])

    return step, params


def in_plain_jax(module, params, transformation):
    """A step of plain flax and optax."""

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(params, memory, x, y):
        def loss(params):
            logits = module.apply({"params": params}, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y[:, 0]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, memory = transformation.update(grads, memory, params)
        return value, optax.apply_updates(params, updates), memory

    state = [params, transformation.init(params)]

    def step(x, y):
        value, *state[:] = update(*state, x, y)
        return float(value)

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    args = parser.parse_args()
    print("%-10s %12s %12s %7s  %s" % ("model", "program", "plain", "ratio", "losses"))
    for name in args.models:
        module, batch, sample = MODELS[name]
        transformation = optax.adamw(1e-3)
        ours, params = in_program(module, sample, transformation)
        plain = in_plain_jax(module, jax.tree.map(jnp.asarray, params), transformation)
        random = np.random.RandomState(0)
        x = random.randn(*batch, *sample).astype("float32")
        y = random.randint(0, 10, (*batch, 1))
        times, losses = {ours: [], plain: []}, {}
        for step in times:
            step(x, y)
        for _ in range(args.rounds):
            for step in times:
                began = time.perf_counter()
                for _ in range(args.steps // args.rounds):
                    losses[step] = step(x, y)
                times[step].append((time.perf_counter() - began) / (args.steps // args.rounds))
        medians = [1e3 * statistics.median(times[step]) for step in (ours, plain)]
        ratio = statistics.median(a / b for a, b in zip(times[ours], times[plain]))
        print("%-10s %9.3f ms %9.3f ms %7.3f  %.6f %.6f" % (name, *medians, ratio, losses[ours], losses[plain]))


if __name__ == "__main__":
    main()
