"""Measures the lowerings that rules choose between on CPU, so that the choices can be checked on another machine.

    python bench/lowerings.py                  every form of every product of a convolution, then blocks and pooling
    python bench/lowerings.py conv | pool      one of them
    python bench/lowerings.py feed             fed arrays: as they lie, or copied to where XLA reads them in place
    python bench/lowerings.py block            a depthwise convolution, batch_norm and relu: with and without kernels
    python bench/lowerings.py lenet            whole LeNet steps: XLA's convolutions or the chosen forms, by layout
    taskset -c 0 python bench/lowerings.py ... on one core, which the table in ops/nn/conv/choice.py is from

Candidates take turns in one process and the smallest CPU time of several rounds counts, because machines are noisy;
compare only within a row. A star marks what `choose` takes. Times are milliseconds of CPU time.
"""

import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from refluid import backend, kernels
from refluid.lowering.layout import channels_last
from refluid.lowering.staging import Staging, aligned
from refluid.ops.core import registry
from refluid.ops.nn import pool
from refluid.ops.nn.conv import products
from refluid.ops.nn.conv.choice import Forms, choose
from refluid.ops.nn.conv.rules import conv2d
from refluid.ops.nn.conv.window import Window

RNG = np.random.RandomState(0)
# batch, space (height and width, or all three dims), channels, filters, kernel, stride, pad, groups
CONVOLUTIONS = [
    (64, 28, 1, 20, 5, 1, 0, 1),
    (64, 28, 1, 6, 5, 1, 0, 1),
    (64, 14, 6, 16, 5, 1, 0, 1),
    (64, 12, 20, 50, 5, 1, 0, 1),
    (32, 32, 3, 16, 3, 1, 1, 1),
    (32, 32, 16, 16, 3, 1, 1, 1),
    (32, 16, 32, 32, 3, 1, 1, 1),
    (32, 8, 64, 64, 3, 1, 1, 1),
    (32, 16, 32, 64, 3, 2, 1, 1),
    (8, 14, 256, 256, 3, 1, 1, 1),
    (8, 64, 3, 32, 7, 2, 3, 1),
    (32, 16, 32, 32, 4, 2, 1, 1),
    (32, 16, 64, 64, 5, 1, 2, 1),
    (16, 28, 8, 8, 3, 1, 1, 1),
    (8, 56, 64, 64, 3, 1, 1, 1),
    (32, 16, 64, 128, 1, 1, 0, 1),
    (32, 16, 64, 64, 3, 1, 1, 64),
    (32, 16, 64, 64, 3, 2, 1, 64),
    (4, 150, 32, 32, 3, 1, 1, 32),
    (4, 150, 64, 64, 3, 2, 1, 64),
    (4, 75, 128, 128, 3, 1, 1, 128),
    (4, 19, 512, 512, 3, 1, 1, 512),
    (4, 28, 192, 192, 5, 1, 2, 192),
    (32, 16, 32, 32, 3, 1, 1, 4),
    (8, 14, 128, 128, 3, 1, 1, 32),
    (4, (8, 16, 16), 16, 32, 3, 1, 1, 1),
]
# batch, space, channels, stride
BLOCKS = [(4, 150, 32, 1), (4, 150, 64, 2), (4, 75, 128, 1), (4, 38, 256, 1), (4, 19, 512, 1), (32, 16, 64, 1)]
# batch, space, channels, window, stride
POOLINGS = [(64, 24, 20, 2, 2), (64, 8, 50, 2, 2), (16, 57, 64, 3, 2), (16, 30, 64, 3, 1)]


def noise(*shape):
    return jnp.asarray(RNG.randn(*shape).astype("float32"))


def compare(candidates, rounds=7, seconds=0.03):
    """name -> function and arguments; returns name -> the least CPU milliseconds of one call."""
    calls = {}
    for name, (function, *arguments) in candidates.items():
        jitted = jax.jit(function)
        calls[name] = lambda jitted=jitted, arguments=arguments: jax.block_until_ready(jitted(*arguments))
    return alternate(calls, rounds, seconds)


def alternate(calls, rounds=7, seconds=0.03, clock=time.process_time):
    repeats, best = {}, dict.fromkeys(calls, np.inf)
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(seconds / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            for _ in range(repeats[name]):
                call()
            best[name] = min(best[name], (clock() - start) * 1000 / repeats[name])
    return best


def fits(form, window, channels, filters):
    """Whether a form can do this convolution at all."""
    depthwise = window.groups == channels and window.groups > 1
    return {
        "lax": True,
        "dot": window.groups == 1 and set(window.kernel) == {1},
        "shifts": depthwise,
        "kernel": depthwise and filters == channels and len(window.kernel) == 2,
        "split": 1 < window.groups <= 8,
        "batch": window.groups > 1 and not depthwise,
    }.get(form, window.groups == 1)


def measure_convolutions():
    for batch, space, channels, filters, k, stride, pad, groups in CONVOLUTIONS:
        dims = space if isinstance(space, tuple) else (space, space)
        rank = len(dims)
        window = Window((k,) * rank, (stride,) * rank, (1,) * rank, ((pad, pad),) * rank, groups)
        positions = window.positions(dims)
        window = window.fitted(dims, positions)
        x, w = noise(batch, *dims, channels), noise(*window.kernel, channels // groups, filters)
        g = noise(batch, *positions, filters)
        chosen = choose(window, batch, dims, channels, filters, x.dtype)
        over = " x ".join(map(str, (batch, *dims)))
        print(f"{k}x{k} / {stride} over {over}, {channels} -> {filters} channels in {groups} groups")
        compared = [
            ("correlate", products.CORRELATE, lambda form: (lambda x, w: form(x, w, window), x, w)),
            ("spread", products.SPREAD, lambda form: (lambda g, w: form(g, w, window, dims), g, w)),
            ("weight_gradient", products.WEIGHT_GRADIENT, lambda form: (lambda x, g: form(x, g, window), x, g)),
        ]
        for product, forms, call in compared:
            forms = {name: form for name, form in forms.items() if fits(name, window, channels, filters)}
            times = compare({name: call(form) for name, form in forms.items()})
            marked = (f"{name}{'*' * (name == getattr(chosen, product))} {ms:.2f}" for name, ms in times.items())
            print(f"    {product:16}", "   ".join(marked), flush=True)


def measure_blocks():
    """Forward and gradients. XLA fuses shifts into every sum that batch_norm makes of them; a kernel stays one."""
    types = registry.lookup("batch_norm"), registry.lookup("batch_norm_grad")
    for batch, space, channels, stride in BLOCKS:
        x, w, scale = noise(batch, space, space, channels), noise(channels, 1, 3, 3), jnp.ones(channels, jnp.float32)
        attrs = dict(strides=(stride, stride), paddings=(1, 1), groups=channels, data_format="NHWC")
        g = noise(batch, *2 * [-(-space // stride)], channels)

        def block(x, w, g, scale=scale, attrs=attrs):
            out, pullback = jax.vjp(lambda x, w: conv2d(x, w, **attrs), x, w)
            given = dict(X=[out], Scale=[scale], Bias=[0 * scale], Mean=[0 * scale], Variance=[scale])
            found = types[0].call(given, {"data_layout": "NHWC"})
            given.update({slot: found[slot] for slot in ("SavedMean", "SavedVariance")})
            given["Y@GRAD"] = [jnp.where(found["Y"][0] > 0, g, 0)]
            gradients = pullback(types[1].call(given, {"data_layout": "NHWC"})["X@GRAD"][0])
            return jax.nn.relu(found["Y"][0]), gradients

        calls = {}
        for allowed, name in ((False, "by XLA"), (True, "with kernels")):
            with kernels.allowed(allowed):
                compiled = jax.jit(lambda *a: block(*a)).lower(x, w, g).compile()  # noqa: B023
            calls[name] = lambda run=compiled, given=(x, w, g): jax.block_until_ready(run(*given))
        times = alternate(calls)
        print(f"3x3 / {stride}, batch_norm and relu over {batch} x {space} x {space} x {channels}")
        print("    " + "   ".join(f"{name} {ms:.2f}" for name, ms in times.items()), flush=True)


def measure_poolings():
    for batch, space, channels, k, stride in POOLINGS:
        x = noise(batch, space, space, channels)
        window = Window((k, k), (stride, stride), (1, 1), ((0, 0),) * 2)
        window = window.fitted((space, space), window.positions((space, space)))

        def of_windows(x, k=k, stride=stride):
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, k, k, 1), (1, stride, stride, 1), "VALID")

        def of_views(x, window=window):
            return pool._max_pool(x, window)

        g = noise(*of_windows(x).shape)

        def both_ways(function):
            return lambda x, g: jax.vjp(function, x)[1](g)

        times = compare(
            {
                "reduce_window": (of_windows, x),
                "views": (of_views, x),
                "reduce_window + gradient": (both_ways(of_windows), x, g),
                "views + gradient": (both_ways(of_views), x, g),
            }
        )
        print(f"{k}x{k} / {stride} maximum over {batch} x {space} x {space} x {channels}")
        print("    " + "   ".join(f"{name} {ms:.2f}" for name, ms in times.items()), flush=True)


def lenet_step(wrap):
    def loss(params, x, y):
        for w, b in params[:2]:
            x = jax.nn.relu(conv2d(x, w) + b.reshape(1, -1, 1, 1))
            x = pool.pool2d(x, pooling_type="max", ksize=(2, 2), strides=(2, 2))
        w, b = params[2]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x.reshape(x.shape[0], -1) @ w + b), y, 1))

    def step(params, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), value

    return jax.jit(wrap(step))


def measure_lenet():
    shapes = [((20, 1, 5, 5), 20), ((50, 20, 5, 5), 50), ((800, 10), 10)]
    params = [(0.1 * noise(*w), jnp.zeros(b)) for w, b in shapes]
    arguments = params, noise(64, 1, 28, 28), jnp.asarray(RNG.randint(0, 10, (64, 1)))
    calls = {}
    for forms, name in ((lambda *_: Forms("lax", "lax", "lax"), "XLA's"), (choose, "chosen")):
        for wrap, layout in ((lambda step: step, "as written"), (channels_last, "channels-last")):
            jax.clear_caches()
            products.choose = forms
            compiled = lenet_step(wrap).lower(*arguments).compile()
            calls[f"{name} convolutions, {layout}"] = lambda run=compiled: jax.block_until_ready(run(*arguments))
    products.choose = choose
    for name, ms in alternate(calls, rounds=9, seconds=0.2).items():
        print(f"{name:36} {ms:.1f}")


def measure_feeds():
    """Wall time in microseconds: what is saved is waiting for a thread, which takes no CPU time."""
    jitted = jax.jit(lambda x: x[0, 0] + 1)
    for size in (1 << 14, 1 << 16, 100352, 1 << 17, 200704, 1 << 20, 1 << 22):
        odd, stage = aligned((size // 64 + 1, 16), np.dtype("float32")).reshape(-1)[4:-12].reshape(-1, 16), Staging()
        odd[...] = 1
        calls = {
            "in place": lambda x=aligned(odd.shape, odd.dtype): np.asarray(jitted(x)),
            "copied by XLA": lambda x=odd: np.asarray(jitted(x)),
            "staged": lambda x=odd, stage=stage: np.asarray(jitted(stage(0, x))),
        }
        best = alternate(calls, rounds=30, seconds=0.003, clock=time.perf_counter)
        print("%8d bytes  " % size + "   ".join("%s %.1f us" % (name, ms * 1000) for name, ms in best.items()))


MEASUREMENTS = {
    "conv": measure_convolutions,
    "block": measure_blocks,
    "pool": measure_poolings,
    "lenet": measure_lenet,
    "feed": measure_feeds,
}

if __name__ == "__main__":
    backend.prepare()
    print("cores:", len(os.sched_getaffinity(0)), " jax", jax.__version__)
    for name in sys.argv[1:] or ["conv", "block", "pool"]:
        with jax.enable_x64(True), kernels.allowed():  # as in steps
            MEASUREMENTS[name]()
