"""ctr_dnn input paths compared: lines/s of one pass over generated files.

  python ctr_dataset.py --path queue|memory|feed|feeder|loader|loader_file|pyreader
queue, memory   Executor.train_from_dataset on MultiSlot text files
feed            Executor.run, LoDTensors made from numpy arrays
feeder          Executor.run, DataFeeder on python lists
loader          DataLoader.from_generator on prepared sample lists
loader_file     the same, but python parses the text files in the generator
pyreader        fluid.io.PyReader on prepared sample lists
The loss is that of a held-out batch after the pass.
"""

import os
import shutil
import tempfile
import time

import numpy as np

import common
import ctr_dnn


def write_files(folder, batches, files):
    names = []
    for k in range(files):
        name = os.path.join(folder, "part-%d" % k)
        names.append(name)
        with open(name, "w") as f:
            for b in batches[k::files]:
                for s in ctr_dnn.samples(b):
                    f.write(
                        " ".join(
                            "%d %s" % (len(v), " ".join(("%.6f" % x) if isinstance(x, float) else str(x) for x in v))
                            for v in s
                        )
                        + "\n"
                    )
    return names


def parse_line(line):
    v, i, out = line.split(), 0, []
    for k in range(ctr_dnn.SLOTS + 2):
        n = int(v[i])
        cast = float if k == 0 else int
        out.append([cast(x) for x in v[i + 1 : i + 1 + n]])
        i += n + 1
    return tuple(out)


def main():
    a = common.args(path="queue", thread=1, files=2)
    import paddle.fluid as fluid

    nb, repeats = a.steps or 40, a.repeats or 3
    batches = ctr_dnn.raw(nb, common.SEED, ctr_dnn.BATCH)
    held = ctr_dnn.raw(1, 99, ctr_dnn.BATCH)[0]
    lines = nb * ctr_dnn.BATCH
    prog, startup = fluid.Program(), fluid.Program()
    prog.random_seed = startup.random_seed = common.SEED
    with fluid.program_guard(prog, startup):
        net = ctr_dnn.build(fluid)
        test = prog.clone(for_test=True)
        ctr_dnn.optimizer(fluid).minimize(net["loss"])
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(startup)
    common.set_params(fluid, prog, fluid.global_scope(), place)
    ctx = common.Ctx(fluid, net["feed"], place)
    lists = [ctr_dnn.samples(b) for b in batches]
    tmp = tempfile.mkdtemp(prefix="ctrdata")
    names = write_files(tmp, batches, a.files)
    os.chdir(tmp)  # real Fluid writes *_train_desc.prototxt to the current directory
    info = {}

    def dataset_pass(kind):
        ds = fluid.DatasetFactory().create_dataset(kind)
        ds.set_use_var(net["feed"])
        ds.set_pipe_command("cat")
        ds.set_batch_size(ctr_dnn.BATCH)
        ds.set_thread(a.thread)
        ds.set_filelist(names)
        if kind == "InMemoryDataset":
            t = time.time()
            ds.load_into_memory()
            ds.local_shuffle()
            info["load_s"] = round(time.time() - t, 3)
        t = time.time()
        exe.train_from_dataset(prog, ds, thread=a.thread)
        return time.time() - t

    def feed_pass(make):
        t = time.time()
        for item in make():
            exe.run(prog, feed=item, fetch_list=[net["loss"]])
        return time.time() - t

    def file_samples():
        for n in names:
            with open(n) as f:
                rows = []
                for line in f:
                    rows.append(parse_line(line))
                    if len(rows) == ctr_dnn.BATCH:
                        yield rows
                        rows = []

    def loader(gen):
        if a.path == "pyreader":
            r = fluid.io.PyReader(feed_list=net["feed"], capacity=8, iterable=True)
            r.decorate_sample_list_generator(gen, places=[place])
        else:
            r = fluid.io.DataLoader.from_generator(feed_list=net["feed"], capacity=8, iterable=True)
            r.set_sample_list_generator(gen, places=[place])
        return r

    if a.path in ("loader", "pyreader"):
        L = loader(lambda: iter(lists))
    elif a.path == "loader_file":
        L = loader(file_samples)
    run = {
        "queue": lambda: dataset_pass("QueueDataset"),
        "memory": lambda: dataset_pass("InMemoryDataset"),
        "feed": lambda: feed_pass(lambda: (ctr_dnn.to_feed(ctx, b) for b in batches)),
        "feeder": lambda: feed_pass(lambda: (ctx.feeder.feed(s) for s in lists)),
        "loader": lambda: feed_pass(lambda: L()),
        "loader_file": lambda: feed_pass(lambda: L()),
        "pyreader": lambda: feed_pass(lambda: L()),
    }[a.path]
    c = common.cpu_clock()
    t = time.time()
    secs = [run() for _ in range(repeats)]
    wall, d = time.time() - t, common.cpu_clock()
    (loss,) = exe.run(test, feed=ctr_dnn.to_feed(ctx, held), fetch_list=[net["loss"].name])
    sec = float(np.median(secs))
    common.emit(
        workload="ctr_input_%s_t%d" % (a.path, a.thread),
        samples_per_s=round(lines / sec, 1),
        steps_per_s=round(nb / sec, 2),
        lines=lines,
        min_max=[round(nb / max(secs), 2), round(nb / min(secs), 2)],
        cpu_ms_per_step=round((d[1] - c[1]) * 1000 / nb / repeats, 2),
        other_load=round(max(0.0, d[0] - c[0] - (d[1] - c[1])) / wall, 2),
        final_loss=round(float(np.mean(loss)), 5),
        peak_rss_mb=common.peak_rss_mb(),
        **info,
    )
    os.chdir(os.path.dirname(tmp))
    shutil.rmtree(tmp, ignore_errors=True)


if __name__ == "__main__":
    main()
