"""CTR-DNN on click logs in Criteo's format: 26 categories share one large embedding table, 13 numbers.

    python ctr_dnn.py --generate 40000 --data clicks                  # makes data whose best AUC is known
    python ctr_dnn.py --data clicks                                   # trains in this process
    python -m paddle.distributed.launch_ps --server_num 2 --worker_num 2 ctr_dnn.py --data clicks --mode async

``--data`` may also be a folder with parts of the original files.
"""

import os
import sys

import criteo
import modes

import paddle.fluid as fluid

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, HIDDEN = 10, (64, 32)
PARTS = 4


class CtrDnn:
    """The model, as `modes.run` wants it."""

    command = "%s %s" % (sys.executable, os.path.join(HERE, "criteo.py"))

    def __init__(self, data):
        self._test = os.path.join(data, "test.txt")

    def build(self, args):
        layers = fluid.layers
        dense = layers.data("dense", [criteo.DENSE])
        slots = [layers.data(name, [1], dtype="int64") for name in criteo.NAMES[1:-1]]
        click = layers.data("click", [1], dtype="int64")
        table = fluid.ParamAttr("table", initializer=fluid.initializer.Uniform(-0.05, 0.05))
        found = [
            layers.embedding(
                slot, [criteo.IDS, WIDTH], is_sparse=True, is_distributed=args.distributed, param_attr=table
            )
            for slot in slots
        ]
        hidden = layers.concat([*found, dense], axis=1)
        for size in HIDDEN:
            hidden = layers.fc(hidden, size, act="relu")
        self.predicted = layers.fc(hidden, 2, act="softmax")
        self.loss = layers.mean(layers.cross_entropy(self.predicted, click))
        self.feeds = [dense, *slots, click]

    def optimizer(self, args):
        return fluid.optimizer.SGD(args.rate or 0.3)

    def batches(self, paths, size, part, parts):
        return criteo.batches(paths, size, part, parts)

    def samples_of(self, line):
        return 1

    def measure(self, exe, program):
        """Loss and AUC on held-back clicks."""
        losses, scores, clicks = [], [], []
        for batch in criteo.batches([self._test], 500):
            feed = dict(zip(criteo.NAMES, batch))
            loss, predicted = exe.run(program, feed=feed, fetch_list=[self.loss, self.predicted])
            losses.append(float(loss[0]))
            scores.extend(predicted[:, 1])
            clicks.extend(batch[-1][:, 0])
        return {"loss": sum(losses) / len(losses), "auc": criteo.auc(scores, clicks)}


def generate(folder, lines):
    if not os.path.isdir(folder):
        os.makedirs(folder)
    for part in range(PARTS):
        criteo.generate(os.path.join(folder, "part-%03d.txt" % part), lines // PARTS // 128 * 128, seed=part + 1)
    best = criteo.generate(os.path.join(folder, "test.txt"), max(2000, lines // 10), seed=0)
    print("attainable auc %.4f" % best)


def main():
    parser = modes.parser(__doc__)
    parser.add_argument("--generate", type=int, help="make so many samples and stop")
    args = parser.parse_args()
    if args.generate:
        generate(args.data, args.generate)
        return
    modes.run(args, modes.Part(args), CtrDnn(args.data))


if __name__ == "__main__":
    main()
