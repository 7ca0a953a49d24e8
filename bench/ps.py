"""Parameter-server training on loopback: starts pservers and trainers.

  python ps.py --model ctr_dnn --mode async
Modes: tsync, tasync         DistributeTranspiler used directly
       sync, async, half_async, geo   fleet (parameter_server.distribute_transpiler)
--input queue trains by Executor.train_from_dataset on MultiSlot files instead of Executor.run(feed=...).
All modes use SGD; PS_OPT=own takes the workload's own optimizer.
Prints one JSON line: samples/s summed over the trainers, final loss (mean of
the last 20 steps of trainer 0), peak memory of a trainer and of a pserver.
"""

import argparse
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

import common

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = dict(fit_a_line=1000, wide_mlp=60, ctr_dnn=60, word2vec=200)
RATE = dict(fit_a_line=0.01, wide_mlp=0.01, ctr_dnn=0.1, word2vec=4.0)
WARMUP = dict(fit_a_line=100, wide_mlp=5, ctr_dnn=5, word2vec=10)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="fit_a_line")
    p.add_argument("--mode", default="tsync")
    p.add_argument("--pservers", type=int, default=2)
    p.add_argument("--trainers", type=int, default=2)
    p.add_argument("--steps", type=int)
    p.add_argument("--runner", default="auto", help="plain | compiled (CompiledProgram, async_mode) | auto")
    p.add_argument("--push", type=int, default=20, help="geo push interval")
    p.add_argument("--input", default="feed", help="feed | queue (QueueDataset, train_from_dataset)")
    p.add_argument("--timeout", type=float, default=120)
    p.add_argument("--grace", type=float, default=3, help="seconds to let the pservers exit by themselves")
    p.add_argument("--logs", help="keep the logs in this directory")
    p.add_argument("--role")
    p.add_argument("--id", type=int, default=0)
    p.add_argument("--eps")
    p.add_argument("--sync-dir")
    return p.parse_args()


# ---------------------------------------------------------------- processes
def barrier(a, name, n):
    """All trainers meet before timing starts (files, not the PS itself)."""
    open(os.path.join(a.sync_dir, "%s.%d" % (name, a.id)), "w").close()
    end = time.time() + a.timeout
    while time.time() < end:
        if sum(f.startswith(name + ".") for f in os.listdir(a.sync_dir)) >= n:
            return
        time.sleep(0.01)
    raise RuntimeError("barrier %s timed out" % name)


def config(fluid, a):
    c = fluid.DistributeTranspilerConfig()
    if a.mode in ("tsync", "sync"):
        c.sync_mode = True
    else:
        c.sync_mode = False
        if a.mode != "tasync":
            c.runtime_split_send_recv = True
    if a.mode == "half_async":
        c.half_async = True
    if a.mode == "geo":
        c.geo_sgd_mode = True
        c.geo_sgd_need_push_nums = a.push
    return c


def child(a):
    import paddle.fluid as fluid

    mod = importlib.import_module(a.model)
    eps = a.eps.split(",")
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    fluid.default_main_program().random_seed = common.SEED
    fluid.default_startup_program().random_seed = common.SEED
    net = mod.build(fluid)
    opt = mod.optimizer(fluid)
    if os.environ.get("PS_OPT") != "own":  # the same optimizer in all modes
        opt = fluid.optimizer.SGD(RATE[a.model])
    fleet = None
    if a.mode in ("tsync", "tasync"):
        opt.minimize(net["loss"])
        t = fluid.DistributeTranspiler(config(fluid, a))
        kw = dict(pservers=a.eps, trainers=a.trainers, sync_mode=a.mode == "tsync")
        if a.role == "pserver":
            t.transpile(0, current_endpoint=eps[a.id], **kw)
            prog = t.get_pserver_program(eps[a.id])
            exe.run(t.get_startup_program(eps[a.id], prog))
            exe.run(prog)
            return
        t.transpile(a.id, **kw)
        main = t.get_trainer_program()
        exe.run(fluid.default_startup_program())
    else:
        from paddle.fluid.incubate.fleet.base import role_maker
        from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet

        role = role_maker.UserDefinedRoleMaker(
            current_id=a.id,
            worker_num=a.trainers,
            server_endpoints=eps,
            role=(role_maker.Role.SERVER if a.role == "pserver" else role_maker.Role.WORKER),
        )
        fleet.init(role)
        opt = fleet.distributed_optimizer(opt, config(fluid, a))
        opt.minimize(net["loss"])
        if a.role == "pserver":
            fleet.init_server()
            fleet.run_server()
            return
        fleet.init_worker()
        exe.run(fleet.startup_program)
        main = fleet.main_program
    if a.input == "queue":
        train_on_files(fluid, a, mod, net, exe, main, place)
        barrier(a, "done", a.trainers)
        return fleet.stop_worker() if fleet is not None else exe.close()
    runner = a.runner
    if runner == "auto":
        runner = "compiled" if a.mode in ("sync", "half_async", "async") else "plain"
    if runner == "compiled":
        bs, es = fluid.BuildStrategy(), fluid.ExecutionStrategy()
        bs.async_mode = fleet is not None
        es.num_threads = int(os.environ.get("CPU_NUM", "1"))
        if hasattr(es, "use_thread_barrier"):
            es.use_thread_barrier = a.mode in ("sync", "half_async")
        main = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=net["loss"].name, build_strategy=bs, exec_strategy=es
        )
    ctx = common.Ctx(fluid, net["feed"], place)
    to_feed = getattr(mod, "to_feed", common.default_to_feed)
    steps, warm = a.steps or STEPS[a.model], WARMUP[a.model]
    batches = mod.data(steps + warm, common.SEED + 1 + a.id)
    losses = []
    barrier(a, "ready", a.trainers)
    for i in range(steps + warm):
        if i == warm:
            start, cpu = time.time(), os.times()
        out = exe.run(main, feed=to_feed(ctx, batches[i]), fetch_list=[net["loss"]])
        losses.append(float(np.mean(out[0])))
    end, c2 = time.time(), os.times()
    common.emit(
        trainer=a.id,
        start=start,
        end=end,
        steps=steps,
        samples=steps * mod.BATCH,
        first_loss=losses[0],
        loss=float(np.mean(losses[-20:])),
        rss=common.peak_rss_mb(),
        cpu=c2[0] + c2[1] - cpu[0] - cpu[1],
    )
    barrier(a, "done", a.trainers)
    if fleet is not None:
        fleet.stop_worker()
    else:
        exe.close()


def train_on_files(fluid, a, mod, net, exe, main, place):
    """One pass over a few batches that are not timed, and one that is."""
    steps, warm = a.steps or STEPS[a.model], WARMUP[a.model]
    batches = mod.data(steps + warm, common.SEED + 1 + a.id)
    folder = os.path.join(a.sync_dir, "trainer%d" % a.id)
    os.mkdir(folder)
    os.chdir(folder)  # real Fluid writes *_train_desc.prototxt to the current directory
    sets = []
    for name, part in (("warm", batches[:warm]), ("pass", batches[warm:])):
        with open(name, "w") as f:
            for sample in (sample for batch in part for sample in mod.samples(batch)):
                f.write(" ".join("%d %s" % (len(v), " ".join(map(str, v))) for v in sample) + "\n")
        dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
        dataset.set_use_var(net["feed"])
        dataset.set_pipe_command("cat")
        dataset.set_batch_size(mod.BATCH)
        dataset.set_thread(1)
        dataset.set_filelist([os.path.join(folder, name)])
        sets.append(dataset)
    ctx = common.Ctx(fluid, net["feed"], place)
    feed = getattr(mod, "to_feed", common.default_to_feed)(ctx, batches[0])
    first = exe.run(main, feed=feed, fetch_list=[net["loss"]])
    exe.train_from_dataset(main, sets[0], thread=1)
    barrier(a, "ready", a.trainers)
    start, cpu = time.time(), os.times()
    exe.train_from_dataset(main, sets[1], thread=1)
    end, c2 = time.time(), os.times()
    last = exe.run(main, feed=feed, fetch_list=[net["loss"]])
    common.emit(
        trainer=a.id,
        start=start,
        end=end,
        steps=steps,
        samples=steps * mod.BATCH,
        first_loss=float(np.mean(first[0])),
        loss=float(np.mean(last[0])),
        rss=common.peak_rss_mb(),
        cpu=c2[0] + c2[1] - cpu[0] - cpu[1],
    )


# ------------------------------------------------------------------- driver
def free_ports(n):
    socks = [socket.socket() for _ in range(n)]
    for s in socks:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return ports


def drive(a):
    sync_dir = tempfile.mkdtemp(prefix="psbench")
    logs = a.logs or sync_dir
    if not os.path.isdir(logs):
        os.makedirs(logs)
    eps = ",".join("127.0.0.1:%d" % p for p in free_ports(a.pservers))
    procs, files = [], []

    def start(role, i):
        cmd = [
            sys.executable,
            os.path.abspath(__file__),
            "--role",
            role,
            "--id",
            str(i),
            "--eps",
            eps,
            "--sync-dir",
            sync_dir,
            "--model",
            a.model,
            "--mode",
            a.mode,
            "--runner",
            a.runner,
            "--push",
            str(a.push),
            "--input",
            a.input,
            "--timeout",
            str(a.timeout),
            "--pservers",
            str(a.pservers),
            "--trainers",
            str(a.trainers),
        ]
        if a.steps:
            cmd += ["--steps", str(a.steps)]
        path = os.path.join(logs, "%s-%s-%s%d.log" % (a.model, a.mode, role, i))
        f = open(path, "w+")
        files.append(f)
        p = subprocess.Popen(
            cmd, stdout=f, stderr=subprocess.STDOUT, cwd=HERE, env=dict(os.environ, PYTHONUNBUFFERED="1")
        )
        procs.append(p)
        return p, f

    t0, c0 = time.time(), common.cpu_clock()
    servers = [start("pserver", i) for i in range(a.pservers)]
    trainers = [start("trainer", i) for i in range(a.trainers)]
    end, rss, note = time.time() + a.timeout, 0, ""
    try:
        while any(p.poll() is None for p, _ in trainers):
            rss = max([rss] + [common.peak_rss_mb(p.pid) or 0 for p, _ in servers])
            if time.time() > end:
                note = "timeout"
                break
            if any(p.poll() not in (None, 0) for p, _ in trainers + servers):
                note = "crashed: " + ",".join(str(p.poll()) for p, _ in trainers + servers)
                time.sleep(2)
                break
            time.sleep(0.1)
        if not note:
            stop = time.time() + a.grace
            while any(p.poll() is None for p, _ in servers) and time.time() < stop:
                time.sleep(0.1)
            if any(p.poll() is None for p, _ in servers):
                note = "pservers had to be terminated"
    finally:
        for p in procs:
            if p.poll() is None:
                p.terminate()
        time.sleep(0.3)
        for p in procs:
            if p.poll() is None:
                p.kill()
            p.wait()
    c1 = common.cpu_clock()
    other = (c1[0] - c0[0] - (c1[1] - c0[1])) / (time.time() - t0)
    rows = []
    for _, f in trainers:
        f.seek(0)
        rows += [json.loads(l) for l in f if l.startswith('{"cpu"')]
    name = "ps_%s_%s" % (a.model, a.mode)
    if "1" in (os.environ.get("CTR_DISTRIBUTED"), os.environ.get("W2V_DISTRIBUTED")):
        name += "_dist"
    if a.input != "feed":
        name += "_" + a.input
    if len(rows) < a.trainers:
        tail = ""
        for f in files:
            f.seek(0)
            lines = [l.rstrip() for l in f if "Error" in l or "rror:" in l]
            tail = tail or " | ".join(lines[-2:])[-400:]
        common.emit(workload=name, failed=note or "no result", error=tail)
        code = 1
    else:
        wall = max(r["end"] for r in rows) - min(r["start"] for r in rows)
        rate = sum(r["samples"] for r in rows) / wall
        lead = min(rows, key=lambda r: r["trainer"])
        common.emit(
            workload=name,
            samples_per_s=round(rate, 1),
            steps_per_s=round(sum(r["steps"] for r in rows) / wall, 2),
            final_loss=round(lead["loss"], 5),
            first_loss=round(lead["first_loss"], 5),
            peak_rss_mb=max(r["rss"] for r in rows),
            pserver_rss_mb=rss,
            trainer_cpu_ms_per_step=round(sum(r["cpu"] for r in rows) * 1000 / sum(r["steps"] for r in rows), 2),
            other_load=round(max(0.0, other), 2),
            wall_s=round(wall, 2),
            note=note,
        )
        code = 0
    for f in files:
        f.close()
    shutil.rmtree(sync_dir, ignore_errors=True)
    return code


if __name__ == "__main__":
    A = parse()
    if A.role:
        child(A)
    else:
        sys.exit(drive(A))
