"""One trainer of a job that shuffles data across trainers, for the tests:

    shuffle_job.py TRAINER ENDPOINTS FOLDER

Shuffles once; then the last trainer is killed in the middle of a second shuffle. Leaves what it has seen in FOLDER.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

from refluid.errors import PeerError
from refluid.runtime.trainer import group as groups
from refluid.runtime.trainer.shuffle import shuffle_records

BLOCKS, ROWS = 5, 40


class Texts:
    """Records that are texts, in a list."""

    def __init__(self, texts):
        self._texts = texts

    def __len__(self):
        return len(self._texts)

    @property
    def nbytes(self):
        return sum(map(len, self._texts))

    def keys(self):
        return None

    def __getitem__(self, index):
        return Texts([self._texts[i] for i in index])

    def pack(self):
        return np.frombuffer("".join(f"{text};" for text in self._texts).encode(), np.uint8)


def texts(trainer, number, rows=ROWS):
    """Texts that are all different."""
    return [f"{trainer}/{number}/{row}/{'x' * (row % 7)}" for row in range(rows)]


def block(trainer, number, rows=ROWS):
    return Texts(texts(trainer, number, rows))


def texts_of(chunks):
    """The texts in chunks of a shuffle."""
    found = [bytes(chunk.data).decode().split(";")[:-1] for chunk in chunks]
    assert [len(each) for each in found] == [chunk.count for chunk in chunks]
    return [text for each in found for text in each]


def main(trainer, endpoints, folder):
    groups.SILENCE = 1.0
    group = groups.TrainerGroup(trainer, len(endpoints), endpoints[trainer], lambda address: endpoints)
    blocks = (block(trainer, number) for number in range(BLOCKS))
    seen = {"shuffled": texts_of(shuffle_records(group, blocks, "texts", seed=7, chunk_records=8, threads=3))}
    seen["sizes"] = group.gather("sizes", str(len(seen["shuffled"])))

    def interrupted():
        for number in range(BLOCKS):
            if number == 2 and trainer == len(endpoints) - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            yield block(trainer, number)

    try:
        shuffle_records(group, interrupted(), "texts", seed=7, chunk_records=8, threads=3)
    except PeerError as error:
        seen["error"] = str(error)
    (folder / f"{trainer}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].split(","), Path(sys.argv[3]))
