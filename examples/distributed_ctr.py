"""Predicts clicks with parameter servers that hold and update the parameters.

The click log is synthetic: every value of every slot has a hidden weight, and their sum decides how likely a click is.

    refluid launch --servers 2 --trainers 2 examples/distributed_ctr.py
    refluid launch --servers 2 --trainers 2 examples/distributed_ctr.py --mode async
    python examples/distributed_ctr.py --local

Trainers share each batch, so in sync mode the job computes the same as the local run.
"""

import argparse
import json
import os
import time

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.transpiler.distribute_transpiler import DistributeTranspilerConfig

SLOTS = 8
VALUES = 5000  # of each slot
DENSE = 4
WIDTH = 8
BATCH = 128
SEED = 11


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local", action="store_true", help="train in this process alone")
    parser.add_argument("--mode", default="sync", choices=["sync", "async", "half_async", "geo"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save_dir", default="ctr_model", help="where the model goes")
    parser.add_argument("--losses_dir", help="where to write the loss of every step")
    return parser.parse_args()


def clicks(steps, seed):
    """Batches of (dense, one column of ids per slot, clicked)."""
    weights = np.random.RandomState(5).randn(SLOTS, VALUES)
    random = np.random.RandomState(seed)
    for _ in range(steps):
        dense = random.rand(BATCH, DENSE).astype("float32")
        # A few values make up most of a click log.
        ids = (VALUES * random.rand(BATCH, SLOTS) ** 6).astype("int64")
        score = weights[np.arange(SLOTS), ids].sum(axis=1) / 2 + 4 * (dense[:, 0] - 0.5)
        clicked = (random.rand(BATCH) < 1 / (1 + np.exp(-score))).astype("int64")
        yield dense, ids, clicked.reshape(-1, 1)


def build():
    dense = fluid.layers.data(name="dense", shape=[DENSE], dtype="float32")
    slots = [fluid.layers.data(name="slot_%d" % i, shape=[1], dtype="int64") for i in range(SLOTS)]
    clicked = fluid.layers.data(name="clicked", shape=[1], dtype="int64")
    columns = [dense]
    for i, slot in enumerate(slots):
        columns.append(
            fluid.layers.embedding(
                input=slot,
                size=[VALUES, WIDTH],
                is_sparse=True,
                param_attr=fluid.ParamAttr(name="table_%d" % i, initializer=fluid.initializer.Normal(scale=0.1)),
            )
        )
    hidden = fluid.layers.fc(input=fluid.layers.concat(columns, axis=1), size=64, act="tanh")
    hidden = fluid.layers.fc(input=hidden, size=32, act="tanh")
    predict = fluid.layers.fc(input=hidden, size=2, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(input=predict, label=clicked))
    auc, _, _ = fluid.layers.auc(input=predict, label=clicked)
    return predict, cost, auc


def to_feed(batch, part=0, parts=1):
    """The share of a trainer in a batch."""
    dense, ids, clicked = [column[part::parts] for column in batch]
    feed = {"dense": dense, "clicked": clicked}
    for i in range(SLOTS):
        feed["slot_%d" % i] = ids[:, i : i + 1]
    return feed


def config_of(mode):
    config = DistributeTranspilerConfig()
    config.sync_mode = mode == "sync"
    if mode == "half_async":
        config.half_async = True
    if mode == "geo":
        config.geo_sgd_mode = True
        config.geo_sgd_need_push_nums = 20
    return config


def loader_of(args, part, parts):
    """Feeds of a trainer, made ahead of the step: servers are asked for the rows of a batch before it is its turn."""
    block = fluid.default_main_program().global_block()
    names = ["dense"] + ["slot_%d" % i for i in range(SLOTS)] + ["clicked"]

    def batches():
        for batch in clicks(args.steps, SEED):
            feed = to_feed(batch, part, parts)
            yield [feed[name] for name in names]

    loader = fluid.io.DataLoader.from_generator([block.var(name) for name in names], capacity=8)
    loader.set_batch_generator(batches, places=fluid.CPUPlace())
    return loader


def train(args, program, startup, predict, cost, auc, name, part, parts):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    losses = []
    begin = time.time()
    for step, feed in enumerate(loader_of(args, part, parts)(), 1):
        loss, area = exe.run(program, feed=feed, fetch_list=[cost, auc])
        losses.append(float(loss[0]))
        if step == 1:
            begin = time.time()  # the first step compiles
        if step % 50 == 0:
            rate = (step - 1) * BATCH / parts / (time.time() - begin)
            print(
                "%s  step %4d  cost %.4f  auc %.4f  %6.0f samples/s"
                % (name, step, np.mean(losses[-50:]), float(area[0]), rate)
            )
    if args.losses_dir:
        with open(os.path.join(args.losses_dir, name.replace(" ", "_") + ".json"), "w") as file:
            json.dump(losses, file)
    return exe


def test(args):
    """The model as it was saved, on clicks it has not seen."""
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(args.save_dir, exe)
        hits, total, scores, labels = 0, 0, [], []
        for batch in clicks(20, SEED + 1):
            feed = to_feed(batch)
            (found,) = exe.run(program, feed={name: feed[name] for name in feeds}, fetch_list=fetches)
            hits += int((found.argmax(axis=1) == batch[2][:, 0]).sum())
            total += len(found)
            scores.append(found[:, 1])
            labels.append(batch[2][:, 0])
    order = np.concatenate(labels)[np.argsort(np.concatenate(scores))]
    ranks = np.flatnonzero(order) + 1
    misses = len(order) - len(ranks)
    auc = (ranks.sum() - len(ranks) * (len(ranks) + 1) / 2.0) / (len(ranks) * misses)
    print("test auc %.4f  accuracy %.4f" % (auc, hits / float(total)))


def main():
    args = parse()
    fluid.default_main_program().random_seed = SEED
    fluid.default_startup_program().random_seed = SEED
    predict, cost, auc = build()
    feeds = ["dense"] + ["slot_%d" % i for i in range(SLOTS)]
    optimizer = fluid.optimizer.SGD(learning_rate=0.3)

    if args.local:
        optimizer.minimize(cost)
        programs = fluid.default_main_program(), fluid.default_startup_program()
        exe = train(args, programs[0], programs[1], predict, cost, auc, "local", 0, 1)
        fluid.io.save_inference_model(args.save_dir, feeds, [predict], exe)
        test(args)
        return

    fleet.init(role_maker.PaddleCloudRoleMaker())
    optimizer = fleet.distributed_optimizer(optimizer, config_of(args.mode))
    optimizer.minimize(cost)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    elif fleet.is_worker():
        fleet.init_worker()
        part, parts = fleet.worker_index(), fleet.worker_num()
        name = "trainer %d" % part
        exe = train(args, fleet.main_program, fleet.startup_program, predict, cost, auc, name, part, parts)
        if fleet.is_first_worker():
            fleet.save_inference_model(exe, args.save_dir, feeds, [predict])
            test(args)
        fleet.stop_worker()


if __name__ == "__main__":
    main()
