"""How well a DataLoader hides its generator: the time of a step, next to that of the same step on data in memory.

A step of the model takes T on data that is ready. The generator takes a share of T for each batch (0.9 by default): it
sleeps, as one that waits for a disk does, or it computes in NumPy. Without overlap a step would take 1.9 T.

    python bench/overlap.py [--share 0.9] [--steps 100] [--rounds 3]
"""

import argparse
import time

import numpy as np

import paddle.fluid as fluid

BATCH, WIDTH, LAYERS = (
    64,
    128,
    60,
)  # narrow and deep: a step that one core computes, so that one is left for a generator


def build():
    x, y = fluid.data("x", [None, WIDTH]), fluid.data("y", [None, 1])
    hidden = x
    for _ in range(LAYERS):
        hidden = fluid.layers.fc(hidden, WIDTH, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.Adam(1e-4).minimize(loss)
    return [x, y], loss


def prepared(steps):
    random = np.random.RandomState(0)
    pool = [(random.rand(BATCH, WIDTH).astype("float32"), random.rand(BATCH, 1).astype("float32")) for _ in range(16)]
    return [pool[step % len(pool)] for step in range(steps)]


class Work:
    """Sorting that takes as long as asked, on one core."""

    def __init__(self, seconds):
        self.numbers = np.random.RandomState(1).rand(20_000)
        begun, repeats = time.perf_counter(), 0
        while time.perf_counter() - begun < 0.5:
            np.sort(self.numbers)
            repeats += 1
        self.repeats = max(1, round(seconds * repeats / (time.perf_counter() - begun)))

    def __call__(self):
        for _ in range(self.repeats):
            np.sort(self.numbers)


def generator(batches, wait):
    def read():
        for batch in batches:
            wait()
            yield batch

    return read


def seconds_per_step(feeds, step, steps):
    """Of all steps but the first few, which fill the queue and compile."""
    warm, begun = steps // 5, 0.0
    for number, feed in enumerate(feeds):
        if number == warm:
            begun = time.perf_counter()
        step(feed)
    return (time.perf_counter() - begun) / (steps - warm)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.9)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    fed, loss = build()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    batches = prepared(options.steps)
    names = [variable.name for variable in fed]

    def step(feed):
        exe.run(feed=feed, fetch_list=[loss])

    def in_memory():
        return [dict(zip(names, batch, strict=True)) for batch in batches]

    def loaded(wait, **how):
        loader = fluid.io.DataLoader.from_generator(fed, capacity=4, **how)
        return loader.set_batch_generator(generator(batches, wait), places=exe.place)()

    seconds_per_step(in_memory(), step, options.steps)
    alone = min(seconds_per_step(in_memory(), step, options.steps) for _ in range(options.rounds))
    share = options.share * alone
    print(f"a step on data in memory takes T = {alone * 1e3:.2f} ms; the generator takes {options.share} T")
    work = Work(share)
    ways = {
        "sleeping": lambda: loaded(lambda: time.sleep(share)),
        "computing": lambda: loaded(work),
        "computing, worker process": lambda: loaded(work, use_multiprocess=True),
        "computing, no loader": lambda: (dict(zip(names, b, strict=True)) for b in generator(batches, work)()),
    }
    for name, feeds in ways.items():
        found = [seconds_per_step(feeds(), step, options.steps) for _ in range(options.rounds)]
        print(f"{name:26} {min(found) * 1e3:6.2f} ms a step, {min(found) / alone:.2f} T")


if __name__ == "__main__":
    main()
