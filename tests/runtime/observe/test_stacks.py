"""What threads do, in a line each."""

import threading
from pathlib import Path

from cluster.jobs import wait_until
from refluid.runtime.observe.stacks import stacks
from refluid.runtime.server.durable.log import Log
from refluid.runtime.transport.admission import Budget

ROOT = str(Path(__file__).parents[3])


def test_threads_of_the_script_are_shown_with_their_place_and_those_of_libraries_are_not():
    entered, leaves = threading.Barrier(3), threading.Event()

    def of_the_script():
        entered.wait()
        leaves.wait()

    threads = [threading.Thread(target=of_the_script, name=f"mine-{number}") for number in range(2)]
    bare = threading.Thread(target=leaves.wait, name="bare")
    for thread in [*threads, bare]:
        thread.start()
    entered.wait()
    found = stacks()
    leaves.set()
    for thread in [*threads, bare]:
        thread.join()
    (place,) = {at for name, at in found.items() if "mine-" in name}
    assert "threading.py:" in place.split(" < ")[0], "the innermost frame says what it waits for"
    assert "test_stacks.py:" in place and place.endswith("in of_the_script")
    assert not any("bare" in name for name in found)
    assert threading.current_thread().name not in found, "whoever asks knows where it is"


def test_code_of_refluid_has_short_places():
    budget = Budget(1)
    thread = threading.Thread(target=budget.take, args=(2, 30.0), name="mine")
    thread.start()
    wait_until(lambda: "in take" in stacks().get("mine", ""))
    assert "runtime/transport/admission.py:" in stacks()["mine"] and ROOT not in stacks()["mine"]
    with budget._changed:
        budget.size = 2
        budget._changed.notify_all()
    thread.join()


def test_threads_that_wait_for_work_are_left_out(tmp_path):
    log = Log(tmp_path, 1)
    wait_until(lambda: log._thread.is_alive())
    assert not any("log" in name for name in stacks())
    log.close()
