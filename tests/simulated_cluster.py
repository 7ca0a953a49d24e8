"""A job in one process, without network: roles' programs cut at their exchanges, and arrays moved by hand.

What lies between exchanges runs as ordinary programs with plain executors, each role in a scope of its own.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

import paddle.fluid as fluid
from refluid.ir import OpRole, Program
from refluid.ir.slices import slices_of
from refluid.ops.core.values import SelectedRows
from refluid.scope import Scope
from refluid.transpiler.slices import join

EXE = fluid.Executor(fluid.CPUPlace())


def talks(op):
    return bool(op.role & (OpRole.RPC | OpRole.Dist))


class Role:
    """A process: a scope, and programs that run in it piece by piece."""

    def __init__(self):
        self.scope = Scope()
        self._pieces = {}

    def __getitem__(self, name):
        return self.scope.find_var(name).value

    def __setitem__(self, name, value):
        self.scope.var(name).value = value

    def pieces(self, program, blocks):
        """Ordinary programs, and lists of operators that are exchanges."""
        if program not in self._pieces:
            ops = [op for block in blocks for op in block.ops]
            groups = [(talking, list(group)) for talking, group in groupby(ops, key=talks)]
            self._pieces[program] = [group if talking else plain(program, group) for talking, group in groups]
        return self._pieces[program]

    def run(self, program, feed=None):
        names = {name for op in program.global_block().ops for name in op.input_arg_names}
        EXE.run(program, feed={name: feed[name] for name in names & set(feed or ())}, scope=self.scope)


def plain(program, ops):
    """These operators as a program that leaves all its variables in the scope."""
    copy = Program()
    copy.random_seed = program.random_seed
    block = copy.global_block()
    for variable in program.list_vars():
        variable.copy_to(block).persistable = True
    block.ops = [op.copy_to(block) for op in ops]
    return copy


class Server(Role):
    def __init__(self, program, startup):
        super().__init__()
        self.program = program
        self.listen = program.global_block().ops[-1]
        self.startup = startup
        self.pushes = {}
        self.run(plain(startup, startup.global_block().ops))

    def update(self):
        """Yields what it has of sums over servers, and is sent the sums."""
        for name in self.listen.input("X"):
            base, _, trainer = name.partition(".trainer_")
            self[name] = self.pushes[base][int(trainer or 0)]
        self.pushes.clear()
        for piece in self.pieces(self.program, self.listen.attr("optimize_blocks")):
            if isinstance(piece, Program):
                self.run(piece)
                continue
            assert {op.type for op in piece} == {"server_sum"}
            totals = yield {op.attr("key"): np.asarray(self[op.input("X")[0]]) for op in piece}
            for op in piece:
                self[op.output("Out")[0]] = totals[op.attr("key")]


def update_all(servers):
    """One round on every server; sums over servers are added up by hand."""
    running = {server: server.update() for server in servers}
    answers = dict.fromkeys(running)
    while running:
        asked = {}
        for server, update in list(running.items()):
            try:
                asked[server] = update.send(answers[server])
            except StopIteration:
                del running[server]
        if asked:
            (keys,) = {tuple(parts) for parts in asked.values()}
            totals = {key: sum(parts[key] for parts in asked.values()) for key in keys}
            answers = dict.fromkeys(asked, totals)


class Trainer(Role):
    def __init__(self, program, startup, servers):
        super().__init__()
        self.program, self.servers, self.received = program, servers, {}
        assert list(self.steps(startup, {}, pushing=False)) == []

    def step(self, feed):
        """Yields when its gradients are sent; goes on when the servers have updated."""
        return self.steps(self.program, feed)

    def steps(self, program, feed, pushing=True):
        for piece in self.pieces(program, [program.global_block()]):
            if isinstance(piece, Program):
                self.run(piece, feed)
                continue
            for op in piece:
                if pushing and op.type == "recv":  # in async mode, whoever has pushed is served at once
                    pushing = False
                    yield
                if op.type != "send_barrier":
                    getattr(self, "do_" + op.type)(op, feed)

    def holders(self, op, names):
        return zip(op.attr(names), (self.servers[endpoint] for endpoint in op.attr("epmap")), strict=True)

    def do_distributed_lookup_table(self, op, feed):
        table = np.concatenate([server[name] for name, server in self.holders(op, "table_names")])
        assert len(table) == sum(op.attr("height_sections"))
        for ids, out in zip(op.input("Ids"), op.output("Outputs"), strict=True):
            ids = np.asarray(feed[ids] if ids in feed else self[ids])
            ids = ids[..., 0] if op.attr("lookup_version") == 1 else ids
            found = table[ids]
            if op.attr("padding_idx") >= 0:
                found[ids == op.attr("padding_idx")] = 0
            self[out] = found

    def do_split_byref(self, op, feed):
        bounds = np.cumsum(op.attr("sections"))[:-1]
        for name, part in zip(op.output("Out"), np.split(np.asarray(self[op.input("X")[0]]), bounds), strict=True):
            self[name] = part

    def do_split_selected_rows(self, op, feed):
        rows = self[op.input("X")[0]]
        ids, values, start = np.asarray(rows.rows), np.asarray(rows.values), 0
        for name, height in zip(op.output("Out"), op.attr("height_sections"), strict=True):
            # Row `height` stands for no row: as many rows in every step, so that nothing is compiled again.
            here = (ids >= start) & (ids < start + height)
            self[name] = SelectedRows(np.where(here, ids - start, height), values, height)
            start += height

    def do_send(self, op, feed):
        if "geo_push_nums" in op.attrs:
            return self.send_changes(op, feed)
        names = op.input("X")
        if len(names) == 1 and len(op.attr("send_varnames")) > 1:  # cut on the way
            parts = np.split(np.asarray(self[names[0]]), np.cumsum(op.attr("sections"))[:-1])
        else:
            parts = [self[name] for name in names]
        for (name, server), part in zip(self.holders(op, "send_varnames"), parts, strict=True):
            if op.attr("offer"):
                assert server[name].shape == part.shape
                server[name] = np.asarray(part)
            else:
                server.pushes.setdefault(name, []).append(part)

    def send_changes(self, op, feed):
        """GEO: how far a parameter has moved since it was received, of tables in the rows that were looked up."""
        param, *ids = op.input("X")
        moved, start = np.asarray(self[param]) - self.received[param], 0
        touched = np.unique(np.concatenate([np.ravel(feed[name]) for name in ids])) if op.attr("is_sparse") else None
        for (name, server), rows in zip(self.holders(op, "send_varnames"), op.attr("sections"), strict=True):
            change = moved[start : start + rows]
            if touched is not None:
                here = touched[(touched >= start) & (touched < start + rows)] - start
                change = SelectedRows(here, change[here], rows)
            server.pushes.setdefault(f"{name}.delta", []).append(change)
            start += rows

    def do_recv(self, op, feed):
        parts = [np.asarray(server[name]) for name, server in self.holders(op, "recv_varnames")]
        if len(op.output("Out")) == 1:
            parts = [np.concatenate(parts)]
        for name, part in zip(op.output("Out"), parts, strict=True):
            self[name] = self.received[name] = part

    def do_fetch_barrier(self, op, feed):
        pass

    def do_concat(self, op, feed):
        self[op.output("Out")[0]] = np.concatenate([np.asarray(self[name]) for name in op.input("X")])

    def do_fake_init(self, op, feed):
        self.scope.erase([op.output("Out")[0]])


class Job:
    """All roles of a job, made by ``build`` and ``transpile`` as every process of its own would make them."""

    def __init__(self, build, servers=2, trainers=2, config=None, sync_mode=True):
        self.endpoints = [f"127.0.0.1:{6170 + place}" for place in range(servers)]
        self.servers, self.trainers = {}, []
        for trainer in range(trainers):
            main, startup = Program(), Program()
            with fluid.program_guard(main, startup), fluid.unique_name.guard():
                build()
                transpiler = fluid.DistributeTranspiler(config() if config else None)
                pservers = ",".join(self.endpoints)
                transpiler.transpile(trainer, pservers=pservers, trainers=trainers, sync_mode=sync_mode)
            if not self.servers:
                for endpoint in self.endpoints:
                    self.servers[endpoint] = Server(*map(reread, transpiler.get_pserver_programs(endpoint)))
            program = transpiler.get_trainer_program(wait_port=False)
            self.trainers.append(Trainer(reread(program), reread(startup), self.servers))

    def step(self, feeds):
        """One step of all trainers, in rounds."""
        steps = [trainer.step(feed) for trainer, feed in zip(self.trainers, feeds, strict=True)]
        for each in steps:
            next(each)
        update_all(self.servers.values())
        for each in steps:
            assert next(each, "over") == "over"

    def whole(self, name):
        """A variable put together from the slices that servers have of it."""
        held = [(piece, server) for server in self.servers.values() for piece in slices_of(server.program)]
        held = [(piece, server) for piece, server in held if piece.whole == name]
        if held[0][0].is_whole:  # a schedule or a power, which every server keeps for itself
            values = [np.asarray(server[piece.name]) for piece, server in held]
            assert all((value == values[0]).all() for value in values)
            return values[0]
        return join([np.asarray(server[piece.name]) for piece, server in held], [piece for piece, _ in held])


def reread(program):
    """A program after a trip through protobuf: what is not in there does not exist."""
    read = Program.parse_from_string(program.desc.serialize_to_string())
    read.random_seed = program.random_seed
    return read
