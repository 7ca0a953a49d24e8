"""word2vec: skip-gram with negative sampling on sentences, one in a line, as in the one-billion-word corpus.

    python word2vec.py --generate 20000 --data words                  # makes sentences with planted similarities
    python word2vec.py --data words                                   # trains in this process
    python -m paddle.distributed.launch_ps --server_num 2 --worker_num 2 word2vec.py --data words --mode geo

``--data`` may also be a folder with parts of the original files, and a vocabulary made by ``--count``.
"""

import glob
import os
import sys

import corpus
import modes
import numpy as np

import paddle.fluid as fluid

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH = 16
PARTS = 4


class SkipGram:
    """The model, as `modes.run` wants it."""

    def __init__(self, data):
        path = os.path.join(data, "vocabulary.txt")
        self._vocabulary, self._test = corpus.Vocabulary.read(path), os.path.join(data, "test.txt")
        self.command = "%s %s %s" % (sys.executable, os.path.join(HERE, "corpus.py"), path)

    def build(self, args):
        layers = fluid.layers
        center = layers.data("center", [1], dtype="int64")
        words = [layers.data(name, [1], dtype="int64") for name in corpus.NAMES[1:-1]]
        near = layers.data("is_near", [1 + corpus.NEGATIVE])
        size = [len(self._vocabulary.words), WIDTH]

        def vectors(ids, name):
            begin = fluid.initializer.Uniform(-0.5 / WIDTH, 0.5 / WIDTH)
            attr = fluid.ParamAttr(name, initializer=begin)
            return layers.embedding(ids, size, is_sparse=True, is_distributed=args.distributed, param_attr=attr)

        self.vector = vectors(center, "centers")
        products = [self.vector * vectors(word, "contexts") for word in words]
        scores = layers.concat([layers.reduce_sum(each, dim=1, keep_dim=True) for each in products], axis=1)
        costs = layers.sigmoid_cross_entropy_with_logits(scores, near)
        self.loss = layers.mean(layers.reduce_sum(costs, dim=1, keep_dim=True))
        self.feeds = [center, *words, near]

    def optimizer(self, args):
        return fluid.optimizer.SGD(args.rate or 4.0)

    def batches(self, paths, size, part, parts):
        return corpus.batches(paths, self._vocabulary, size, part, parts)

    def samples_of(self, line):
        return sum(1 for _ in self._vocabulary.pairs(line))

    def measure(self, exe, program):
        """Loss on held-back sentences, and how many words have their nearest neighbour where it was planted."""
        feeds = [dict(zip(corpus.NAMES, batch)) for batch in corpus.batches([self._test], self._vocabulary, 500)]
        count = len(self._vocabulary.words)
        feed = {name: np.zeros((count, 1), "int64") for name in corpus.NAMES[:-1]}
        feed["center"][:, 0], feed["is_near"] = range(count), np.zeros((count, 1 + corpus.NEGATIVE), "float32")
        (vectors,) = exe.run(program, feed=feed, fetch_list=[self.vector])
        found = corpus.recovered(self._vocabulary, vectors)
        return {"loss": modes.mean_loss(exe, program, self.loss, feeds), "recovered": found}


def generate(folder, sentences):
    if not os.path.isdir(folder):
        os.makedirs(folder)
    for part in range(PARTS):
        corpus.generate(os.path.join(folder, "part-%03d.txt" % part), sentences // PARTS, seed=part + 1)
    corpus.generate(os.path.join(folder, "test.txt"), max(100, sentences // 20), seed=0)
    count(folder)


def count(folder):
    paths = glob.glob(os.path.join(folder, "part-*"))
    corpus.Vocabulary.write(os.path.join(folder, "vocabulary.txt"), corpus.count_words(paths, least=5))


def main():
    parser = modes.parser(__doc__)
    parser.add_argument("--generate", type=int, help="make so many sentences and stop")
    parser.add_argument("--count", action="store_true", help="make the vocabulary of the files and stop")
    args = parser.parse_args()
    if args.generate:
        generate(args.data, args.generate)
    elif args.count:
        count(args.data)
    else:
        modes.run(args, modes.Part(args), SkipGram(args.data))


if __name__ == "__main__":
    main()
