"""Starts one training job (servers and trainers on loopback) for the scripts that measure how a mode learns.

The modes and their settings are those of `ps.py`, plus `local`: one trainer, no server. `start` runs in the child
processes, under real Fluid (Python 3.7) and refluid alike; `run` starts them, under any Python, and collects what each
trainer handed to `report`.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict

import ps

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = ("tsync", "tasync", "sync", "async", "half_async", "geo")


class Trainer(object):
    """A trainer after start-up: `run` trains a step on `program`; `source` is the same program, not compiled."""

    def __init__(self, fluid, exe, source, fleet=None):
        self.fluid, self.exe, self.source, self.fleet = fluid, exe, source, fleet
        self.program = source

    def compile(self, a, loss):
        """CompiledProgram where the mode asks for it, with the settings of ps.py."""
        if a.mode not in ("sync", "half_async", "async"):
            return
        build, execution = self.fluid.BuildStrategy(), self.fluid.ExecutionStrategy()
        build.async_mode = True
        execution.num_threads = int(os.environ.get("CPU_NUM", "1"))
        if hasattr(execution, "use_thread_barrier"):
            execution.use_thread_barrier = a.mode in ("sync", "half_async")
        self.program = self.fluid.CompiledProgram(self.source).with_data_parallel(
            loss_name=loss.name, build_strategy=build, exec_strategy=execution
        )

    def run(self, feed, fetch):
        return self.exe.run(self.program, feed=feed, fetch_list=fetch)

    def close(self):
        if self.fleet is not None:
            self.fleet.stop_worker()
        else:
            self.exe.close()


def start(fluid, a, loss, optimizer, initialize):
    """The trainer of the default main program; None when this process was a server, after it has served.

    `initialize` sets the initial parameters, in servers and in trainers, after the initialisers of the startup program.
    """
    exe = fluid.Executor(fluid.CPUPlace())
    if a.mode == "local":
        optimizer.minimize(loss)
        _start_up(exe, fluid.default_startup_program(), initialize)
        trainer = Trainer(fluid, exe, fluid.default_main_program())
    elif a.mode in ("tsync", "tasync"):
        trainer = _transpiled(fluid, a, exe, loss, optimizer, initialize)
    else:
        trainer = _fleet(fluid, a, exe, loss, optimizer, initialize)
    if trainer is not None:
        trainer.compile(a, loss)
    return trainer


def _start_up(exe, program, initialize):
    """Runs a startup program with `initialize` after its initialisers and before it sends to servers or asks them.

    A trainer of real Fluid receives what the servers start with; one of refluid sends them its own values first.
    """
    kinds = [op.type for op in program.global_block().ops]
    exchange = [i for i, kind in enumerate(kinds) if kind in ("send", "recv", "split_byref")]
    cut = min(exchange) if exchange else len(kinds)
    exe.run(_without(program, range(cut, len(kinds))))
    initialize()
    if exchange:
        exe.run(_without(program, range(cut)))


def _without(program, indices):
    program = program.clone()
    for index in reversed(indices):
        program.global_block()._remove_op(index)
    return program


def _transpiled(fluid, a, exe, loss, optimizer, initialize):
    optimizer.minimize(loss)
    transpiler = fluid.DistributeTranspiler(ps.config(fluid, a))
    job = dict(pservers=a.eps, trainers=a.trainers, sync_mode=a.mode == "tsync")
    if a.role == "trainer":
        transpiler.transpile(a.id, **job)
        program = transpiler.get_trainer_program()
        _start_up(exe, fluid.default_startup_program(), initialize)
        return Trainer(fluid, exe, program)
    endpoint = a.eps.split(",")[a.id]
    transpiler.transpile(0, current_endpoint=endpoint, **job)
    program = transpiler.get_pserver_program(endpoint)
    exe.run(transpiler.get_startup_program(endpoint, program))
    initialize()
    exe.run(program)


def _fleet(fluid, a, exe, loss, optimizer, initialize):
    from paddle.fluid.incubate.fleet.base import role_maker
    from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet

    fleet.init(
        role_maker.UserDefinedRoleMaker(
            current_id=a.id,
            worker_num=a.trainers,
            server_endpoints=a.eps.split(","),
            role=role_maker.Role.WORKER if a.role == "trainer" else role_maker.Role.SERVER,
        )
    )
    fleet.distributed_optimizer(optimizer, ps.config(fluid, a)).minimize(loss)
    if a.role == "trainer":
        fleet.init_worker()
        _start_up(exe, fleet.startup_program, initialize)
        return Trainer(fluid, exe, fleet.main_program, fleet)
    fleet.init_server()
    initialize()
    fleet.run_server()


def report(a, **result):
    """Hands the result of this trainer to `run`."""
    path = os.path.join(a.sync_dir, "result.%d" % a.id)
    with open(path + ".part", "w") as f:
        json.dump(result, f)
    os.rename(path + ".part", path)


# ------------------------------------------------------------------- driver
def child_arguments(parser):
    """What `run` passes to every child."""
    parser.add_argument("--role", help="trainer or pserver: this process is a child")
    parser.add_argument("--id", type=int, default=0)
    parser.add_argument("--eps", default="")
    parser.add_argument("--sync-dir")
    parser.add_argument("--mode")
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--pservers", type=int, default=2)
    parser.add_argument("--push", type=int, default=20, help="steps between two pushes of GEO")
    parser.add_argument("--timeout", type=float, default=200)


def names(known):
    """The type of an argument that lists some of the `known` names, separated by commas."""

    def split(text):
        unknown = set(text.split(",")) - set(known)
        if unknown:
            raise argparse.ArgumentTypeError("unknown: %s; known: %s" % (", ".join(unknown), ", ".join(known)))
        return text.split(",")

    return split


def stop_children_when_terminated():
    """A driver that is terminated leaves through `finally`, which stops its servers and trainers."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def run(column, script, a, mode, extra, logs=None) -> Dict[str, Any]:
    """dict(trainers=[result of each], note): one job of `mode` under the interpreter of `column`."""
    trainers, pservers = (1, 0) if mode == "local" else (a.trainers, a.pservers)
    sync_dir = tempfile.mkdtemp(prefix="job")
    eps = ",".join("127.0.0.1:%d" % port for port in ps.free_ports(pservers))
    command = [column["py"], os.path.join(HERE, script), "--mode", mode, "--eps", eps, "--sync-dir", sync_dir]
    for name, value in (("trainers", trainers), ("pservers", pservers), ("push", a.push), ("timeout", a.timeout)):
        command += ["--" + name, str(value)]
    roles = [("pserver", i) for i in range(pservers)] + [("trainer", i) for i in range(trainers)]
    logs = logs or sync_dir
    if not os.path.isdir(logs):
        os.makedirs(logs)
    files = {role: open(os.path.join(logs, "%s-%s%d.log" % ((mode,) + role)), "w+") for role in roles}
    env = dict(os.environ, PYTHONUNBUFFERED="1", **column["env"])
    processes = {}
    try:
        for role, number in roles:
            processes[role, number] = subprocess.Popen(
                command + ["--role", role, "--id", str(number)] + extra,
                stdout=files[role, number],
                stderr=subprocess.STDOUT,
                cwd=HERE,
                env=env,
            )
        note = _wait(processes, a.timeout)
    except BaseException:
        shutil.rmtree(sync_dir, ignore_errors=True)
        raise
    finally:
        _stop(processes.values())
    results = []
    for i in range(trainers):
        path = os.path.join(sync_dir, "result.%d" % i)
        if os.path.exists(path):
            with open(path) as f:
                results.append(json.load(f))
    out: Dict[str, Any] = dict(trainers=results, note=note)
    if len(results) < trainers:
        out = dict(failed=note or "no result", error=_last_error(files.values()))
    for f in files.values():
        f.close()
    shutil.rmtree(sync_dir, ignore_errors=True)
    return out


def _wait(processes, timeout):
    """ "" when all processes ended by themselves, else what happened."""
    end = time.time() + timeout
    trainers = [p for (role, _), p in processes.items() if role == "trainer"]
    while any(p.poll() is None for p in trainers):
        if time.time() > end:
            return "timeout after %.0f s" % timeout
        if any(p.poll() not in (None, 0) for p in processes.values()):
            time.sleep(1)  # the others write their errors, too
            codes = ["%s%d: %s" % (key + (p.poll(),)) for key, p in processes.items() if p.poll() not in (None, 0)]
            return "crashed: " + ", ".join(codes)
        time.sleep(0.05)
    grace = time.time() + 3
    while any(p.poll() is None for p in processes.values()) and time.time() < grace:
        time.sleep(0.05)
    return "servers had to be stopped" if any(p.poll() is None for p in processes.values()) else ""


def _stop(processes):
    for p in processes:
        if p.poll() is None:
            p.terminate()
    end = time.time() + 1
    for p in processes:
        while p.poll() is None and time.time() < end:
            time.sleep(0.02)
        if p.poll() is None:
            p.kill()
        p.wait()


def _last_error(files):
    for f in files:
        f.seek(0)
        lines = [line.strip() for line in f if "rror:" in line or "Error" in line]
        if lines:
            return " | ".join(lines[-2:])[-400:]
    return ""


def column(spec):
    """An interpreter with environment settings before it, as run.py takes them."""
    words = spec.split()
    return dict(py=words[-1], env=dict(x.split("=", 1) for x in words[:-1]), name=spec)
