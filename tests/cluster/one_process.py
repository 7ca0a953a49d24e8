"""A job within one process, for tests of what servers and trainers say: servers on threads, the trainer on the test's.

The default programs are not touched; every role builds its own.
"""

import threading
from contextlib import contextmanager

import numpy as np

import paddle.fluid as fluid
from cluster.jobs import free_endpoints
from refluid.runtime.trainer import session

ROWS = 40


class Role:
    """The programs of one process of a job."""

    scope = None  # a new one

    def __init__(
        self,
        endpoints,
        trainer=0,
        trainers=1,
        width=4,
        normalised=False,
        clip=None,
        network=None,
        optimizer=None,
        **config,
    ):
        self.endpoints = endpoints
        self.main, self.startup, self.scope = fluid.Program(), fluid.Program(), self.scope or fluid.core.Scope()
        self.main.random_seed = self.startup.random_seed = 5
        self.exe = fluid.Executor(fluid.CPUPlace())
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            self.loss = network() if network is not None else _network(width, normalised)
            if clip is not None:
                fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(clip))
            (fluid.optimizer.Adam(0.01) if optimizer is None else optimizer()).minimize(self.loss)
            self.transpiler = fluid.DistributeTranspiler(_config(config))
            self.transpiler.transpile(
                trainer, self.main, ",".join(endpoints), trainers, startup_program=self.startup, **_given(config)
            )

    def serve(self, endpoint, folder=None):
        """Runs a server until its trainers have left."""
        program = self.transpiler.get_pserver_program(endpoint)
        startup = self.transpiler.get_startup_program(endpoint, program)
        self.exe.run(startup, scope=self.scope)
        if folder is not None:
            with fluid.scope_guard(self.scope):
                fluid.io.load_persistables(self.exe, folder, program)
        self.exe.run(program, scope=self.scope)

    def start(self):
        """Runs the startup program of a trainer."""
        self.exe.run(self.startup, scope=self.scope)

    def step(self, seed=0, ids=None):
        """A step on six samples made with a seed; with several seeds, on the samples of all of them."""
        parts = [self._samples(each, ids) for each in (seed if isinstance(seed, range) else [seed])]
        feed = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return self.exe.run(self.main, feed=feed, fetch_list=[self.loss], scope=self.scope)[0]

    @staticmethod
    def _samples(seed, ids):
        rng = np.random.RandomState(seed)
        given = rng.randint(0, ROWS, (6, 1)) if ids is None else np.array(ids).reshape(-1, 1)
        return {"x": rng.randn(len(given), 4).astype("float32"), "ids": given.astype("int64")}

    def close(self):
        self.exe.close()


def _network(width, normalised):
    x = fluid.layers.data("x", [width])
    ids = fluid.layers.data("ids", [1], dtype="int64")
    table = fluid.layers.embedding(ids, [ROWS, 3], is_sparse=True, param_attr="table")
    hidden = fluid.layers.fc(fluid.layers.concat([x, table], axis=1), 8)
    if normalised:  # a trainer changes state of its own
        hidden = fluid.layers.batch_norm(hidden)
    return fluid.layers.mean(fluid.layers.square(hidden))


def _config(options):
    config = fluid.DistributeTranspilerConfig()
    config.min_block_size = 8
    for name, value in options.items():
        setattr(config, name, value)
    return config


def _given(options):
    return {"sync_mode": options["sync_mode"]} if "sync_mode" in options else {}


@contextmanager
def servers(count=2, folder=None, **options):
    """Runs the servers of a job and yields their endpoints; trainers must have left at the end."""
    endpoints = free_endpoints(count)
    roles = [Role(endpoints, **options) for _ in endpoints]
    failures = []

    def serve(role, endpoint):
        try:
            role.serve(endpoint, folder)
        except Exception as error:  # noqa: BLE001 - shown by the test's thread
            failures.append(error)

    threads = [threading.Thread(target=serve, args=pair, daemon=True) for pair in zip(roles, endpoints, strict=True)]
    for thread in threads:
        thread.start()
    try:
        yield endpoints
    finally:
        left = session.current()
        if left is not None:
            left.leave()
    for thread in threads:
        thread.join(60)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads), "servers end when their trainers have left"
