"""Trains cases of the comparison as one process of a job: a server, a trainer, or both trainers' work at once.

    train.py ROLE ID CASES.json OUT.npz

A case is a model, a seed, a learning rate, a mode and the job's endpoints. Real Fluid (Python 3.7) runs this file too:
see record.py. Modes:

    local       one process, batches of 64: what both trainers draw for a step
    local_each  one process, batches of 32: trainer 0's, then trainer 1's, so twice as many steps
    tsync, tasync             DistributeTranspiler, with and without sync_mode
    async, half_async, geo    Fleet; geo exchanges every 20 steps, geo100 every 100 (the default)

Each trainer takes its own batches of 32. When both have taken all steps, trainer 0 reads the parameters from servers
until they no longer change, and computes the loss of the held-back set: what counts is what servers have learned. In
GEO mode it is what a trainer would save: the servers' parameters in refluid, its own in real Fluid, whose servers learn
nothing of a model without sparse tables (1.8.5; its trainers then train alone).
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.parameter_server import distribute_transpiler

sys.path.insert(0, str(Path(__file__).parent))
import models

STEPS = 200
PUSH = {"geo": 20, "geo100": 100}
PATIENCE = 60.0


def run(case, role, number):
    """What this process has seen of a case: for trainer 0 and local training, the held-back loss as well."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.core.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        model = models.MODELS[case["model"]]
        loss = model.build(case["seed"])
        held_back = HeldBack(main.clone(for_test=True), startup.clone(), loss.name)
        sgd = fluid.optimizer.SGD(case["rate"] * model.rate)
        job = KINDS.get(case["mode"], FleetJob)(case, role, number, sgd, loss)
        if role == "server":
            return job.serve()
        feeds, held_back_feed = models.samples(case["model"], case["seed"], case.get("steps", STEPS))
        feeds = job.share(feeds, number)
        job.start()
        losses = [job.step(feeds[0])]  # compiles, which must not give one trainer a head start
        meet(case, role, number, "started")
        losses += [job.step(feed) for feed in feeds[1:]]
        meet(case, role, number, "trained")
        found = {"losses": np.array(losses, "float32")}
        if number == 0:
            held_back.start()
            found["first"] = held_back.loss(held_back_feed)
            held_back.load(job)
            found["last"] = held_back.loss(held_back_feed)
        meet(case, role, number, "read")
        job.stop()
        return found


def meet(case, role, number, point):
    """Waits until both trainers are at this point: by files, not by what is compared."""
    if role == "local":
        return
    all_of_them = [Path(case["folder"]) / f"{point}.{trainer}" for trainer in range(models.TRAINERS)]
    all_of_them[number].touch()
    end = time.time() + PATIENCE
    while not all(path.exists() for path in all_of_them):
        assert time.time() < end, f"a trainer never came to {point}"
        time.sleep(0.002)


class Local:
    """Training in one process."""

    def __init__(self, case, role, number, sgd, loss):
        sgd.minimize(loss)
        self.case, self.loss = case, loss
        self.program, self.startup = fluid.default_main_program(), fluid.default_startup_program()
        self.exe = fluid.Executor(fluid.CPUPlace())

    def share(self, feeds, number):
        """Batches in the order in which they are taken."""
        if self.case["mode"] == "local_each":
            return [each[step] for step in range(len(feeds[0])) for each in feeds]
        return [
            {key: np.concatenate([each[step][key] for each in feeds]) for key in feed}
            for step, feed in enumerate(feeds[0])
        ]

    def start(self):
        self.exe.run(self.startup)

    def step(self, feed):
        return np.mean(self.exe.run(self.program, feed=feed, fetch_list=[self.loss])[0])

    def read(self, names):
        """The trained parameters."""
        return {name: np.array(fluid.global_scope().find_var(name).get_tensor()) for name in names}

    def stop(self):
        self.exe.close()


class TranspilerJob(Local):
    """DistributeTranspiler, used directly."""

    def __init__(self, case, role, number, sgd, loss):
        super().__init__(case, role, number, sgd, loss)
        self.transpiler = fluid.DistributeTranspiler(config(case["mode"]))
        self.endpoint = case["endpoints"][number] if role == "server" else ""
        self.transpiler.transpile(
            number if role == "trainer" else 0,
            pservers=",".join(case["endpoints"]),
            trainers=models.TRAINERS,
            sync_mode=case["mode"] == "tsync",
            current_endpoint=self.endpoint,
        )
        if role == "trainer":
            self.program = self.transpiler.get_trainer_program()

    def share(self, feeds, number):
        return feeds[number]

    def serve(self):
        program = self.transpiler.get_pserver_program(self.endpoint)
        self.exe.run(self.transpiler.get_startup_program(self.endpoint, program))
        self.exe.run(program)
        return {}

    def read(self, names):
        """The parameters as servers hold them, once two reads agree: nothing is under way any more."""
        read = reading(self.case["mode"])
        values, before = read(self, names), {}
        end = time.time() + PATIENCE
        while not before or any(not np.array_equal(before[name], values[name]) for name in names):
            if not all(np.isfinite(value).all() for value in values.values()):
                break  # NaN never equals itself
            assert time.time() < end, "the parameters of the servers never came to rest"
            time.sleep(0.1)
            before, values = values, read(self, names)
        return values


class FleetJob(TranspilerJob):
    """Fleet; compiled as real Fluid wants it, except for GEO."""

    def __init__(self, case, role, number, sgd, loss):
        self.case, self.loss = case, loss
        self.exe = fluid.Executor(fluid.CPUPlace())
        # Real Fluid's strategies look at the module's own instance; in refluid, a second job needs a second one.
        self.fleet = distribute_transpiler.DistributedTranspiler() if is_refluid() else distribute_transpiler.fleet
        self.fleet.init(
            role_maker.UserDefinedRoleMaker(
                current_id=number,
                role=role_maker.Role.SERVER if role == "server" else role_maker.Role.WORKER,
                worker_num=models.TRAINERS,
                server_endpoints=case["endpoints"],
            )
        )
        self.fleet.distributed_optimizer(sgd, config(case["mode"])).minimize(loss)
        self.transpiler = getattr(self.fleet, "_transpiler", None)

    def serve(self):
        self.fleet.init_server()
        self.fleet.run_server()
        return {}

    def start(self):
        self.fleet.init_worker()
        self.exe.run(self.fleet.startup_program)
        self.program = self.fleet.main_program
        if self.case["mode"] in PUSH:
            return
        build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
        build.async_mode = True
        execution.num_threads = 1
        execution.use_thread_barrier = self.case["mode"] == "half_async"
        self.program = fluid.CompiledProgram(self.program).with_data_parallel(
            loss_name=self.loss.name, build_strategy=build, exec_strategy=execution
        )

    def stop(self):
        self.fleet.stop_worker()


KINDS = {"local": Local, "local_each": Local, "tsync": TranspilerJob, "tasync": TranspilerJob}


def config(mode):
    config = fluid.DistributeTranspilerConfig()
    config.min_block_size = 1 << 20  # a parameter lives on one server, so that real Fluid's can be read whole
    config.sync_mode = mode == "tsync"
    config.runtime_split_send_recv = mode not in KINDS
    config.half_async = mode == "half_async"
    config.geo_sgd_mode = mode in PUSH
    config.geo_sgd_need_push_nums = PUSH.get(mode, 100)
    return config


class HeldBack:
    """The model apart from its training."""

    def __init__(self, forward, startup, loss):
        self.forward, self.startup, self.fetch = forward, startup, loss
        self.scope, self.exe = fluid.core.Scope(), fluid.Executor(fluid.CPUPlace())

    def start(self):
        """Takes the initial values."""
        self.exe.run(self.startup, scope=self.scope)

    def load(self, job):
        """Takes the parameters that a job has trained."""
        for name, value in job.read([p.name for p in self.forward.all_parameters()]).items():
            self.scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())

    def loss(self, feed):
        return np.mean(self.exe.run(self.forward, feed=feed, fetch_list=[self.fetch], scope=self.scope)[0])


def reading(mode):
    """How a trainer reads parameters."""
    if is_refluid():
        return read_by_saving
    if mode in PUSH:
        return Local.read
    return read_after_round if mode == "tsync" else read_by_receiving


def read_by_saving(job, names):
    """refluid: saving reads from servers."""
    folder = tempfile.mkdtemp(dir=job.case["folder"])
    program = fluid.default_main_program()
    fluid.io.save_params(job.exe, folder, program)
    scope = fluid.core.Scope()
    with fluid.scope_guard(scope):
        fluid.io.load_params(job.exe, folder, program)
        return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def read_by_receiving(job, names):
    """Real Fluid: receives what servers hold, outside of any round."""
    program, scope = fluid.Program(), fluid.core.Scope()
    held = {each.origin.name: each for each in job.transpiler.vars_overview.distributed_vars}
    for name in names:
        shape, endpoint = held[name].origin.shape, held[name].endpoint
        out = program.global_block().create_var(name=name, shape=shape, dtype="float32", persistable=True)
        attrs = {"epmap": [endpoint], "trainer_id": 0, "with_barrier": False}
        program.global_block().append_op(type="recv", inputs={"X": []}, outputs={"Out": [out]}, attrs=attrs)
    job.exe.run(program, scope=scope)
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def read_after_round(job, names):
    """Real Fluid in sync mode: a trainer has what its servers have, and looks tables up."""
    lookups = {}
    for op in job.program.global_block().ops:
        if op.type == "distributed_lookup_table":
            lookups[op.attr("table_names")[0]] = op
    values = Local.read(job, [name for name in names if name not in lookups])
    for name, op in lookups.items():
        values[name] = look_up(job, job.program.global_block().var(name), op)
    return values


def look_up(job, table, like):
    """All rows of a table, by an op like that of the program."""
    program, scope = fluid.Program(), fluid.core.Scope()
    block = program.global_block()
    with fluid.program_guard(program), fluid.scope_guard(scope):
        ids = fluid.layers.data("ids", [1], dtype="int64")
        w = block.create_var(name=table.name, shape=table.shape, dtype=table.dtype, persistable=True)
        scope.var(table.name).get_tensor().set(np.zeros(table.shape, "float32"), fluid.CPUPlace())
        out = block.create_var(name="rows", dtype=table.dtype)
        attrs = {name: like.attr(name) for name in like.attr_names}
        inputs = {"Ids": [ids], "W": [w]}
        block.append_op(type="distributed_lookup_table", inputs=inputs, outputs={"Outputs": [out]}, attrs=attrs)
        every = np.arange(table.shape[0]).reshape(-1, 1)
        return job.exe.run(program, feed={"ids": every}, fetch_list=[out])[0].reshape(table.shape)


def is_refluid():
    return "refluid" in sys.modules


def main():
    role, number, out = sys.argv[1], int(sys.argv[2]), sys.argv[4]
    cases = json.loads(Path(sys.argv[3]).read_text())
    found = {}
    for i, case in enumerate(cases):
        found.update({f"{i}/{name}": value for name, value in run(case, role, number).items()})
    np.savez(out, **found)


if __name__ == "__main__":
    main()
