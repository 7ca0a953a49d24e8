"""Programs at several CPU devices, as a script: prints where values live, and what was trained, as JSON."""

from __future__ import annotations

import json
import sys
import tempfile

import jax
import numpy as np

import paddle.fluid as fluid
from refluid import kernels
from refluid.executor import Executor
from refluid.places import CPUPlace
from refluid.runtime.server.shard import Shard


def model(optimizer=None, host=False):
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = main.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [8]), fluid.layers.data("y", [1])
        hidden = fluid.layers.dropout(fluid.layers.fc(x, 16, act="tanh"), 0.3)
        if host:
            doubled = main.current_block().create_var(name="doubled", shape=[-1, 16], dtype="float32")
            hidden = fluid.layers.py_func(lambda a: np.array(a) * 2, hidden, doubled)
            hidden.stop_gradient = True
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        (optimizer or fluid.optimizer.Adam(0.01)).minimize(loss)
    return main, startup, loss.name


def recurrent():
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = main.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [8], lod_level=1)
        hidden, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(x, 32), 32)
        loss = fluid.layers.mean(fluid.layers.sequence_pool(hidden, "last"))
        fluid.optimizer.Adam(0.01).minimize(loss)
    return main, startup, loss.name


RNG = np.random.RandomState(0)
BATCH = {"x": RNG.randn(4, 8).astype("float32"), "y": RNG.randn(4, 1).astype("float32")}


def sequences():
    return {"x": fluid.create_lod_tensor(RNG.randn(6, 8).astype("float32"), [[2, 4]], fluid.CPUPlace())}


def where(value):
    return sorted({device.id for leaf in jax.tree.leaves(value) for device in leaf.devices()})


def held(scope):
    """Where the variables of a scope live; NumPy arrays would fail."""
    return where([variable.get_tensor().value for variable in scope._variables.values() if variable.value is not None])


def train(exe, program, feed=BATCH, steps=4, scope=None):
    main, startup, loss = program
    scope = scope or fluid.Scope()
    exe.run(startup, scope=scope)
    started_at = held(scope)
    losses = [float(exe.run(main, feed=feed, fetch_list=[loss], scope=scope)[0]) for _ in range(steps)]
    (fetched,) = exe.run(main, feed=feed, fetch_list=[loss], scope=scope, return_numpy=False)
    return {"startup": started_at, "state": held(scope), "fetched": where(fetched.value), "losses": losses}


def moved(program):
    """One scope at two places, in turns."""
    main, startup, loss = program
    scope, places = fluid.Scope(), [Executor(CPUPlace(i)) for i in (1, 2)]
    places[0].run(startup, scope=scope)
    found: list = []
    for i in (0, 1, 0, 1):
        (value,) = places[i].run(main, feed=BATCH, fetch_list=[loss], scope=scope)
        found.append([float(value), held(scope)])
    return found


def loaded(program):
    main, startup, _ = program
    with tempfile.TemporaryDirectory() as folder, fluid.scope_guard(fluid.Scope()):
        exe = Executor(CPUPlace(0))
        exe.run(startup)
        fluid.io.save_persistables(exe, folder, main)
        with fluid.scope_guard(fluid.Scope()):
            exe = Executor(CPUPlace(1))
            fluid.io.load_persistables(exe, folder, main)
            exe.run(main, feed=BATCH)
            after_a_run = held(fluid.global_scope())
            fluid.io.load_persistables(exe, folder, main)
            return [after_a_run, held(fluid.global_scope())]


def shard():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [8]), fluid.layers.data("y", [1])
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1, bias_attr=False), y))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        transpiler = fluid.DistributeTranspiler()
        transpiler.transpile(0, pservers="127.0.0.1:6174", trainers=1)
        main, startup = transpiler.get_pserver_programs("127.0.0.1:6174")
    scope, place = fluid.Scope(), CPUPlace(2)
    Executor(place).run(startup, scope=scope)
    server = Shard(main.global_block().ops[-1], scope, place)
    before = server.read(["fc_0.w_0"])["fc_0.w_0"].copy()
    server.update([{"fc_0.w_0@GRAD": np.ones((8, 1), "float32")}])
    assert np.allclose(before - server.read(["fc_0.w_0"])["fc_0.w_0"], 0.1)
    return held(scope)


def fed_from_elsewhere(program):
    main, startup, loss = program
    exe, scope = Executor(CPUPlace(1)), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {name: jax.device_put(value, CPUPlace(2).device()) for name, value in BATCH.items()}
    return [float(exe.run(main, feed=feed, fetch_list=[loss], scope=scope)[0]) for _ in range(2)]


def main():
    plain, with_host, words = model(), model(host=True), sequences()
    used = []
    find = kernels.find
    kernels.find = lambda name: used.append(name) or find(name)
    found = {
        "plain": [train(Executor(CPUPlace(i)), plain) for i in range(3)],
        "host": [train(Executor(CPUPlace(i)), with_host) for i in (0, 2)],
        "eager": [train(Executor(CPUPlace(i), eager=True), plain) for i in (0, 1)],
        "recurrent": [train(Executor(CPUPlace(i)), recurrent(), words) for i in (0, 1)],
        "moved": moved(plain),
        "loaded": loaded(plain),
        "shard": shard(),
        "fed": fed_from_elsewhere(plain),
        "kernels": sorted(set(used)),
        "places": [repr(place) for place in fluid.cpu_places(4)],
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
