"""Measures staleness from outside: which updates a step has seen, and which were applied before its own gradient was.

  python staleness.py --python PY1 --python PY2 [--models none,fit_a_line,wide_mlp,ctr_dnn] [--plot x.svg] [mode ...]

The probe is a program whose gradient is constant. Each server holds one parameter with an element per trainer; the
loss of trainer t is the sum of its own elements, and SGD with rate 1 takes 1 off element t at every step of trainer t.
So parameters count updates: what a step reads tells exactly which steps of which trainer it has seen. It works on every
implementation, without any instrumentation. --models trains a model beside the probe, at its usual learning rate, so
that a step takes as long and sends as much as a real one; `none` is the probe alone.

For step k of trainer t, which read the counts s:
  own      k - s[t]: its own earlier steps that it has not seen. Exact.
  others   a[o] - s[o], summed over the other trainers o, where a are the counts when the step was applied. All reads lie
           on the one path that the server's parameter takes: the last read without the step and the first read with it
           bound a[o]; the middle of the two is taken. In sync modes a round is applied at once, so it is the former.
           In GEO every trainer reads a parameter of its own, and there is no such path: there it is the number of steps
           that the others had finished when the step began (one clock, one machine), less those it has seen.
"""

import argparse
import bisect
import importlib
import json
import sys
import time
from typing import Any, Dict

import numpy as np

import common
import histograms
import jobs
import ps

STEPS = dict(none=400, fit_a_line=400, wide_mlp=60, ctr_dnn=60)
WARMUP = dict(none=50, fit_a_line=50, wide_mlp=10, ctr_dnn=10)  # compilations are over; not counted
SLOW = [
    0.3
] * 3  # seconds before each of the last steps: the exchange catches up, and the counts show what a step takes
DRAWN = [0, 1, 2, 3, 4, 8, 16, 32]
EDGES = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256]  # bins of the histogram


# -------------------------------------------------------------------- child
def build(fluid, a):
    """The loss of the probe, and what to fetch: the counts this step computes with."""
    L = fluid.layers
    who = L.data("who", [a.trainers])
    mine = L.reshape(L.reduce_sum(who, dim=[0]), [a.trainers])
    seen, loss = [], None
    for i in range(a.pservers):
        zeros = fluid.initializer.Constant(0.0)
        count = L.create_parameter([a.trainers], "float32", name="count%d" % i, default_initializer=zeros)
        # A copy, because parameters may arrive during the step: the one read that is fetched and computed with.
        copy = L.scale(count, 1.0)
        seen.append(copy)
        part = L.reduce_sum(L.elementwise_mul(copy, mine))
        loss = part if loss is None else L.elementwise_add(loss, part)
    return loss, seen


def add_table(fluid, loss):
    """Real Fluid's GEO exchanges nothing, dense parameters included, unless the program has a sparse table."""
    L = fluid.layers
    ids = L.data("ids", [1], dtype="int64")
    row = L.embedding(ids, [100, 8], is_sparse=True, param_attr=fluid.ParamAttr(name="probe_table"))
    return added(fluid, loss, L.mean(row), 1e-6)


def added(fluid, loss, other, factor):
    return fluid.layers.elementwise_add(loss, fluid.layers.reshape(fluid.layers.scale(other, factor), [1]))


def child(a):
    import paddle.fluid as fluid

    loss, seen = build(fluid, a)
    feed = dict(who=np.eye(a.trainers, dtype="float32")[a.id : a.id + 1])
    if a.mode == "geo":
        loss = add_table(fluid, loss)
        feed["ids"] = np.arange(a.id, a.id + 4, dtype="int64").reshape(4, 1)
    model, net = None, {}
    if a.model != "none":
        model = importlib.import_module(a.model)
        net = model.build(fluid)
        # The rate of SGD is 1 for the counts; the model's own is a factor of its loss.
        loss = added(fluid, loss, net["loss"], ps.RATE[a.model])
    trainer = jobs.start(fluid, a, loss, fluid.optimizer.SGD(1.0), lambda: None)
    if trainer is None:
        return
    steps = a.steps + WARMUP[a.model]
    feeds = [feed] * (steps + len(SLOW))
    if model is not None:
        context = common.Ctx(fluid, net["feed"], fluid.CPUPlace())
        to_feed = getattr(model, "to_feed", common.default_to_feed)
        feeds = [dict(feed, **to_feed(context, b)) for b in model.data(len(feeds), common.SEED + 1 + a.id)]
    reads = []
    ps.barrier(a, "ready", a.trainers)
    for k, values in enumerate(feeds):
        if k >= steps:
            time.sleep(SLOW[k - steps])
        begin = time.time()
        out = trainer.run(values, seen)
        reads.append((begin, time.time(), [np.asarray(v).ravel()[: a.trainers].tolist() for v in out]))
    ps.barrier(a, "done", a.trainers)
    jobs.report(a, reads=reads)
    trainer.close()


# ----------------------------------------------------------------- analysis
def analyse(reads, mode, warm):
    """dict(own, others, unit) from [trainer][step] = (begin, end, [server][trainer] of what the step read)."""
    unit = unit_of(reads)
    counts = [
        np.round(-np.array([r[2] for r in steps]) / unit, 0) for steps in reads
    ]  # [trainer][step, server, trainer]
    own, others = [], []
    for server in range(counts[0].shape[1]):
        at = [c[:, server] for c in counts]
        path = np.array(sorted((tuple(row) for rows in at for row in rows), key=sum))
        for t, rows in enumerate(at):
            rest = [o for o in range(len(at)) if o != t]
            for k in range(warm, len(rows) - len(SLOW)):
                own.append(float(k - rows[k, t]))
                if mode == "geo":
                    there = [bisect.bisect_right([r[1] for r in reads[o]], reads[t][k][0]) for o in rest]
                else:
                    there = applied(path, t, k, in_rounds=unit < 1)[rest]
                others.append(float(np.sum(there) - rows[k, rest].sum()))
    return dict(own=own, others=others, unit=unit)


def applied(path, t, k, in_rounds):
    """The counts at which step k of trainer t was applied."""
    before, after = path[path[:, t] <= k], path[path[:, t] > k]
    if in_rounds:
        return before[-1]
    return (before[-1] + after[0]) / 2.0


def unit_of(reads):
    """What one step takes off its trainer's count: 1, or 1/trainers where the server averages.

    Another number says that merged steps count for less than their sum; `own` is then no exact number of steps.
    """
    last = float(np.mean([-steps[-1][2][0][t] / (len(steps) - 1) for t, steps in enumerate(reads)]))
    for unit in (1.0, 1.0 / len(reads)):
        if abs(last - unit) < 0.1 * unit:
            return unit
    return last


def summary(values):
    v = np.array(values)
    return "mean %6.2f  p50 %5.1f  p95 %5.1f  max %5.1f" % (v.mean(), np.median(v), np.percentile(v, 95), v.max())


def histogram(values, width=40):
    """A line for each bin that is not empty."""
    lines = []
    for low, high in zip([None] + EDGES, EDGES + [None]):
        n = sum((low is None or v >= low) and (high is None or v < high) for v in values)
        if not n:
            continue
        share = n / float(len(values))
        label = "below 0" if low is None else "%d or more" % low if high is None else str(low)
        if low is not None and high is not None and high > low + 1:
            label = "%d-%d" % (low, high - 1)
        lines.append("      %11s %5.1f %% %s" % (label, 100 * share, "#" * int(round(width * share))))
    return "\n".join(lines)


# ------------------------------------------------------------------- driver
def measure(a, column, model, mode) -> Dict[str, Any]:
    """The result of `analyse` with the milliseconds of a step, or dict(failed, error)."""
    steps = a.steps or STEPS[model]
    result = jobs.run(column, "staleness.py", a, mode, ["--model", model, "--steps", str(steps)], a.logs)
    if "failed" not in result:
        reads = [r["reads"] for r in result["trainers"]]
        found = analyse(reads, mode, WARMUP[model])
        span = max(r[-1 - len(SLOW)][1] for r in reads) - min(r[WARMUP[model]][0] for r in reads)
        result = dict(found, step_ms=1000 * span / steps)
    if a.out:
        with open(a.out, "a") as f:
            f.write(json.dumps(dict(result, python=column["name"], model=model, mode=mode, probe="staleness")) + "\n")
    return result


def brief(found):
    """One line, for time_to_loss.py."""
    if "failed" in found:
        return "staleness: failed: %s %s" % (found["failed"], found["error"])
    return "staleness: own %s; others %s" % (summary(found["own"]), summary(found["others"]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.child_arguments(p)
    p.add_argument("--python", action="append", default=[])
    p.add_argument("--models", default=["none"], type=jobs.names(STEPS), help="separated by commas")
    p.add_argument("--steps", type=int)
    p.add_argument("--logs", help="keep the logs in this directory")
    p.add_argument("--out", help="append every result to this JSON-lines file")
    p.add_argument("--plot", help="draw the sums of both kinds to this SVG file")
    p.add_argument("--model", help=argparse.SUPPRESS)
    p.add_argument("modes", nargs="*")
    a = p.parse_args()
    if a.role:
        return child(a)
    jobs.stop_children_when_terminated()
    panels = []
    for model in a.models:
        for mode in a.modes or jobs.MODES:
            panels.append(("%s, %s" % (model, mode), []))
            for spec in a.python or [sys.executable]:
                found = measure(a, jobs.column(spec), model, mode)
                panels[-1][1].append(total(found))
                print("%s: model %s, %s, %d servers, %d trainers" % (spec, model, mode, a.pservers, a.trainers))
                show(found)
    if a.plot:
        with open(a.plot, "w") as f:
            f.write(histograms.svg(panels, a.python, DRAWN, len(a.modes or jobs.MODES)))


def total(found):
    """The staleness of every step: its own earlier steps and those of others."""
    return [own + others for own, others in zip(found.get("own", ()), found.get("others", ()))]


def show(found):
    if "failed" in found:
        print("    failed: %s %s" % (found["failed"], found["error"]))
        return
    print("    a step takes %.2f ms, and %g off its count" % (found["step_ms"], found["unit"]))
    for key in ("own", "others"):
        print("    %-7s %s\n%s" % (key, summary(found[key]), histogram(found[key])))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
