"""Embedding tables: rows per second of kernels and of a real server, and the memory that a row takes.

    python tables.py                    # all; needs 6 GB of memory and a few minutes on two quiet cores
    python tables.py kernels server     # some of: kernels, scale, memory, missed, server
    python tables.py scale --most 1e7   # fewer rows

Times of kernels are CPU times of one thread; rows are used in random order.
"""

import argparse
import os
import resource
import socket
import subprocess
import sys
import time

import numpy as np

BATCH = 1 << 16  # ids of a call
WIDTH, ROWS = 10, 1_000_000  # of the server's table


def ids_of(numbers):
    """Ids that are scattered over all 64 bits."""
    return (np.asarray(numbers).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def made(rows, width, optimizer="sgd", l2=0.0, **form):
    """A table with rows."""
    from refluid.runtime.tables.records import RecordForm
    from refluid.runtime.tables.rules import OPTIMIZERS, Rule
    from refluid.runtime.tables.table import Table

    table = Table("bench", RecordForm(width, slots=OPTIMIZERS[optimizer].states, **form), Rule(optimizer, {}, l2=l2))
    grads = np.ones((BATCH, width), np.float32)
    for begin in range(0, rows, BATCH):
        ids = ids_of(np.arange(begin, min(begin + BATCH, rows)))
        table.update(ids, grads[: len(ids)], table.begin_step(0.1))
    return table


def batches(rows, count=16):
    """Batches of different ids, in random order."""
    random = np.random.RandomState(0)
    found = [np.unique(random.randint(0, rows, min(BATCH, rows // 2))) for _ in range(count)]
    return [ids_of(random.permutation(each)) for each in found]


def best(run, chosen, repeats=3):
    """CPU nanoseconds per row, in the fastest of some passes over all batches."""
    times = []
    for _ in range(repeats):
        began = time.thread_time()
        for ids in chosen:
            run(ids)
        times.append(time.thread_time() - began)
    return 1e9 * min(times) / sum(map(len, chosen))


def times_of(table, chosen):
    """Nanoseconds per row of lookups and of updates."""
    grads = np.random.RandomState(1).randn(BATCH, table.form.width).astype(np.float32)
    read = best(lambda ids: table.read(ids, creates=False), chosen)
    return read, best(lambda ids: table.update(ids, grads[: len(ids)], table.begin_step(0.1)), chosen)


def kernels(options):
    """Width 16, 5 M rows, one core."""
    chosen = batches(5_000_000)
    for optimizer, form in (("adagrad", {}), ("adam", {}), ("sgd", {}), ("sgd", {"precision": "bfloat16"})):
        read, update = times_of(made(5_000_000, 16, optimizer, **form), chosen)
        what = f"{optimizer} {form.get('precision', '')}".strip()
        print(f"{what:14} {1e3 / read:6.1f} M lookups/s  {1e3 / update:6.1f} M updates/s", flush=True)


def scale(options):
    """Width 4, SGD: time per row while a table grows."""
    times_of(made(1000, 4), batches(1000))  # loads the kernels
    rows = 10**5
    while rows <= options.most:
        began = time.thread_time()
        table = made(rows, 4)
        insert = 1e9 * (time.thread_time() - began) / rows
        read, update = times_of(table, batches(rows))
        print(f"{rows:11,} rows  insert {insert:5.0f} ns  lookup {read:5.0f} ns  update {update:5.0f} ns", flush=True)
        del table
        rows *= 10


def memory(options):
    """Bytes of a row: what the process takes, over what a row holds (id, weights, state, step and count)."""
    for width, optimizer in ((16, "adagrad"), (8, "sgd"), (8, "adam"), (64, "sgd")):
        for rows in (3_000_000, 5_000_000):
            before = resident()
            table = made(rows, width, optimizer)
            taken, form = (resident() - before) / rows, table.form
            weights = 4 * width * (1 + len(form.slots))
            print(
                f"width {width:2} {optimizer:8} {rows:,} rows: {taken:5.0f} bytes per row, {taken / form.bytes:.2f} of "
                f"the record ({form.bytes}), {taken / (8 + weights):.2f} of id, weights and state ({8 + weights})",
                flush=True,
            )
            del table


def missed(options):
    """Microseconds for a row that is new, or was not used, after a million steps."""
    for optimizer, l2 in (("sgd", 1e-6), ("momentum", 1e-6), ("momentum", 0.0), ("adam", 0.0), ("adam", 1e-6)):
        table = made(1000, 16, optimizer, l2)
        table.step += 10**6
        table.begin_step(0.1)
        for what, ids in (("new", ids_of(np.arange(10**6, 10**6 + 1000))), ("old", ids_of(np.arange(1000)))):
            began = time.thread_time()
            table.read(ids, creates=False)
            print(f"{optimizer} l2={l2:g} {what}: {1e3 * (time.thread_time() - began):.1f} us per row", flush=True)


def resident():
    """The memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def server(options):
    """One real server with rows of width 10, and one client or two, each on a connection of its own."""
    for clients in (1, 2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{free.getsockname()[1]}"
        command = [sys.executable, __file__, "--endpoint", endpoint, "--clients", str(clients), "--seconds"]
        command += [str(options.seconds), "--ids", str(options.ids)]
        serving = subprocess.Popen([*command, "--role", "server"])
        asking = [
            subprocess.Popen([*command, "--role", str(i)], stdout=subprocess.PIPE, text=True) for i in range(clients)
        ]
        figures = [each.communicate()[0].split()[-2:] for each in asking]
        serving.wait()
        rows = sum(float(figure[0]) for figure in figures)
        client = f"{figures[0][1]} ns of CPU per row on a client"
        print(
            f"{clients} client(s): {rows / 1e6:.2f} M rows/s in all, {client}; {options.ids} ids per request",
            flush=True,
        )


def play(options):
    """A process of `server`: the server itself, or a client."""
    import paddle.fluid as fluid

    ids = fluid.layers.data("ids", [1], dtype="int64")
    attr = fluid.ParamAttr("emb", initializer=fluid.initializer.Uniform(-1.0, 1.0))
    rows = fluid.layers.embedding(ids, [ROWS, WIDTH], is_sparse=True, is_distributed=True, param_attr=attr)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(rows))
    transpiler, exe = fluid.DistributeTranspiler(), fluid.Executor(fluid.CPUPlace())
    trainer = 0 if options.role == "server" else int(options.role)
    transpiler.transpile(trainer, pservers=options.endpoint, trainers=options.clients)
    if options.role == "server":
        main, startup = transpiler.get_pserver_programs(options.endpoint)
        exe.run(startup)
        exe.run(main)
        return
    exe.run(fluid.default_startup_program())
    for begin in range(0, ROWS, 100_000):
        exe.run(transpiler.get_trainer_program(), feed={"ids": np.arange(begin, begin + 100_000).reshape(-1, 1)})
    ask(fluid, options, np.random.RandomState(trainer))
    exe.close()


def ask(fluid, options, random):
    """Looks rows up for some seconds; prints rows per second, and CPU nanoseconds per row."""
    from refluid.runtime.trainer.row_requests import request_rows

    table = fluid.global_scope().find_var("emb").value
    wanted = [random.permutation(ROWS)[: options.ids].astype(np.int64) for _ in range(16)]
    request_rows(table.session, {"emb": (table.sliced, wanted[0])})
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < options.seconds:
        request_rows(table.session, {"emb": (table.sliced, wanted[count % 16])})
        count += 1
    rows, seconds = count * options.ids, time.perf_counter() - began
    print(f"{rows / seconds:.0f} {1e9 * (time.process_time() - cpu) / rows:.0f}", flush=True)


PARTS = {part.__name__: part for part in (kernels, scale, memory, missed, server)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--most", type=float, default=1e8, help="rows of the largest table of `scale`")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long clients ask the server")
    parser.add_argument("--ids", type=int, default=20_000, help="of a request")
    for hidden in ("--role", "--endpoint", "--clients"):
        parser.add_argument(hidden, help=argparse.SUPPRESS, type=int if hidden == "--clients" else str)
    arguments = parser.parse_args()
    if arguments.role:
        play(arguments)
    else:
        os.environ.setdefault("REFLUID_LOG", "warning")
        for name in arguments.parts or PARTS:
            print(f"{name}: {PARTS[name].__doc__}", flush=True)
            PARTS[name](arguments)
