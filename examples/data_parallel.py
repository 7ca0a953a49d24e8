"""Classifies handwritten digits in several processes, which average their gradients; there are no servers.

    python -m paddle.distributed.launch --nproc_per_node 2 examples/data_parallel.py
    python -m paddle.distributed.launch --selected_gpus 0,1 examples/data_parallel.py --use_cuda
    CPU_NUM=4 python examples/data_parallel.py            # one process, four devices

Every process trains on its own part of the digits. With REFLUID_SYNTHETIC_DATA=1 nothing is downloaded.
"""

import argparse
import os

import numpy as np

import paddle
import paddle.fluid as fluid


def network():
    img = fluid.layers.data(name="img", shape=[1, 28, 28], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    hidden = fluid.layers.fc(input=img, size=200, act="relu")
    prediction = fluid.layers.fc(input=hidden, size=10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(input=prediction, label=label))
    return img, label, prediction, loss, fluid.layers.accuracy(input=prediction, label=label)


def own_part(reader, rank, count):
    """Every process reads as many samples: it would wait for the others' next step otherwise."""

    def read():
        for number, sample in enumerate(reader()):
            if number % count == rank:
                yield sample

    return read


def main(args):
    rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
    gpu = int(os.environ.get("FLAGS_selected_gpus", "0"))  # noqa: SIM112 - its name in Fluid
    place = fluid.CUDAPlace(gpu) if args.use_cuda else fluid.CPUPlace()
    fluid.default_startup_program().random_seed = 1
    img, label, prediction, loss, accuracy = network()
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.001).minimize(loss)
    if len(endpoints) > 1:
        config = fluid.DistributeTranspilerConfig()
        config.mode = "nccl2"
        transpiler = fluid.DistributeTranspiler(config=config)
        transpiler.transpile(rank, trainers=",".join(endpoints), current_endpoint=endpoints[rank])

    exe = fluid.Executor(place)
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss_name=loss.name)
    feeder = fluid.DataFeeder(feed_list=[img, label], place=place)
    reader = own_part(paddle.dataset.mnist.train(), rank, len(endpoints))
    for epoch in range(args.epochs):
        for step, data in enumerate(paddle.batch(reader, args.batch_size, drop_last=True)()):
            (value,) = exe.run(program, feed=feeder.feed(data), fetch_list=[loss.name])
            if step % 30 == 0:
                print("rank %d  epoch %d  step %3d  loss %.4f" % (rank, epoch, step, np.mean(value)))
    if rank:
        return
    test = paddle.batch(paddle.dataset.mnist.test(), batch_size=200)
    right = [exe.run(test_program, feed=feeder.feed(data), fetch_list=[accuracy])[0] for data in test()]
    print("test accuracy %.3f" % np.mean(right))
    if args.save_dir:
        fluid.io.save_inference_model(args.save_dir, ["img"], [prediction], exe, test_program)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=64, help="of each process")
    parser.add_argument("--use_cuda", action="store_true")
    parser.add_argument("--save_dir", help="where the first process saves the model")
    main(parser.parse_args())
