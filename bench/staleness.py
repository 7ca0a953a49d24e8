"""Measures staleness from outside: which updates a step has seen, and which were applied before its own gradient was.

  python staleness.py --python PY1 --python PY2 [--work tiny dense] [mode ...]

The probe is a program whose gradient is constant. Each server holds one parameter with an element per trainer; the
loss of trainer t is the sum of its own elements, and SGD with rate 1 takes 1 off element t at every step of trainer t.
So parameters count updates: what a step reads tells exactly which steps of which trainer it has seen. It works on every
implementation, without any instrumentation. `--work` puts layers beside the probe, so that a step takes as long and
sends as much as a real one.

For step k of trainer t, which read the counts s:
  own      k - s[t]: its own earlier steps that it has not seen. Exact.
  others   a[o] - s[o] for the other trainers o, where a are the counts when the step was applied. All reads lie on the
           one path the server's parameter takes: the last read without the step and the first read with it bound a[o];
           the middle of the two counts.
  behind   the same in time: steps of anybody that were over when the step began (one clock, one machine), less those
           seen. For GEO, where every trainer reads a parameter of its own, it takes the place of `others`.
"""

import argparse
import json
import os
import sys
import time

import numpy as np

import common
import jobs
import ps

STEPS = dict(tiny=400, dense=60, idle=100)
WARMUP = dict(tiny=50, dense=5, idle=10)
SLOW = [0.3] * 3  # seconds before each of the last steps: the exchange catches up, and the counts show what a step is
IDLE = 0.01  # seconds a step of work "idle" sleeps: compute that leaves the cores to the exchange


# -------------------------------------------------------------------- child
def build(fluid, a):
    L = fluid.layers
    who = L.data("who", [a.trainers])
    one = L.reshape(L.reduce_sum(who, dim=[0]), [a.trainers])
    seen, loss = [], None
    for i in range(a.pservers):
        w = L.create_parameter(
            [a.trainers], "float32", name="count%d" % i, default_initializer=fluid.initializer.Constant(0.0)
        )
        # The copy is what the gradient comes from and what is fetched: exactly the version this step computes with.
        copy = L.scale(w, 1.0)
        seen.append(copy)
        part = L.reduce_sum(L.elementwise_mul(copy, one))
        loss = part if loss is None else L.elementwise_add(loss, part)
    if a.mode == "geo":
        # GEO of real Fluid pushes nothing unless the program has a sparse table.
        ids = L.data("ids", [1], dtype="int64")
        row = L.embedding(ids, [100, 8], is_sparse=True, param_attr=fluid.ParamAttr(name="table"))
        loss = L.elementwise_add(loss, L.reshape(L.scale(L.mean(row), 1e-6), [1]))
    if a.work == "dense":
        h = L.data("x", [1024])
        for size in (1500, 1500, 784):
            h = L.fc(h, size, act="relu")
        # The factor keeps the layers' own training at rate 1 away from overflow.
        loss = L.elementwise_add(loss, L.reshape(L.scale(L.mean(h), 1e-6), [1]))
    return loss, seen


def child(a):
    import paddle.fluid as fluid

    loss, seen = build(fluid, a)
    trainer = jobs.start(fluid, a, loss, fluid.optimizer.SGD(1.0), lambda: None)
    if trainer is None:
        return
    feed = dict(who=np.eye(a.trainers, dtype="float32")[a.id : a.id + 1])
    if a.work == "dense":
        feed["x"] = np.random.RandomState(a.id).rand(64, 1024).astype("float32")
    if a.mode == "geo":
        feed["ids"] = np.arange(a.id, a.id + 4, dtype="int64").reshape(4, 1)
    reads = []
    ps.barrier(a, "ready", a.trainers)
    for k in range(a.steps + WARMUP[a.work] + len(SLOW)):
        if k >= a.steps + WARMUP[a.work]:
            time.sleep(SLOW[0])
        begin = time.time()
        out = trainer.run(feed, seen)
        if a.work == "idle":
            time.sleep(IDLE)
        reads.append((begin, time.time(), [np.asarray(v).ravel()[: a.trainers].tolist() for v in out]))
    ps.barrier(a, "done", a.trainers)
    jobs.report(a, reads=reads)
    trainer.close()


# ----------------------------------------------------------------- analysis
def analyse(results, mode, warm):
    """dict(own, others, behind, rate): lists over the steps after warm-up, and what one update took off a count."""
    reads = [[np.array(r[2], dtype=float) for r in res["reads"]] for res in results]
    times = [[(r[0], r[1]) for r in res["reads"]] for res in results]
    unit = unit_of(reads)
    counts = [[np.round(-v / unit).astype(int) for v in r] for r in reads]  # [trainer][step][server, trainer]
    out = dict(own=[], others=[], behind=[], unit=unit)
    servers = counts[0][0].shape[0]
    for server in range(servers):
        path = sorted((tuple(c[server]) for r in counts for c in r), key=sum)
        for t, r in enumerate(counts):
            for k in range(warm, len(r) - len(SLOW)):
                s = r[k][server]
                out["own"].append(int(k - s[t]))
                begin = times[t][k][0]
                over = [sum(1 for x in times[o] if x[1] <= begin) for o in range(len(counts))]
                out["behind"].append(int(sum(over) - sum(s)))
                if mode != "geo":
                    bound = applied(path, t, k)
                    if bound is not None:
                        low, high = bound
                        out["others"].append(
                            sum((low[o] + high[o]) / 2.0 - s[o] for o in range(len(counts)) if o != t)
                        )
    return out


def applied(path, t, k):
    """The last counts without step k of trainer t and the first with it; None when no read came after it."""
    low, high = None, None
    for c in path:
        if c[t] <= k:
            low = c
        elif high is None:
            high = c
    if high is None:
        return None
    return (low or tuple(0 for _ in high)), high


def unit_of(reads):
    """What one step takes off its trainer's count: 1, or 1/trainers where the server averages.

    Merged steps that count less than their sum make another number; then `own` is no exact count of steps.
    """
    last = np.mean([-r[-1][0, t] / (len(r) - 1) for t, r in enumerate(reads)])
    for unit in (1.0, 1.0 / len(reads)):
        if abs(last - unit) < 0.1 * unit:
            return unit
    return float(last)


def summary(values):
    if not values:
        return "-"
    v = np.array(values)
    return "mean %6.2f  p50 %5.1f  p95 %5.1f  max %5.1f" % (v.mean(), np.median(v), np.percentile(v, 95), v.max())


def histogram(values, width=40):
    """One line per staleness, the long tail in powers of two."""
    edges = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 1 << 30]
    v = np.array(values)
    lines, total = [], float(len(v))
    for low, high in zip([-(1 << 30)] + edges, edges):
        n = int(((v >= low) & (v < high)).sum())
        if not n:
            continue
        label = "over 255" if low == 256 else "<0" if low < 0 else str(low) if high == low + 1 else "%d-%d" % (low, high - 1)
        lines.append("      %8s %5.1f %% %s" % (label, 100 * n / total, "#" * int(round(width * n / total))))
    return "\n".join(lines)


# ------------------------------------------------------------------- driver
def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.child_arguments(p)
    p.add_argument("--python", action="append", default=[])
    p.add_argument("--work", nargs="+", default=["tiny"], help="tiny | dense (20 MB of parameters) | idle (sleeps)")
    p.add_argument("--steps", type=int)
    p.add_argument("--logs", help="keep the logs in this directory")
    p.add_argument("--out", help="append every result to this JSON-lines file")
    p.add_argument("modes", nargs="*")
    a = p.parse_args()
    if a.role:
        a.work = a.work[0]
        return child(a)
    for spec in a.python or [sys.executable]:
        for work in a.work:
            for mode in a.modes or jobs.MODES:
                measure(a, jobs.column(spec), work, mode)


def measure(a, column, work, mode):
    steps = a.steps or STEPS[work]
    extra = ["--work", work, "--steps", str(steps)]
    result = jobs.run(column, "staleness.py", a, mode, extra, a.logs)
    print("%s  work %s  mode %s  %d servers, %d trainers" % (column["name"], work, mode, a.pservers, a.trainers))
    if "failed" in result:
        print("    failed: %s %s" % (result["failed"], result["error"]))
        return
    found = analyse(result["trainers"], mode, WARMUP[work])
    t = [r["reads"] for r in result["trainers"]]
    seconds = max(r[-1 - len(SLOW)][1] for r in t) - min(r[WARMUP[work]][0] for r in t)
    print("    %.2f ms per step and trainer; a step takes %g off its count" % (1000 * seconds / steps, found["unit"]))
    for key in ("own", "others", "behind"):
        print("    %-7s %s" % (key, summary(found[key])))
        if found[key]:
            print(histogram(found[key]))
    sys.stdout.flush()
    if a.out:
        with open(a.out, "a") as f:
            f.write(json.dumps(dict(found, python=column["name"], work=work, mode=mode, seconds=seconds)) + "\n")


if __name__ == "__main__":
    main()
