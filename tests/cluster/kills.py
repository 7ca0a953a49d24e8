"""Kills processes of a job at every stage of its life, and looks at what is left.

A run is a small job of `counting`, two servers and two trainers, in which SIGKILL ends some of them while they do
something: a *plan* says whom, when, and whether they are started again. It ends well if all trainers end and servers
hold exactly the pushes that count, or if trainers fail and name whom they miss. The processes are forked off one that
has imported everything, so that a run takes seconds; only a launcher starts real interpreters.
"""

import itertools
import json
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import paddle.fluid as fluid
from cluster import counting
from cluster.forked import Processes, free_ports
from refluid.runtime.launch.environment import Placement
from refluid.runtime.launch.launcher import Launcher, script_command

VICTIMS = ("trainer", "server", "server 0", "both", "launcher")
# Loading: servers read a saved model, and trainers receive what servers have.
PHASES = ("joining", "idle", "pushing", "barrier", "saving", "loading", "leaving")
MODES = ("sync", "half_async", "async", "geo")
TABLES = ("dense", "rows")
STEPS = 12
LIMIT = 90.0  # seconds from the last kill to the end; a job is to need 30 on a machine of its own
# Whom a trainer misses.
_NAMES = r"(server|from) 127\.0\.0\.1:\d+|still waiting for trainer \d|the job has failed: trainer \d"
FINISHED, FAILED, WRONG, HANGS = "finished", "failed by name", "WRONG", "HANGS"


@dataclass(frozen=True)
class Plan:
    """What happens in a run."""

    seed: int
    victim: str
    phase: str
    mode: str
    table: str  # with or without one
    logs: bool  # servers log updates, next to their snapshots
    returns: bool  # whoever is killed is started again
    twice: bool  # ... and killed once more while it starts
    delay: float  # seconds between the beginning of the phase and the kill
    push: int  # which push, if that is the phase

    @property
    def victims(self):
        """Roles and numbers."""
        return {
            "trainer": [("trainer", 1)],
            "server": [("server", 1)],
            "server 0": [("server", 0)],
            "both": [("server", 1), ("trainer", 1)],
        }.get(self.victim, [])

    @property
    def trigger(self):
        """The event that begins the phase, as `counting` writes it."""
        who = "trainer1" if self.victim in ("trainer", "both") else "trainer0"
        if self.phase == "loading":
            place = int(self.victim in ("server", "both"))
            return "trainer1 joining" if self.victim == "trainer" else f"server{place} loading"
        if self.phase == "saving":
            return "trainer1 saved" if who == "trainer1" else "trainer0 saving"
        return f"{who} pushing {self.push}" if self.phase == "pushing" else f"{who} {self.phase}"

    def __str__(self):
        marks = [("log", self.logs), ("returns", self.returns), ("twice", self.twice)]
        options = " ".join(name for name, chosen in marks if chosen)
        return f"{self.victim:9}{self.phase:9}{self.mode:11}{self.table:6}{options:18}"


def plan(seed):
    """The plan of a seed; seeds that follow each other go through all combinations."""
    cells = list(itertools.product(VICTIMS, PHASES, MODES, TABLES))
    random.Random(0).shuffle(cells)
    chance = random.Random(seed)
    victim, phase, mode, table = cells[seed % len(cells)]
    returns = victim == "launcher" or chance.random() < 0.8
    return Plan(
        seed,
        victim,
        phase,
        mode,
        table,
        logs=chance.random() < 0.7,
        returns=returns,
        twice=returns and victim != "launcher" and chance.random() < 0.15,
        delay=chance.choice([0.0, 0.003, 0.03, 0.3]) * chance.random(),
        push=chance.randrange(2, STEPS),
    )


def undisturbed():
    """Plans without a kill, one for each mode and table: what they compile, others find."""
    return [
        Plan(seed, "nobody", "idle", mode, table, logs=True, returns=True, twice=False, delay=0.0, push=1)
        for seed, (mode, table) in enumerate(itertools.product(MODES, TABLES), -len(MODES) * len(TABLES))
    ]


@dataclass
class Outcome:
    """How a run ended."""

    plan: Plan
    result: str
    seconds: float  # from the last kill to the end
    problem: str = ""

    def __str__(self):
        text = f"{self.plan.seed:5} {self.plan}{self.result:15}{self.seconds:6.1f} s"
        return f"{text}  {self.problem}" if self.problem else text


def run(plan, keep=None):
    """Runs a plan; the folder of a run that did not end well is kept below ``keep``."""
    folder = Path(tempfile.mkdtemp(prefix=f"kills{plan.seed}-", dir=keep))
    job = _Job(plan, folder)
    try:
        found = job.run()
    finally:
        job.end()
    if found.result in (FINISHED, FAILED) or keep is None:
        shutil.rmtree(folder)
    return found


class _Job:
    def __init__(self, plan, folder):
        self.plan, self.folder = plan, folder
        geo = plan.mode == "geo"
        table = {"dense": "sparse" if geo else "dense", "rows": "sparse" if geo else "growing"}[plan.table]
        self.case = {
            "endpoints": [f"127.0.0.1:{port}" for port in free_ports(2)],
            "trainers": 2,
            "steps": STEPS,
            "mode": plan.mode,
            "table": table,
            "events": str(folder / "events"),
            "saved": str(folder / "saved"),
            "found": str(folder / "found"),
        }
        if plan.phase == "loading":
            self.case["load"] = str(folder / "initial")
            _write_initial(self.case)
        self.path = folder / "case.json"
        self.path.write_text(json.dumps(self.case))
        (folder / "events").touch()
        self.settings = {
            "FLAGS_rpc_deadline": 25000 if plan.returns else 8000,
            "FLAGS_worker_update_interval_secs": 25 if plan.returns else 6,
            "FLAGS_rpc_rejoin_secs": 25 if plan.returns else 10,
            "FLAGS_rpc_join_secs": 25 if plan.returns else 15,
            "FLAGS_rpc_server_snapshots": str(folder / "snapshots"),
            "FLAGS_rpc_server_snapshot_secs": 0.5,
            "FLAGS_rpc_server_log": str(folder / "log") if plan.logs else "",
            "FLAGS_rpc_server_log_sync": False,
        }
        self.processes = Processes(folder, self.settings)
        self.was_over = False  # some that are killed had left: there may be nothing left to join

    def start(self, role, number):
        self.processes.start((role, number), partial(counting.main, self.path, role, number))

    def end(self):
        self.processes.end()

    # The run

    def run(self):
        if self.plan.victim == "launcher":
            return self.run_launcher()
        everyone = [("server", 0), ("server", 1), ("trainer", 0), ("trainer", 1)]
        for who in everyone:
            self.start(*who)
        self.await_event(self.plan.trigger)
        time.sleep(self.plan.delay)
        self.kill_victims()
        if self.plan.twice:
            time.sleep(2 * random.Random(self.plan.seed).random())
            self.kill_victims()
        killed = time.monotonic()
        trainers = [who for who in everyone if who[0] == "trainer"]
        if not self.processes.wait(LIMIT, trainers):
            left = ", ".join(f"{role} {number}" for role, number in self.processes.running)
            return Outcome(self.plan, HANGS, time.monotonic() - killed, f"{left} still running")
        seconds = time.monotonic() - killed
        self.processes.wait(10)  # as a launcher does
        return self.judge(seconds)

    def kill_victims(self):
        killed = [who for who in self.plan.victims if self.processes.kill(who)]
        events = self.events()
        self.was_over |= any(f"{role}{number} leaving" in events for role, number in killed)
        for who in killed if self.plan.returns else ():
            self.start(*who)

    def await_event(self, text):
        """Waits until a process has written an event, or a trainer has ended without it."""
        end = time.monotonic() + LIMIT
        while text not in self.events() and time.monotonic() < end:
            self.processes.reap()
            if any(role == "trainer" for role, _ in self.processes.ended):
                return
            time.sleep(0.002)

    def events(self):
        return Path(self.case["events"]).read_text().splitlines()

    def judge(self, seconds):
        errors = {
            who: _error_in(self.processes.output(who)) for who, code in sorted(self.processes.ended.items()) if code
        }
        for (role, number), error in errors.items():
            if not re.search(_NAMES, error):
                return Outcome(self.plan, WRONG, seconds, f"{role} {number} failed: {error[:150]}")
        if errors:
            if self.plan.returns and self.plan.phase != "leaving" and not self.was_over:
                first = next(iter(errors.values()))
                return Outcome(self.plan, WRONG, seconds, f"all were there again, but {first[:150]}")
            return Outcome(self.plan, FAILED, seconds)
        problem = check(self.case, self.plan, self.told_at_leaving())
        return Outcome(self.plan, WRONG if problem else FINISHED, seconds, problem)

    def told_at_leaving(self):
        """Trainer -> how many of its updates servers said were lost when it left."""
        told = Counter()
        for log in self.folder.glob("server*.log"):
            for trainer, lost in re.findall(r"whose last updates are lost.* trainer=(\d) lost=(\d+)", log.read_text()):
                told[int(trainer)] += int(lost)
        return told

    # A launcher

    def run_launcher(self):
        """The launcher is killed, which ends its processes; then the whole job is started again."""
        launcher = self.launch("first")
        self.await_event(self.plan.trigger)
        time.sleep(self.plan.delay)
        children = _children(launcher)
        self.processes.kill(("launcher", 0))
        killed = time.monotonic()
        while any(map(_is_alive, children)):
            if time.monotonic() > killed + 30:
                for child in children:
                    os.kill(child, signal.SIGKILL)
                return Outcome(self.plan, HANGS, 30, "processes outlive their launcher by 30 s")
            time.sleep(0.02)
        self.launch("second")
        began = time.monotonic()
        if not self.processes.wait(LIMIT):
            return Outcome(self.plan, HANGS, LIMIT, "the job that was started again does not end")
        if self.processes.ended["launcher", 0]:
            last = self.processes.output(("launcher", 0)).strip().splitlines()[-1]
            # One server may have removed what it had kept of a job that was over, and another one not yet.
            over = self.plan.phase == "leaving" and re.search(_NAMES, last)
            return Outcome(self.plan, FAILED if over else WRONG, time.monotonic() - began, "" if over else last)
        problem = check(self.case, self.plan)
        return Outcome(self.plan, WRONG if problem else FINISHED, time.monotonic() - began, problem)

    def launch(self, name):
        return self.processes.start(
            ("launcher", 0), partial(_launch, self.case, self.path, self.folder / name, self.settings)
        )


def check(case, plan, told=None):
    """What is wrong with the numbers on the servers; an empty text if nothing is.

    A parameter must have as many pushes of a trainer as the trainer knows to count on that server, less those that it
    was told are lost; a row as many as the parameters of a server.
    """
    found = {number: json.loads(path.read_text()) for number, path in _found(case)}
    if 0 not in found:
        return "the first trainer has not finished"
    last = max(_found(case), key=lambda pair: pair[1].stat().st_mtime_ns)[0]  # one that came back may push for longer
    parameters = {endpoint: np.array(held) - _initial(case) for endpoint, held in found[last]["parameters"]}
    for number, each in found.items():
        missing = 0.0
        for endpoint, held in parameters.items():
            counted = {other: found[other]["sequence"][endpoint] for other in found}
            if counted[number] < case["steps"]:
                return f"trainer {number} has pushed {counted[number]} times to {endpoint}"
            missing += counted[number] - _pushes(case, held, number, counted, each["lost"])
        own, leaving = reported = each["lost"], (told or {}).get(number, 0)  # the same ones, if it pushed no more, or
        if missing not in (own, max(reported), own + leaving) or (plan.logs and missing):  # lost after they were read
            return f"trainer {number}: {missing:g} pushes are missing, {reported} are reported as lost"
        for value in found[last]["rows"][number] if "rows" in found[last] else []:
            if value not in [held[number] for held in parameters.values()]:
                return f"trainer {number}: a row has {value}, parameters {parameters}"
    return ""


def _pushes(case, held, number, counted, lost):
    """How many pushes of a trainer are in a parameter; of as many others as know what they have pushed there."""
    if case["mode"] in ("async", "half_async"):
        return held[number]
    if case["mode"] == "geo":
        return _geo_pushes(held[number], counted[number], lost)
    shares, other = 2 * held, 1 - number  # what two trainers push counts half
    if other in counted:  # a round with one trainer counts whole
        return shares[number] - max(0, counted[number] - counted[other])
    return (shares[number] + shares[other]) / 2


def _geo_pushes(value, counted, lost):
    """The same in geo mode, where each of two trainers sends half of what it has learned and not sent yet.

    Its push number i brings 1 - 0.5**i. One that was started again begins anew, with pushes that a server passes over
    which has them of its predecessor; and a server loses pushes in a row.
    """
    for first, passed_over in itertools.combinations_with_replacement(range(counted, -1, -1), 2):
        pushes = [
            1 - 0.5**i for i in (*range(1, first + 1), *range(1 + passed_over, counted - first + 1 + passed_over))
        ]
        for missing in {0, lost}:
            for place in range(counted - missing + 1):
                if abs(sum(pushes[:place]) + sum(pushes[place + missing :]) - value) < 1e-5:
                    return counted - missing
    return np.nan


def _initial(case):
    return 5.0 if "load" in case else 0.0


def _found(case):
    return [(number, path) for number in (0, 1) if (path := Path(f"{case['found']}.{number}")).exists()]


def _error_in(log):
    """The last line of the last exception in a log."""
    lines = [line for line in log.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return lines[-1] if lines else log[-150:]


def _launch(case, path, logs, settings):
    """Runs the launcher, whose processes get the flags as variables."""
    os.environ.update({name: str(value) for name, value in settings.items()})
    trainers = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    command = script_command(counting.__file__, [str(path)])
    launcher = Launcher(Placement(tuple(case["endpoints"]), trainers), command, log_dir=logs, quiet=True)
    raise SystemExit(launcher.run())


def _write_initial(case):
    """A folder with parameters that servers load before they begin."""
    pid = os.fork()
    if pid == 0:
        _initialize(case)
    assert os.waitpid(pid, 0)[1] == 0, f"see {case['load']}"


def _initialize(case):
    code = 1
    try:
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            fluid.optimizer.SGD(1.0).minimize(counting.network(case))
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            for place in range(len(case["endpoints"])):
                tensor = fluid.global_scope().find_var(f"w{place}").get_tensor()
                tensor.set(np.array(tensor) + np.float32(5.0), fluid.CPUPlace())
            fluid.io.save_persistables(exe, case["load"], main)
        code = 0
    finally:
        os._exit(code)


def _children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
