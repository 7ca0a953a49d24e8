"""Time to loss: how long each mode trains until the loss on held-back data reaches a target.

  python time_to_loss.py --python PY1 --python PY2 [--rounds 3] [--models A,B] [--plot curves.svg] [mode ...]
  python time_to_loss.py --python PY1 --python PY2 --rates [mode ...]

PY is an interpreter with `paddle.fluid`, with environment settings before it if needed, as in run.py. Modes: local and
those of ps.py; all with SGD, the same data, the same initial parameters and the same learning rate. Prints, per model and
mode, the median over the rounds of: seconds and samples (of all trainers) until the target, held-back loss at the end,
samples/s over the whole run, and the ratio of seconds, PY1/PY2. --staleness adds what staleness.py measures on that model.

What is timed: from the moment every trainer has made its first step (which compiles; printed apart) until the end of the
evaluation by trainer 0 that meets the target. Evaluations are inside the clock, every EVERY steps on one batch that is
never trained on; their share is printed. No run stops early: the trainers of a mode make the same number of steps, and
the whole curve is kept.

--rates multiplies the usual learning rate by 2 until training no longer converges: the last evaluation is above the
target, or not a number, although smaller rates reach it.
"""

import argparse
import importlib
import json
import sys
import time
from typing import Any, Dict

import numpy as np

import common
import curves
import jobs
import ps
import staleness

MODELS = ("fit_a_line", "wide_mlp", "ctr_dnn")
# Properties of the models, found by local training at the usual rate (ps.RATE), where they are reached after 240, 56 and
# 52 steps. fit_a_line starts at 7.4 and ends at the noise, 1e-4. At these rates the other two learn slowly: wide_mlp falls
# from 2.53 to 2.35 in ten steps and by 0.0005 a step from there; ctr_dnn starts at 0.69.
TARGET = dict(fit_a_line=0.001, wide_mlp=2.32, ctr_dnn=0.672)
STEPS = dict(fit_a_line=500, wide_mlp=120, ctr_dnn=80)
EVERY = dict(fit_a_line=20, wide_mlp=8, ctr_dnn=4)
HELD_BACK = dict(fit_a_line=10, wide_mlp=4, ctr_dnn=1)  # batches
SEED = 77  # of the held-back data; trainers use others


# -------------------------------------------------------------------- child
def child(a):
    import paddle.fluid as fluid

    begin = time.time()
    model = importlib.import_module(a.model)
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = common.SEED
    net = model.build(fluid)
    shapes = {p.name: p.shape for p in fluid.default_main_program().all_parameters()}
    place = fluid.CPUPlace()
    optimizer = fluid.optimizer.SGD(ps.RATE[a.model] * a.factor)
    trainer = jobs.start(
        fluid, a, net["loss"], optimizer, lambda: set_parameters(fluid.global_scope(), shapes, a.pservers, place)
    )
    if trainer is None:
        return
    context = common.Ctx(fluid, net["feed"], place)
    to_feed = getattr(model, "to_feed", common.default_to_feed)
    batches = model.data(STEPS[a.model], common.SEED + 1 + a.id)
    held_back = to_feed(context, joined(model.data(HELD_BACK[a.model], SEED)))
    forward = forward_only(trainer.source)

    def evaluate():
        out = trainer.exe.run(forward, feed=held_back, fetch_list=[net["loss"].name], use_program_cache=True)
        return float(np.mean(out[0]))

    first_loss = evaluate() if a.id == 0 else None
    ps.barrier(a, "ready", a.trainers)
    result = train(a, trainer, net["loss"], lambda i: to_feed(context, batches[i]), evaluate)
    ps.barrier(a, "done", a.trainers)
    jobs.report(
        a, system=system(), first_loss=first_loss, start_s=result["first"][0] - begin, samples=model.BATCH, **result
    )
    trainer.close()


def system():
    import paddle

    return "refluid" if "refluid" in sys.modules else "Fluid " + paddle.__version__


def train(a, trainer, loss, feed, evaluate) -> Dict[str, Any]:
    """dict(first, ends, losses): clock of the first step, of all later ones, and [clock, steps, loss] of evaluations."""
    first = [time.time()]
    trainer.run(feed(0), [loss])
    first.append(time.time())
    if a.id == 0:
        evaluate()  # compiles for parameters as training leaves them
    ps.barrier(a, "compiled", a.trainers)
    start, ends, losses, spent = time.time(), [], [], []
    for i in range(1, STEPS[a.model]):
        trainer.run(feed(i), [loss])
        ends.append(time.time())
        if a.id == 0 and (i + 1) % EVERY[a.model] == 0:
            value = evaluate()
            losses.append((time.time(), i + 1, value))
            spent.append(time.time() - ends[-1])
    return dict(first=first, start=start, ends=ends, losses=losses, evaluating=spent)


def joined(batches):
    """One batch of all samples; ragged batches come alone."""
    return batches[0] if len(batches) == 1 else tuple(np.concatenate(part) for part in zip(*batches))


def forward_only(program):
    """The transpiled program up to its first send: lookups stay remote, nothing trains."""
    program = program.clone(for_test=True)
    block = program.global_block()
    types = [op.type for op in block.ops]
    remote = [i for i, kind in enumerate(types) if kind in ("send", "recv", "send_barrier", "fetch_barrier")]
    for index in reversed(range(min(remote), len(types)) if remote else ()):
        block._remove_op(index)
    return program


def set_parameters(scope, shapes, servers, place):
    """Gives weights, whole or in slices, the values of `common.init_array`; biases stay zero."""
    for name, shape in shapes.items():
        if len(shape) < 2:
            continue
        for number in [None] + list(range(servers)):
            var = scope.find_var(name if number is None else "%s.block%d" % (name, number))
            held = values(var)
            if var is None or held is None or held.shape[1:] != tuple(shape[1:]):
                continue
            first = slice_begin(number, held.shape[0], shape[0], servers)
            wanted = common.init_array(name, shape)[first : first + held.shape[0]]
            if not np.array_equal(held, wanted):
                var.get_tensor().set(wanted, place)


def slice_begin(number, height, total, servers):
    """Slices have one height, only the last may be lower."""
    if number is None or number == 0:
        return 0
    return total - height if number == servers - 1 else number * height


def values(var):
    """The array of a scope variable; None where a trainer only knows the name of what servers hold."""
    if var is None:
        return None
    try:
        array = np.array(var.get_tensor())
    except Exception:  # each implementation has an error of its own for a tensor without a value
        return None
    return array if array.size else None


# ----------------------------------------------------------------- analysis
def summary(result, model):
    """Figures of one job."""
    lead = result["trainers"][0]
    start = max(t["start"] for t in result["trainers"])
    curve = [(0.0, lead["first_loss"])] + [(clock - start, loss) for clock, _, loss in lead["losses"]]
    hit = [clock for clock, _, loss in lead["losses"] if loss <= TARGET[model]]
    ends = [e for t in result["trainers"] for e in t["ends"]]
    samples = lead["samples"]
    out = dict(
        system=lead["system"],
        first_loss=lead["first_loss"],
        final_loss=lead["losses"][-1][2],
        first_step_s=max(t["first"][1] - t["first"][0] for t in result["trainers"]),
        start_s=lead["start_s"],
        evaluating=sum(lead["evaluating"]) / (lead["losses"][-1][0] - start),
        samples_per_s=samples * len(ends) / (max(ends) - start),
        curve=curve,
        seconds=None,
        samples=None,
        note=result["note"],
    )
    if hit:
        first_steps = len(result["trainers"])
        out.update(seconds=hit[0] - start, samples=samples * (first_steps + sum(e <= hit[0] for e in ends)))
    return out


def converged(out, model):
    return bool("failed" not in out and np.isfinite(out["final_loss"]) and out["final_loss"] <= TARGET[model])


def median(rows, key):
    """None when a round did not get there."""
    got = [r[key] for r in rows]
    return None if None in got or not got else float(np.median(got))


def cell(rows, failed):
    if not rows:
        return failed[:44]
    text = "%10.0f/s  loss %8.4f" % (median(rows, "samples_per_s"), np.median([r["final_loss"] for r in rows]))
    if median(rows, "seconds") is None:
        missed = sum(r["seconds"] is None for r in rows)
        return "target not reached (%d of %d)" % (missed, len(rows)) + text
    return "%8.3f s %9.0f samples" % (median(rows, "seconds"), median(rows, "samples")) + text


# ------------------------------------------------------------------- driver
def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.child_arguments(p)
    p.add_argument("--python", action="append", default=[])
    p.add_argument("--models", default=MODELS, type=jobs.names(MODELS), help="separated by commas")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--rates", action="store_true", help="search the largest learning rate instead of timing")
    p.add_argument("--staleness", action="store_true", help="measure the staleness of every mode on the model, too")
    p.add_argument("--plot", help="write the curves of the first round to this SVG file")
    p.add_argument("--steps", type=int, help="of the staleness probe")
    p.add_argument("--logs", help="keep the logs in this directory")
    p.add_argument("--out", help="append every result to this JSON-lines file")
    p.add_argument("--model", help=argparse.SUPPRESS)
    p.add_argument("--factor", type=float, default=1.0, help="times the usual learning rate")
    p.add_argument("modes", nargs="*")
    a = p.parse_args()
    a.modes = a.modes or ("local",) + jobs.MODES
    return a


def job(a, column, model, mode, factor):
    extra = ["--model", model, "--factor", repr(factor)]
    result = jobs.run(column, "time_to_loss.py", a, mode, extra, a.logs)
    out = result if "failed" in result else summary(result, model)
    if a.out:
        row = dict(out, model=model, mode=mode, rate=ps.RATE[model] * factor, python=column["name"])
        with open(a.out, "a") as f:
            f.write(json.dumps(row) + "\n")
    return out


def compare(a, columns, model, mode):
    """Prints a line; returns (system, curve of the first round) of each column."""
    rows, failed = [[] for _ in columns], [""] * len(columns)
    for _ in range(a.rounds):
        for i, column in enumerate(columns):
            out = job(a, column, model, mode, a.factor)
            if "failed" in out:
                failed[i] = "%s %s" % (out["failed"], out["error"])
            else:
                rows[i].append(out)
    seconds = [median(r, "seconds") for r in rows]
    ratios = ["x%.2f" % (seconds[0] / s) for s in seconds[1:] if s and seconds[0]]
    cells = " | ".join("%-58s" % cell(r, f) for r, f in zip(rows, failed))
    print("%-10s %-10s %s %s" % (model, mode, cells, " ".join(ratios)))
    for i, r in enumerate(rows):
        if r:
            print(
                "    [%d] first loss %.5f, first step %.2f s, evaluations %.0f %% of the time %s"
                % (i + 1, r[0]["first_loss"], r[0]["first_step_s"], 100 * r[0]["evaluating"], r[0]["note"])
            )
        if failed[i]:
            print("    [%d] failed: %s" % (i + 1, failed[i]))
    if a.staleness and mode != "local":
        for i, column in enumerate(columns):
            print("    [%d] " % (i + 1) + staleness.brief(staleness.measure(a, column, model, mode)))
    sys.stdout.flush()
    return [(r[0]["system"], r[0]["curve"]) if r else (None, []) for r in rows]


def largest_rates(a, columns, model, mode):
    found = []
    for column in columns:
        factor, best = 1.0, None
        while factor <= 256 and converged(job(a, column, model, mode, factor), model):
            best, factor = factor, factor * 2
        found.append("%8s" % ("none" if best is None else "%g" % (best * ps.RATE[model])))
    print("%-10s %-10s largest rate that converges: %s (usual: %g)" % (model, mode, " ".join(found), ps.RATE[model]))
    sys.stdout.flush()


def main():
    a = arguments()
    if a.role:
        return child(a)
    jobs.stop_children_when_terminated()
    columns = [jobs.column(spec) for spec in a.python or [sys.executable]]
    for i, column in enumerate(columns):
        print("[%d] %s" % (i + 1, column["name"]))
    panels, names = [], [column["name"] for column in columns]
    for model in a.models:
        print("%s: target %g on held-back data, learning rate %g" % (model, TARGET[model], ps.RATE[model] * a.factor))
        for mode in a.modes:
            if a.rates:
                largest_rates(a, columns, model, mode)
                continue
            found = compare(a, columns, model, mode)
            names = [name or old for (name, _), old in zip(found, names)]
            panels.append(("%s, %s" % (model, mode), TARGET[model], [curve for _, curve in found]))
    if a.plot and panels:
        with open(a.plot, "w") as f:
            f.write(curves.svg(panels, names, per_row=len(a.modes)))


if __name__ == "__main__":
    main()
