"""Trains CTR-DNN and word2vec locally and in the four modes with servers, and writes a page that compares them.

    python report.py --folder report [--samples 40960] [--inputs loader dataset] [--seeds 1 2 3] [--models ctr_dnn]

The page, report.md, has a table of throughput, loss, AUC or recovered similarities, and staleness, and the curves over
time of all modes (curves.png, with matplotlib). With several seeds, figures are means over them; the difference from
local training is the mean, and in brackets the largest, of the differences between runs with the same seed.

Without rounds, the gradients of each trainer are an update of their own: with two trainers, twice as many updates of
half the batch. Such modes are compared with a local run whose batches have that size.
"""

import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = ("local", "sync", "async", "half_async", "geo")
MEASURES = {"ctr_dnn": "auc", "word2vec": "recovered"}
PER_SENTENCE = 30  # pairs of words, about
IN_ROUNDS = ("local", "sync")  # modes whose updates are of the whole batch


def generate(model, folder, samples):
    """Makes the data of a model; returns what was printed."""
    count = samples if model == "ctr_dnn" else max(400, samples // PER_SENTENCE)
    command = [sys.executable, os.path.join(HERE, model + ".py"), "--generate", str(count), "--data", folder]
    return subprocess.check_output(command, universal_newlines=True)


def variants(args):
    """Modes, each with the batch of an update; local training with all batches that it is compared with."""
    of_modes = [(mode, args.batch if mode in IN_ROUNDS else args.batch // args.trainers) for mode in args.modes]
    if "local" not in args.modes:
        return of_modes
    return sorted({("local", batch) for _, batch in of_modes}, reverse=True) + [v for v in of_modes if v[0] != "local"]


def train(model, mode, batch, kind, seed, folder, args):
    """Trains a model in a mode; returns its measurements."""
    name = mode if mode != "local" or batch == args.batch else "local_%d" % batch
    curve = os.path.join(args.folder, "%s-%s-%s-%d.json" % (model, name, kind, seed))
    script = [os.path.join(HERE, model + ".py"), "--data", folder, "--mode", mode, "--input", kind, "--curve", curve]
    script += ["--rounds", str(args.rounds), "--seed", str(seed)]
    script += ["--batch", str(batch if mode == "local" else args.batch)]
    command = [sys.executable]
    if mode != "local":
        script.append("--distributed")
        command += ["-m", "paddle.distributed.launch_ps", "--print_config", "False", "--server_num", str(args.servers)]
        command += ["--worker_num", str(args.trainers), "--log_dir", os.path.join(args.folder, "logs")]
    subprocess.check_call(command + script, stdout=subprocess.DEVNULL)
    with open(curve) as file:
        return json.load(file)


def rate(curve):
    """Samples per second; the first file, with which programs are compiled, does not count if there are others."""
    first = curve[0] if len(curve) > 1 else {"seconds": 0.0, "samples": 0}
    return (curve[-1]["samples"] - first["samples"]) / (curve[-1]["seconds"] - first["seconds"])


def stale(counts):
    """The mean and the largest staleness of pushes."""
    steps = {int(number): count for number, count in counts.items()}
    pushes = sum(steps.values())
    return "%.2f, at most %d" % (sum(n * c for n, c in steps.items()) / float(pushes), max(steps)) if pushes else "-"


def table(found):
    lines = [
        "| model | mode | batch of an update | input | samples/s | loss | AUC or recovered | from local | staleness |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (model, mode, batch, kind), runs in found.items():
        last = {seed: measured["curve"][-1] for seed, measured in runs.items()}
        row = (
            model,
            mode,
            batch,
            kind,
            mean([rate(measured["curve"]) for measured in runs.values()]),
            mean([each["loss"] for each in last.values()]),
            mean([each[MEASURES[model]] for each in last.values()]),
            from_local(found, model, mode, batch, kind),
            stale(added([measured["staleness"] for measured in runs.values()])),
        )
        lines.append("| %s | %s | %d | %s | %.0f | %.4f | %.4f | %s | %s |" % row)
    return "\n".join(lines)


def from_local(found, model, mode, batch, kind):
    """The mean, and the largest, difference of AUC or recovered similarities from local training with the same seed."""
    local = found.get((model, "local", batch, kind))
    if mode == "local" or local is None:
        return "-"
    measure = MEASURES[model]
    apart = [found[model, mode, batch, kind][s]["curve"][-1][measure] - local[s]["curve"][-1][measure] for s in local]
    return "%+.4f (%+.4f)" % (mean(apart), max(apart, key=abs))


def mean(values):
    return sum(values) / float(len(values))


def added(counts):
    total = {}
    for each in counts:
        for steps, count in each.items():
            total[steps] = total.get(steps, 0) + count
    return total


def draw(found, path):
    """Loss and AUC, or recovered similarities, over seconds; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    models = sorted({model for model, _, _, _ in found})
    figure = Figure(figsize=(11, 4 * len(models)), layout="constrained")
    axes = figure.subplots(len(models), 2, squeeze=False)
    for row, model in zip(axes, models):
        for axis, measure in zip(row, ("loss", MEASURES[model])):
            for color, key in enumerate(key for key in found if key[0] == model):
                for number, measured in enumerate(found[key].values()):
                    points = measured["curve"]
                    label = "%s, %d, %s" % key[1:] if number == 0 else None
                    seconds, values = [p["seconds"] for p in points], [p[measure] for p in points]
                    axis.plot(seconds, values, color="C%d" % color, marker=".", label=label)
            axis.set(title="%s: %s on held-back data" % (model, measure), xlabel="seconds of training")
            axis.grid(alpha=0.3)
        row[0].legend()
    figure.savefig(path)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default="report")
    parser.add_argument("--samples", type=int, default=40960)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=sorted(MEASURES), choices=sorted(MEASURES))
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--inputs", nargs="+", default=["loader"], choices=["loader", "dataset"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[11], help="of the first values of all parameters")
    parser.add_argument("--batch", type=int, default=128, help="of all trainers together")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--trainers", type=int, default=2)
    args = parser.parse_args()
    found, notes = {}, []
    for model in args.models:
        folder = os.path.join(args.folder, model)
        notes += [line for line in generate(model, folder, args.samples).splitlines() if "attainable" in line]
        for mode, batch in variants(args):
            for kind in args.inputs:
                runs = {seed: train(model, mode, batch, kind, seed, folder, args) for seed in args.seeds}
                found[model, mode, batch, kind] = runs
                ends = " ".join("%.4f" % run["curve"][-1][MEASURES[model]] for run in runs.values())
                print("%s %s %d %s: %s %s" % (model, mode, batch, kind, MEASURES[model], ends), flush=True)
    text = "# Modes compared\n\n%s\n\n%s\n" % (table(found), "\n".join(notes))
    if draw(found, os.path.join(args.folder, "curves.png")):
        text += "\n![Curves of all modes](curves.png)\n"
    with open(os.path.join(args.folder, "report.md"), "w") as file:
        file.write(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
