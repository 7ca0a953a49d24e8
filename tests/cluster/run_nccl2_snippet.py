"""One process of the NCCL2 snippet of Fluid's guide, as its launcher starts it; prints its losses.

The snippet is in tests/end_to_end/snippets/distributed, word for word. It gets the number and the endpoints that the
launcher has chosen; what it leaves out with ``...`` is training.
"""

import os
import sys
from pathlib import Path

import numpy as np

import paddle.fluid as fluid

SNIPPET = Path(__file__).parents[1] / "end_to_end/snippets/distributed/nccl2.py"


def main(*arguments):
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [1])
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    text = SNIPPET.read_text()
    for before, after in (
        ("trainer_id = 0", f"trainer_id = {os.environ['PADDLE_TRAINER_ID']}"),
        ("192.168.1.1:6170,192.168.1.2:6170", os.environ["PADDLE_TRAINER_ENDPOINTS"]),
        ("192.168.1.1:6170", os.environ["PADDLE_CURRENT_ENDPOINT"]),
        ("\n...", "\nlosses = train(exe)"),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)

    def train(exe):
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        feed = {"x": np.ones((4, 3), "float32"), "y": np.ones((4, 1), "float32")}
        return [exe.run([loss.name], feed=feed)[0].item() for _ in range(5)]

    names = {"fluid": fluid, "use_cuda": False, "loss_name": loss.name, "train": train}
    exec(compile(text, SNIPPET.name, "exec"), names)
    print("losses", *names["losses"], "of", names["exe"].device_count, "devices with", *arguments, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
