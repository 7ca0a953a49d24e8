"""Groups of trainers that are threads of one process."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from refluid.runtime.trainer.group import TrainerGroup


@contextmanager
def trainers(count):
    """A group in which every member has a thread; yields a function that lets all do the same at once."""
    met, addresses = threading.Barrier(count), [""] * count

    def meet(trainer, address):
        addresses[trainer] = address
        met.wait()
        return addresses

    with ThreadPoolExecutor(count) as pool:

        def everybody(action, among=range(count)):
            return [call.result(60) for call in [pool.submit(action, each) for each in among]]

        members = everybody(lambda i: TrainerGroup(i, count, "127.0.0.1:0", lambda address: meet(i, address)))
        try:
            yield members, everybody
        finally:
            everybody(lambda i: members[i].close())
