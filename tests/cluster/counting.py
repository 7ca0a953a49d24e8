"""A job whose parameters count: every push of a trainer adds 1 to that trainer's places of all parameters.

    counting.py CASE.json [ROLE NUMBER]

So what servers hold at the end says, to the push, what was lost and what was applied twice. Without a role, the
variables of a launcher say it. A process writes what it is about to do to the case's ``events`` and, before it
leaves, what it found to ``found.NUMBER``; `kills` reads both. A trainer that is started again goes on after its last
push that counts.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import paddle.fluid as fluid
from refluid import flags
from refluid.runtime.trainer import session as sessions
from refluid.runtime.trainer.gather import gather, inventory
from refluid.tensors import RemoteArray

PER_TRAINER = 8  # ids of a trainer in the table, so that every server holds some of them


class Events:
    """What the processes of a job do, in one file that all append to."""

    def __init__(self, path, who):
        self._file, self._who = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), who

    def __call__(self, what):
        os.write(self._file, f"{self._who} {what}\n".encode())


def network(case):
    """One parameter on each server and, if the case says so, a table; gradients are -1 where the trainer is."""
    trainers = case["trainers"]
    size = case.get("size", trainers)
    x = fluid.layers.data("x", [size], append_batch_size=False)
    loss = None
    for number in range(len(case["endpoints"])):
        attr = fluid.ParamAttr(name=f"w{number}", initializer=fluid.initializer.Constant(0.0))
        part = fluid.layers.reduce_sum(x * fluid.layers.create_parameter([size], "float32", attr=attr))
        loss = part if loss is None else loss + part
    if case["table"] != "dense":
        ids = fluid.layers.data("ids", [PER_TRAINER, 1], dtype="int64", append_batch_size=False)
        attr = fluid.ParamAttr(name="table", initializer=fluid.initializer.Constant(0.0))
        size, grows = [PER_TRAINER * trainers, 2], case["table"] == "growing"
        rows = fluid.layers.embedding(ids, size, is_sparse=True, is_distributed=grows, param_attr=attr)
        loss = loss - fluid.layers.reduce_sum(rows)
    return loss


def transpiled(case, trainer, endpoint=""):
    """The transpiler of a process and the programs of a trainer."""
    main, startup = fluid.Program(), fluid.Program()
    mode = case["mode"]
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode, config.half_async, config.geo_sgd_mode = mode == "sync", mode == "half_async", mode == "geo"
    config.geo_sgd_need_push_nums = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = network(case)
        fluid.optimizer.SGD(1.0).minimize(loss)
        made = fluid.DistributeTranspiler(config)
        made.transpile(
            trainer,
            main,
            ",".join(case["endpoints"]),
            case["trainers"],
            sync_mode=mode == "sync",
            startup_program=startup,
            current_endpoint=endpoint,
        )
    return made, main, startup, loss


def serve(case, number, events):
    """A server, from its start to the last trainer's leave."""
    endpoint = case["endpoints"][number]
    made, *_ = transpiled(case, 0, endpoint)
    program = made.get_pserver_program(endpoint)
    exe = fluid.Executor(fluid.CPUPlace())
    events("joining")
    exe.run(made.get_startup_program(endpoint, program))
    if case.get("load"):
        events("loading")
        fluid.io.load_persistables(exe, case["load"], program)
    exe.run(program)


def train(case, number, events):
    """A trainer: steps, a rest, steps, a barrier, steps, a barrier, a save by the first trainer, and leaving."""
    flags.write_flag("FLAGS_communicator_max_merge_var_num", 1)  # a push is a step
    made, _, startup, _ = transpiled(case, number)
    exe = fluid.Executor(fluid.CPUPlace())
    program = made.get_trainer_program(wait_port=False)
    events("joining")
    exe.run(startup)
    session = sessions.current()
    feed = {"x": np.where(np.arange(case["trainers"]) == number, -1.0, 0.0).astype("float32")}
    if case["table"] != "dense":
        feed["ids"] = number * PER_TRAINER + np.arange(PER_TRAINER, dtype="int64").reshape(-1, 1)
    for goal in (case["steps"] // 2, case["steps"]):
        while (taken := min(session.sequence.values())) < goal and not _is_over(case):
            if taken == case["steps"] // 4:
                events("idle")
                time.sleep(case.get("rest", 0.2))
            events(f"pushing {taken + 1}")
            exe.run(program, feed=feed)
            session.flush()
        events("barrier")
        session.barrier()
    if number == 0:
        events("saving")
        fluid.io.save_persistables(exe, case["saved"], program)
    events("saved")
    session.barrier()
    held = values(case, session)  # a server that was restarted says only now what it has lost
    found = {"sequence": session.sequence, "lost": session.lost_updates, **held}
    Path(f"{case['found']}.{number}").write_text(json.dumps(found))
    events("leaving")
    exe.close()
    events("done")


def _is_over(case):
    return "over" in case and Path(case["over"]).exists()


def values(case, session):
    """What servers hold: of each parameter and the server that has it, and of all rows of the table."""
    slices = inventory(session)
    names = [f"w{place}" for place in range(len(case["endpoints"]))]
    held = {name: values.tolist() for name, values in gather(session, [slices[name] for name in names]).items()}
    found = {"parameters": [(slices[name][0].endpoint, held[name]) for name in names]}
    if case["table"] != "dense":
        table = fluid.global_scope().find_var("table").value
        ids = np.arange(PER_TRAINER * case["trainers"])
        rows = table.read_rows(ids) if isinstance(table, RemoteArray) else gather(session, [slices["table"]])["table"]
        found["rows"] = np.asarray(rows)[:, 0].reshape(case["trainers"], PER_TRAINER).tolist()
    return found


def main(path, role=None, number=None):
    """Runs one process of the job."""
    case = json.loads(Path(path).read_text())
    if role is None:
        role = "server" if os.environ["TRAINING_ROLE"] == "PSERVER" else "trainer"
        number = os.environ["PADDLE_TRAINER_ID"]
        if role == "server":
            number = case["endpoints"].index(os.environ["PADDLE_CURRENT_ENDPOINT"])
    events = Events(case["events"], f"{role}{number}")
    (serve if role == "server" else train)(case, int(number), events)


if __name__ == "__main__":
    main(*sys.argv[1:])
