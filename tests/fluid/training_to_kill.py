"""A training run for test_trainer.py to kill: prints each step's loss, and begins where a checkpoint ended.

Run as ``python training_to_kill.py CHECKPOINTS [EPOCHS]``; without a folder of checkpoints ("-") it runs through.
"""

import random
import sys

import numpy as np

import paddle.fluid as fluid

EPOCHS, STEPS, BATCH = 2, 6, 4


def model():
    """A model with random ops and counters: dropout, Adam's powers, a decaying rate."""
    fluid.default_main_program().random_seed = 7
    fluid.default_startup_program().random_seed = 7
    x = fluid.layers.data(name="x", shape=[5], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    hidden = fluid.layers.dropout(fluid.layers.fc(x, size=8, act="relu"), dropout_prob=0.3)
    return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, size=1), y))


def optimizer():
    return fluid.optimizer.Adam(learning_rate=fluid.layers.exponential_decay(0.05, decay_steps=3, decay_rate=0.9))


def batches():
    """Shuffled anew in every epoch, with Python's own generator."""
    numbers = np.random.RandomState(0)
    samples = [(numbers.rand(5).astype("float32"), numbers.rand(1).astype("float32")) for _ in range(STEPS * BATCH)]
    random.shuffle(samples)
    return (samples[i : i + BATCH] for i in range(0, len(samples), BATCH))


def main(folder):
    random.seed(3)
    config = None
    if folder != "-":
        config = fluid.CheckpointConfig(folder, max_num_checkpoints=2, step_interval=2)
    trainer = fluid.Trainer(model, optimizer, place=fluid.CPUPlace(), checkpoint_config=config)

    def handle(event):
        if isinstance(event, fluid.EndStepEvent):
            print(event.epoch, event.step, event.metrics[0].tobytes().hex(), flush=True)

    trainer.train(EPOCHS, handle, batches, ["x", "y"])


if __name__ == "__main__":
    main(sys.argv[1])
