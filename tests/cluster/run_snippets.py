"""One process that plays the distributed snippets of Fluid's guides, one after the other:

    run_snippets.py ROLE ID ENDPOINTS.json FOLDER

The snippets are in tests/end_to_end/snippets/distributed, word for word. What is changed before they run is all here:
their addresses become loopback ones, numbers that a cluster gives become this process's own, fewer trainers take part,
and what they leave out with ``...`` or a comment is filled in. Each plays at endpoints of its own.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import paddle
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from refluid.runtime.trainer import session as sessions

SNIPPETS = Path(__file__).parents[1] / "end_to_end/snippets/distributed"
TRAINERS = 2


class Player:
    """This process in one snippet."""

    def __init__(self, role, number, endpoints, folder):
        self.is_server = role == "server"
        self.number, self.endpoints, self.folder = number, endpoints, folder
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.names = {
            "fluid": fluid,
            "paddle": paddle,
            "exe": self.exe,
            "place": fluid.CPUPlace(),
            "trainer_id": 0 if self.is_server else number,
            "trainers": TRAINERS,
            "pserver_endpoints": ",".join(endpoints),
            "current_endpoint": endpoints[number],
        }

    @property
    def role(self):
        return "PSERVER" if self.is_server else "TRAINER"

    def play(self, name, *changes, **names):
        """Runs a snippet with changes of its text; what it left behind."""
        text = (SNIPPETS / f"{name}.py").read_text()
        for before, after in changes:
            assert before in text, f"{name}: no {before!r}"
            text = text.replace(before, after)
        self.names.update(names)
        exec(compile(text, f"{name}.py", "exec"), self.names)
        return self.names

    def loss(self):
        """A model that feeds itself, as those of snippets without data do."""
        x = fluid.layers.uniform_random([8, 13], min=0.0, max=1.0)
        y = fluid.layers.reduce_sum(x, dim=1, keep_dim=True)
        return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))

    def train_loop(self, program, startup=None, steps=4):
        """What trainers do with their program."""
        self.exe.run(startup or fluid.default_startup_program())
        for _ in range(steps):
            self.exe.run(program)

    def serve(self, t):
        program = t.get_pserver_program(self.names["current_endpoint"])
        self.exe.run(t.get_startup_program(self.names["current_endpoint"], program))
        self.exe.run(program)

    def take_part(self, t):
        """Either of the two, where a snippet ends with `transpile`."""
        if self.is_server:
            self.serve(t)
        else:
            self.train_loop(t.get_trainer_program())

    def value(self, name="fc_0.w_0"):
        return np.array(fluid.global_scope().find_var(name).get_tensor()).reshape(-1).tolist()


def transpile_roles(player):
    fluid.optimizer.SGD(0.01).minimize(player.loss())
    first, second = player.endpoints
    player.play(
        "transpile_roles",
        ('role = "PSERVER"', f'role = "{player.role}"'),
        ("trainer_id = 0 ", f"trainer_id = {player.names['trainer_id']} "),
        ('current_endpoint = "192.168.1.1:6170"', f'current_endpoint = "{player.endpoints[player.number]}"'),
        ("192.168.1.1:6170,192.168.1.2:6170", f"{first},{second}"),
        ("trainers = 4", f"trainers = {TRAINERS}"),
        train_loop=player.train_loop,
    )


def transpile_by_keyword(player):
    fluid.optimizer.SGD(0.01).minimize(player.loss())
    names = player.play("transpile_by_keyword", PADDLE_TRAINING_ROLE=player.role, PADDLE_TRAINER_ROLE=player.role)
    if player.is_server:
        player.exe.run(names["t"].get_startup_program(player.names["current_endpoint"], names["pserver_prog"]))
        player.exe.run(names["pserver_prog"])
    else:
        player.train_loop(names["trainer_prog"])


def async_line(player):
    fluid.optimizer.SGD(0.01).minimize(player.loss())
    player.take_part(player.play("async_line", t=fluid.DistributeTranspiler())["t"])


def unsliced_line(player):
    fluid.optimizer.SGD(0.01).minimize(player.loss())
    player.take_part(player.play("unsliced_line", t=fluid.DistributeTranspiler())["t"])


def distributed_table(player):
    ids = fluid.layers.data("ids", [1], dtype="int64")
    names = player.play("distributed_table", input=ids, dict_size=100, embedding_width=4)
    loss = fluid.layers.mean(fluid.layers.fc(names["emb"], 1))
    fluid.optimizer.SGD(0.01).minimize(loss)
    t = fluid.DistributeTranspiler()
    t.transpile(
        **{name: player.names[name] for name in ("trainer_id", "trainers")}, pservers=",".join(player.endpoints)
    )
    if player.is_server:
        player.serve(t)
        return
    player.exe.run(fluid.default_startup_program())
    player.exe.run(t.get_trainer_program(), feed={"ids": np.arange(6).reshape(-1, 1)})


def memory_optimize(player):
    fluid.optimizer.SGD(0.01).minimize(player.loss())
    player.play(
        "memory_optimize",
        ("# start pserver here", "serve(t)"),
        ("# start trainer here", "train_loop(t.get_trainer_program())"),
        role=player.role,
        serve=player.serve,
        train_loop=player.train_loop,
    )


def fleet(player):
    def model():
        x = player.names["x"] = fluid.layers.data("x", [13])
        y = player.names["y"] = fluid.layers.data("y", [1], dtype="int64")
        predicted = fluid.layers.fc(x, 2, act="softmax")
        found = fluid.layers.auc(predicted, y)
        player.names["auc"], player.names["auc_batch"] = found[0], found[1]
        return fluid.layers.mean(fluid.layers.cross_entropy(predicted, y))

    def fake_reader():
        def read():
            random = np.random.RandomState(player.number)
            for _ in range(48):
                x = random.rand(13).astype("float32")
                yield x, int(x.sum() > 6.5)

        return read

    player.play("fleet_import")
    player.play(
        "fleet_role",
        ("current_id=0", f"current_id={player.number}"),
        ("Role.WORKER", "Role.SERVER" if player.is_server else "Role.WORKER"),
        ("worker_num=3", f"worker_num={TRAINERS}"),
        ('["127.0.0.1:6001","127.0.0.1:6002"]', repr(player.endpoints)),
        Role=Role,
        UserDefinedRoleMaker=UserDefinedRoleMaker,
    )
    config = fluid.DistributeTranspilerConfig
    player.play("fleet_optimizer", model=model, DistributeTranspilerConfig=config)
    player.play("fleet_train", fake_reader=fake_reader)


def save_by_trainer_0(player):
    fluid.optimizer.Momentum(0.01, 0.9).minimize(player.loss())
    t = fluid.DistributeTranspiler()
    t.transpile(player.names["trainer_id"], pservers=",".join(player.endpoints), trainers=TRAINERS)
    if player.is_server:
        player.serve(t)
        return
    train = "train_loop(fluid.default_main_program())\n"
    if player.number == 0:  # in the snippet every trainer is trainer 0
        save = "play_on()\n"
        found = {}

        def play_on():
            found["weight"] = player.value()
            player.play("save_by_trainer_0")
            (player.folder / "saved.json").write_text(json.dumps(found))
    else:
        save, play_on = "", None
    player.play("close", ("# training process ...", train + save), train_loop=player.train_loop, play_on=play_on)


def going_on(player, name, indentation=""):
    fluid.optimizer.Momentum(0.01, 0.9).minimize(player.loss())
    while not (player.folder / "saved.json").exists():
        time.sleep(0.02)
    saved = json.loads((player.folder / "saved.json").read_text())["weight"]
    first, second = player.endpoints

    def check_start():
        player.exe.run(fluid.default_startup_program())
        assert player.value() == saved

    here = f'current_endpoint = "{player.endpoints[player.number]}"'
    text = (SNIPPETS / f"{name}.py").read_text()
    given = "127.0.0.1:1001" if 'current_endpoint = "127.0.0.1:1001"' in text else "127.0.0.1:1002"
    player.play(
        name,
        (f'current_endpoint = "{given}"', here),
        ('"127.0.0.1:1001,127.0.0.1:1002"', f'"{first},{second}"'),
        ("trainers = 4", f"trainers = {TRAINERS}"),
        (f"    {indentation}exe.run(main_program)", "    check_start()\n    exe.run(main_program)"),
        training_role=player.role,
        check_start=check_start,
    )
    if not player.is_server:
        player.names["exe"].close()


def going_on_startup(player):
    going_on(player, "going_on_startup", indentation="        ")


def going_on_main(player):
    going_on(player, "going_on_main")


def oldest_whole(player):
    os.environ["PADDLE_TRAINER_ID"] = str(player.number)
    text = (SNIPPETS / "oldest_whole.py").read_text()
    _, server = text.split("# in pserver, run this")
    server, trainer = server.split("# in trainer, run this")
    other = trainer if player.is_server else server
    optimizer = fluid.optimizer.SGD(0.01)
    reader = lambda: iter([None])  # noqa: E731 - it stands where a reader stands
    names = {"sgd_optimizer": optimizer, "avg_cost": player.loss(), "train_reader": reader}
    player.play("oldest_whole", (other, "\n"), **names)


def oldest_roles(player):
    optimize_ops, params_grads = fluid.optimizer.SGD(0.01).minimize(player.loss())
    names = player.play(
        "oldest_roles",
        optimize_ops=optimize_ops,
        params_grads=params_grads,
        pserver=",".join(player.endpoints),
        server_endpoint=player.endpoints[player.number],
        training_role=player.role,
    )
    if player.is_server:
        player.exe.run(names["pserver_startup"])
        player.exe.run(names["pserver_prog"])
    else:
        player.train_loop(names["t"].get_trainer_program())


PLAYS = [
    transpile_roles,
    transpile_by_keyword,
    async_line,
    unsliced_line,
    distributed_table,
    memory_optimize,
    fleet,
    save_by_trainer_0,
    going_on_startup,
    going_on_main,
    oldest_whole,
    oldest_roles,
]


def main():
    role, number, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[4])
    endpoints = json.loads(Path(sys.argv[3]).read_text())
    os.chdir(folder)
    for play in PLAYS:
        programs = fluid.Program(), fluid.Program()
        with fluid.program_guard(*programs), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            play(Player(role, number, endpoints[play.__name__], folder))
        session = sessions.current()
        if session is not None:
            session.leave()
        print(f"played {play.__name__}", flush=True)


if __name__ == "__main__":
    main()
