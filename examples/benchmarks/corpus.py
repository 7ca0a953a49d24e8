"""Sentences, one in a line, as in the one-billion-word corpus: a reader, and a generator that plants similar words.

As a command, turns sentences from standard input into lines of a Dataset; the argument is the vocabulary:

    python corpus.py vocabulary.txt < part-000.txt
"""

import sys
import zlib

import numpy as np

WINDOW, NEGATIVE = 2, 5
WORDS, TOPICS = 1000, 20  # of generated sentences
NAMES = ["center"] + ["word_%d" % i for i in range(1 + NEGATIVE)] + ["is_near"]


def count_words(paths, least=1):
    """Words that occur at least so often, the most frequent ones first, with how often."""
    counts = {}
    for path in paths:
        with open(path) as file:
            for line in file:
                for word in line.split():
                    counts[word] = counts.get(word, 0) + 1
    kept = [(word, count) for word, count in counts.items() if count >= least]
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))


class Vocabulary:
    """The numbers of words, and random words for pairs that are not near each other."""

    def __init__(self, counted):
        self.words = [word for word, _ in counted]
        self.numbers = {word: number for number, word in enumerate(self.words)}
        frequencies = np.array([count for _, count in counted], "float64") ** 0.75
        self._edges = np.cumsum(frequencies / frequencies.sum())

    @classmethod
    def read(cls, path):
        with open(path) as file:
            return cls([(word, int(count)) for word, count in (line.split() for line in file)])

    @staticmethod
    def write(path, counted):
        with open(path, "w") as file:
            file.writelines("%s %d\n" % pair for pair in counted)

    def pairs(self, line):
        """(word, [a word near it and random words], [1, 0, ...]) for all pairs of a sentence."""
        random = np.random.RandomState(zlib.crc32(line.encode()))
        found = [self.numbers[word] for word in line.split() if word in self.numbers]
        for place, center in enumerate(found):
            for near in found[max(0, place - WINDOW) : place] + found[place + 1 : place + 1 + WINDOW]:
                drawn = np.searchsorted(self._edges, random.rand(NEGATIVE))
                yield center, [near, *np.minimum(drawn, len(self.words) - 1).tolist()], [1] + [0] * NEGATIVE


def batches(paths, vocabulary, size, part=0, parts=1):
    """Batches as lists of arrays, in the order of NAMES; a trainer reads every ``parts``-th sentence."""
    taken = []
    for path in paths:
        with open(path) as file:
            for number, line in enumerate(file):
                if number % parts != part:
                    continue
                for pair in vocabulary.pairs(line):
                    taken.append(pair)
                    if len(taken) == size:
                        yield columns(taken)
                        taken = []


def columns(taken):
    centers, words, near = zip(*taken)
    ids = np.column_stack([np.array(centers, "int64"), np.array(words, "int64")])
    return [ids[:, i : i + 1] for i in range(2 + NEGATIVE)] + [np.array(near, "float32")]


def lines_of_slots(line, vocabulary):
    """Lines of a Dataset: for every variable, how many values it has, and the values."""
    for center, words, near in vocabulary.pairs(line):
        ids = " ".join("1 %d" % word for word in [center, *words])
        yield "%s %d %s" % (ids, 1 + NEGATIVE, " ".join(map(str, near)))


def generate(path, sentences, seed):
    """Writes sentences about one topic each. Word ``t7w12`` belongs to topic 7: such words occur near each other.

    Words of a topic, and topics, are as frequent as Zipf's law says.
    """
    random = np.random.RandomState(seed)
    per_topic = WORDS // TOPICS
    share = 1.0 / np.arange(1, per_topic + 1)
    topics = random.choice(TOPICS, sentences, p=_zipf(TOPICS))
    with open(path, "w") as file:
        for topic in topics:
            words = random.choice(per_topic, random.randint(6, 13), p=share / share.sum())
            file.write(" ".join("t%dw%d" % (topic, word) for word in words) + "\n")


def recovered(vocabulary, vectors):
    """The share of words whose nearest neighbour, by cosine, is a word of their topic."""
    topics = np.array([word.split("w")[0] for word in vocabulary.words])
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    near = unit @ unit.T
    np.fill_diagonal(near, -np.inf)
    return float((topics[near.argmax(axis=1)] == topics).mean())


def _zipf(count):
    share = 1.0 / np.sqrt(np.arange(1, count + 1))
    return share / share.sum()


if __name__ == "__main__":
    known = Vocabulary.read(sys.argv[1])
    for text in sys.stdin:
        for made in lines_of_slots(text, known):
            print(made)
