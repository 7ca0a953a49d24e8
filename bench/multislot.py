"""MultiSlot text, parsed: megabytes of text per second, and memory.

  python multislot.py --python ORACLE --python ../.venv/bin/python [--megabytes 100] [--rounds 5]
  python multislot.py --python ... memory queue --megabytes 2000 --rounds 1

load    InMemoryDataset.load_into_memory on one file, one thread: what parsing costs. CPU seconds count the process
        and the commands that it starts; they are what a core is worth, whoever else is busy.
hashed  the same, on ids of 20 digits, as hash functions make them
memory  resident memory of the same after loading, beside the size of the values: 8 bytes of an id, 4 of a float
queue   one pass of a QueueDataset over the files, without a model; peak memory of the process
The interpreters alternate on the same files. Ratios are those of the second to the first, of medians.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

import common

SLOTS, DENSE, BATCH = 26, 13, 512
WAYS = ["load", "hashed", "memory", "queue"]


def lines_of_text(count, hashed):
    """Lines of 13 floats, 26 slots of 1 to 3 ids and a label; how many bytes their values take."""
    rng = np.random.RandomState(common.SEED)
    lines, size = [], 0
    for _ in range(count):
        dense = " ".join("%.6f" % x for x in rng.rand(DENSE))
        counts = rng.randint(1, 4, SLOTS)
        ids = rng.randint(10**18, 2**63 - 1, counts.sum()) if hashed else rng.randint(1, 1000000, counts.sum())
        text = iter(("1" + str(i) if hashed and i < 8 * 10**18 else str(i)) for i in ids.tolist())
        slots = " ".join("%d %s" % (n, " ".join(next(text) for _ in range(n))) for n in counts)
        lines.append("%d %s %s 1 %d\n" % (DENSE, dense, slots, rng.randint(2)))
        size += 4 * DENSE + 8 * (counts.sum() + 1)
    return "".join(lines), size


def write_files(folder, megabytes, files, hashed):
    """Files of as many lines; one part of them is made, and repeated."""
    text, size = lines_of_text(4000, hashed)
    repeats = max(1, int(megabytes * 1e6 / files / len(text)))
    names = [os.path.join(folder, "part-%d" % k) for k in range(files)]
    for name in names:
        with open(name, "w") as f:
            for _ in range(repeats):
                f.write(text)
    return names, dict(lines=4000 * repeats * files, value_bytes=int(size) * repeats * files)


def make_dataset(fluid, kind, files, threads):
    feed = [fluid.layers.data("dense", [DENSE])]
    feed += [fluid.layers.data("C%d" % i, [1], dtype="int64", lod_level=1) for i in range(SLOTS)]
    feed += [fluid.layers.data("label", [1], dtype="int64")]
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_use_var(feed)
    dataset.set_pipe_command("cat")
    dataset.set_batch_size(BATCH)
    dataset.set_thread(threads)
    dataset.set_filelist(files)
    return dataset, feed


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def load(fluid, files, threads, small):
    dataset, _ = make_dataset(fluid, "InMemoryDataset", [small], threads)
    dataset.load_into_memory()  # loads kernels
    dataset.release_memory()
    dataset.set_filelist(files)
    memory, cpu, start = resident(), cpu_seconds(), time.time()
    dataset.load_into_memory()
    return dict(
        seconds=time.time() - start,
        cpu=cpu_seconds() - cpu,
        resident=resident() - memory,
        lines=int(dataset.get_memory_data_size()),
    )


def queue(fluid, files, threads, small):
    dataset, feed = make_dataset(fluid, "QueueDataset", [small], threads)
    fluid.layers.mean(feed[0])
    exe = fluid.Executor(fluid.CPUPlace())

    def read():
        if hasattr(dataset, "feeds"):
            return sum(len(batch["label"]) for batch in dataset.feeds())
        exe.infer_from_dataset(fluid.default_main_program(), dataset)

    read()  # loads kernels
    dataset.set_filelist(files)
    cpu, start = cpu_seconds(), time.time()
    lines = read()
    return dict(seconds=time.time() - start, cpu=cpu_seconds() - cpu, lines=lines)


def child(a):
    import paddle.fluid as fluid

    files = a.files.split(",")
    os.chdir(os.path.dirname(files[0]))  # real Fluid writes *_train_desc.prototxt to the current folder
    result = (queue if a.run == "queue" else load)(fluid, files, a.threads, a.small)
    common.emit(way=a.run, peak_rss_mb=common.peak_rss_mb(), **result)


def measure(python, way, files, small, threads):
    argv = python.split() + [
        os.path.abspath(__file__),
        "--run",
        way,
        "--files",
        ",".join(files),
        "--small",
        small,
        "--threads",
        str(threads),
    ]
    out = subprocess.check_output(argv, stderr=subprocess.DEVNULL, env=dict(os.environ, GLOG_minloglevel="3"))
    return json.loads([line for line in out.decode().splitlines() if line.startswith("{")][-1])


def compare(a, way, folder):
    files, facts = write_files(folder, a.megabytes, a.parts, way == "hashed")
    small = write_files(tempfile.mkdtemp(dir=folder), 1, 1, way == "hashed")[0][0]
    size = sum(os.path.getsize(f) for f in files)
    found = [[] for _ in a.python]
    for _ in range(a.rounds):
        for results, python in zip(found, a.python):
            results.append(measure(python, way, files, small, a.threads))
    print(
        "%s: %.0f MB of text, %d lines, values of %.0f MB"
        % (way, size / 1e6, facts["lines"], facts["value_bytes"] / 1e6)
    )
    rates = []
    for python, results in zip(a.python, found):
        assert all(r["lines"] in (None, facts["lines"]) for r in results), results
        wall, cpu = (float(np.median([size / 1e6 / r[k] for r in results])) for k in ("seconds", "cpu"))
        rates.append((wall, cpu))
        text = "  %-50s %7.1f MB/s, %7.1f MB per CPU second, peak %.0f MB" % (
            python[-50:],
            wall,
            cpu,
            max(r["peak_rss_mb"] for r in results),
        )
        if "resident" in results[0]:
            text += ", resident %.2f x the values" % (results[-1]["resident"] / float(facts["value_bytes"]))
        print(text)
    for wall, cpu in rates[1:]:
        print("  ratio %.2f, per CPU second %.2f" % (wall / rates[0][0], cpu / rates[0][1]))
    sys.stdout.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", action="append", default=[])
    p.add_argument("--megabytes", type=float, default=100)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--parts", type=int, default=1, help="number of files")
    p.add_argument("--run", choices=WAYS, help=argparse.SUPPRESS)
    p.add_argument("--files", help=argparse.SUPPRESS)
    p.add_argument("--small", help=argparse.SUPPRESS)
    p.add_argument("ways", nargs="*", help="load, hashed, memory, queue; load and hashed by default")
    a = p.parse_args()
    if a.run:
        return child(a)
    a.python = a.python or [sys.executable]
    for way in a.ways or ["load", "hashed"]:
        folder = tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "."))
        try:
            compare(a, way, os.path.abspath(folder))
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
