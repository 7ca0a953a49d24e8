"""A run for test_position.py to kill: reads in several ways, two passes each, and begins where a saved state ended.

Run as ``python reading_to_kill.py FOLDER STEPS``: after so many steps it kills itself. Prints what it has seen.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np

import paddle.fluid as fluid
from refluid.files.writing import atomic_write

SAMPLES, EPOCHS, BATCH = 24, 2, 2


def samples():
    numbers = list(range(1, SAMPLES + 1))
    random.shuffle(numbers)
    return ((number,) for number in numbers)


def loader(variable, folder):
    made = fluid.io.DataLoader.from_generator([variable], capacity=3)
    made.set_sample_generator(samples, batch_size=BATCH, places=fluid.CPUPlace())
    return made, lambda: (step[0] for step in made())


def dataset(kind, variable, folder):
    files = []
    for part in range(2):
        files.append(folder / f"part{part}.txt")
        files[-1].write_text("".join(f"1 {number}\n" for number in range(1 + part, SAMPLES + 1, 2)))
    made = fluid.DatasetFactory().create_dataset(kind)
    made.set_use_var([variable])
    made.set_batch_size(BATCH)
    made.set_thread(2)
    made.set_filelist(list(map(str, files)))
    return made


def queue_dataset(variable, folder):
    made = dataset("QueueDataset", variable, folder)
    return made, made.feeds


def memory_dataset(variable, folder):
    made = dataset("InMemoryDataset", variable, folder)

    def feeds():
        if made.get_memory_data_size() == 0:
            made.load_into_memory()
        made.local_shuffle()
        return made.feeds()

    return made, feeds


WAYS = {"loader": loader, "queue": queue_dataset, "memory": memory_dataset}


def read(way, state, variable, folder):
    """Yields after each batch."""
    made, begin = WAYS[way](variable, folder)
    if state is not None:
        made.load_state_dict(state)
    while made.state_dict()["epoch"] < EPOCHS:
        for feed in begin():
            print(way, *np.ravel(np.array(feed["number"])), flush=True)
            yield made.state_dict()
    yield made.state_dict()


def main(folder, steps):
    saved = folder / "state.json"
    states = json.loads(saved.read_text()) if saved.exists() else {}
    variable = fluid.layers.data("number", [1], dtype="int64")
    ways = {way: read(way, states.get(way), variable, folder) for way in WAYS}
    while ways:
        for way in list(ways):
            state = next(ways[way], None)
            if state is None:
                del ways[way]
            else:
                states[way] = state
        with atomic_write(saved) as stream:
            stream.write(json.dumps(states).encode())
        steps -= 1
        if steps == 0:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
