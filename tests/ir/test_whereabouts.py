"""Where a thread is, and whose code it executes."""

import threading
from contextlib import contextmanager

import numpy as np

import paddle.fluid as fluid
from refluid.ir.whereabouts import Whereabouts, find


@contextmanager
def thread_in(action, *arguments):
    """The identifier of a thread that executes this."""
    thread = threading.Thread(target=action, args=arguments)
    thread.start()
    try:
        yield thread.ident
    finally:
        thread.join()


def test_a_library_that_the_script_calls_belongs_to_the_script():
    entered, leaves = threading.Event(), threading.Event()

    def of_the_script():
        entered.set()
        leaves.wait()

    with thread_in(of_the_script) as ident:
        entered.wait()
        line, in_script = find(ident)
        leaves.set()
    assert in_script and line.startswith(f"{__file__}:") and line.endswith("in of_the_script: leaves.wait()")


def test_a_function_of_the_script_within_a_program_belongs_to_the_script():
    main, entered, leaves, seen = threading.get_ident(), threading.Event(), threading.Event(), []

    def function(x):
        entered.set()
        leaves.wait()
        return np.array(x)

    def look():
        entered.wait()
        seen.append(find(main))
        leaves.set()

    out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[2])
    fluid.layers.py_func(function, fluid.layers.fill_constant([2], "float32", 1.0), out)
    with thread_in(look):
        fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
    assert seen[0].in_script and seen[0].line.endswith("in function: leaves.wait()")


def test_a_call_of_refluid_is_not_the_script():
    x, leaves, found = fluid.layers.data("x", [1]), threading.Event(), []

    def batches():
        leaves.wait()
        yield [np.ones((1, 1), "float32")]

    loader = fluid.io.DataLoader.from_generator([x], capacity=1, iterable=True)
    loader.set_batch_generator(batches, fluid.CPUPlace())
    with thread_in(lambda: found.extend(loader())) as ident:
        while find(ident).in_script:
            pass  # until it waits for a batch
        line, _ = find(ident)
        leaves.set()
    assert len(found) == 1 and "found.extend(loader())" in line


def test_a_thread_that_has_ended_is_nowhere():
    with thread_in(lambda: None) as ident:
        pass
    assert find(ident) == Whereabouts("", in_script=False)
