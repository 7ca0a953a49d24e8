"""DataLoader and PyReader: arguments, errors, and readers that are not Fluid's. Batches are compared in golden/."""

import itertools

import numpy as np
import pytest

import paddle.fluid as fluid
from golden.readers import arrays, described, lists, variables
from refluid.alignment import phase_of

EXE = fluid.Executor(fluid.CPUPlace())


def loader_of(**options):
    return fluid.io.DataLoader.from_generator([fluid.data("x", [None, 3])], 2, **options)


def values(loader):
    """The first number of each batch."""
    return [float(np.array(data[0]["x"])[0, 0]) for data in loader]


BATCHES = [np.full((2, 3), i, "float32") for i in range(3)]


@pytest.mark.parametrize(
    "batches",
    [
        [(batch,) for batch in BATCHES],
        [{"x": batch, "other": 1} for batch in BATCHES],
        BATCHES,
        [[batch.tolist()] for batch in BATCHES],
        [[fluid.create_lod_tensor(batch, [], fluid.CPUPlace())] for batch in BATCHES],
    ],
    ids=["tuples", "dicts", "arrays", "lists of numbers", "tensors"],
)
def test_batches_may_come_in_any_form(batches):
    assert values(loader_of().set_batch_generator(lambda: iter(batches))) == [0, 1, 2]
    assert values(loader_of().set_batch_generator(batches)) == [0, 1, 2]


class Loader:
    """What loaders of other packages look like: iterables of tensors that NumPy can read; they cannot be called."""

    class Tensor:
        def __init__(self, array):
            self._array, self.shape = array, array.shape

        def __array__(self, dtype=None, copy=None):
            return self._array

    def __iter__(self):
        return iter([{"x": Loader.Tensor(batch)} for batch in BATCHES])


def test_a_loader_of_another_package_can_be_read():
    loader = loader_of().set_batch_generator(Loader())
    assert values(loader) == values(loader()) == [0, 1, 2]


def test_a_generator_may_fill_the_same_array_for_every_batch():
    def reusing():
        batch = np.zeros((2, 3), "float32")
        for i in range(6):
            batch[:] = i
            yield [batch]

    assert values(loader_of().set_batch_generator(reusing)) == [0, 1, 2, 3, 4, 5]


def test_large_arrays_are_where_xla_reads_them_in_place():
    x = fluid.data("x", [None, 300, 300])
    pictures = [np.full((300, 300), i, dtype) for i, dtype in enumerate(("float32", "uint8"))]
    loader = fluid.io.DataLoader.from_generator([x], 2)
    loader.set_sample_list_generator([[(picture,) for picture in pictures]])
    stacked = next(iter(loader))[0]["x"].value
    assert stacked.dtype == np.float32 and (stacked == np.stack(pictures)).all()
    loader.set_batch_generator([[np.stack(pictures)[:, ::-1]]])
    copied = next(iter(loader))[0]["x"].value
    assert (copied == np.stack(pictures)).all() and copied.flags.c_contiguous
    assert phase_of(stacked) == phase_of(copied) == 0


def test_an_iterator_can_be_read_once():
    loader = loader_of().set_batch_generator(iter(BATCHES))
    assert values(loader) == [0, 1, 2]
    with pytest.raises(ValueError, match="was read before and can only be read once; pass the function that made it"):
        values(loader)


def test_samples_of_one_field_need_no_tuple():
    assert values(loader_of().set_sample_generator(lambda: iter(np.eye(3)), batch_size=1)) == [1, 0, 0]


@pytest.mark.parametrize(
    ("method", "batches", "problem"),
    [
        (
            "set_batch_generator",
            [(1, 2)],
            "a batch has 2 values, but 1 variables are fed: x; a generator of lists",
        ),
        ("set_batch_generator", [{"y": 1}], "a batch has no value for x; it has y"),
        ("set_batch_generator", ["text"], "a batch must be a list, a tuple or a dict of arrays, .*, not str"),
        ("set_batch_generator", [7], "not int; the variables are x"),
        ("set_sample_list_generator", [[(1, 2)]], "a sample has 2 fields, but 1 variables are fed: x"),
        ("set_sample_list_generator", [[(np.zeros(3),), (np.zeros(4),)]], r"different shapes, \[3\] and \[4\]"),
        ("set_sample_list_generator", [[([1, 2, 3],), ([1, 2],)]], "x does not take these samples"),
    ],
)
def test_wrong_batches_are_named(method, batches, problem):
    loader = getattr(loader_of(), method)(batches)
    with pytest.raises((ValueError, TypeError), match=problem):
        values(loader)


def test_calls_in_the_wrong_order_are_errors():
    iterable, read = loader_of(), loader_of(iterable=False)
    assert (iterable.iterable, read.iterable) == (True, False)
    with pytest.raises(RuntimeError, match=r"no generator is set; call set_sample_list_generator\(\)"):
        iter(iterable)
    with pytest.raises(RuntimeError, match=r"no generator is set; call set_sample_list_generator\(\)"):
        read.start()
    with pytest.raises(RuntimeError, match=r"start\(\) is for loaders made with iterable=False"):
        iterable.start()
    with pytest.raises(RuntimeError, match=r"reset\(\) is for loaders made with iterable=False"):
        iterable.reset()
    with pytest.raises(RuntimeError, match="no pass has begun"):
        next(iterable)
    read.set_batch_generator(BATCHES)
    with pytest.raises(RuntimeError, match=r"not iterable: call start\(\)"):
        iter(read)
    read.reset()
    with pytest.raises(RuntimeError, match=r"call start\(\) before running a program"):
        EXE.run()


def test_wrong_arguments_are_errors():
    x = fluid.data("x", [None, 3])
    with pytest.raises(ValueError, match="feed_list must list the variables"):
        fluid.io.DataLoader.from_generator(capacity=2)
    for capacity in (None, 0):
        with pytest.raises(ValueError, match=f"at least 1; it is {capacity}"):
            fluid.io.PyReader([x], capacity)
    loader = fluid.io.DataLoader.from_generator([x], 2)
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        loader.set_sample_generator(BATCHES, 0)
    with pytest.raises(TypeError, match="places must be a place or a list of places"):
        loader.set_batch_generator(BATCHES, places=["cpu"])
    with pytest.raises(TypeError, match="a function that returns an iterable, or an iterable, not 5"):
        loader.set_batch_generator(5)


def test_an_executor_takes_the_feeds_of_one_place():
    mean = fluid.layers.mean(fluid.data("x", [None, 3]))
    loader = fluid.io.DataLoader.from_generator([mean.block.var("x")], 2)
    loader.set_batch_generator(BATCHES, places=fluid.CPUPlace())
    assert [float(EXE.run(feed=data, fetch_list=[mean])[0][0]) for data in loader()] == [0, 1, 2]
    assert EXE.run(feed=({"x": BATCHES[1]},), fetch_list=[mean])[0] == [1]
    with pytest.raises(ValueError, match="takes one feed, not 2"):
        EXE.run(feed=[{"x": BATCHES[0]}] * 2, fetch_list=[mean])
    with pytest.raises(TypeError, match="feed must be a dict of name to value, not ndarray"):
        EXE.run(feed=BATCHES[:1], fetch_list=[mean])


def test_a_worker_process_delivers_the_same_batches():
    for generator, method in ((lists(3, 2), "set_sample_list_generator"), (arrays(3), "set_batch_generator")):
        found = []
        for in_process in (False, True):
            with fluid.program_guard(fluid.Program()):
                loader = fluid.io.DataLoader.from_generator(variables(fluid), 2, use_multiprocess=in_process)
            found.append(described(fluid, list(getattr(loader, method)(generator))))
        assert found[0] == found[1]
        assert len(found[0]) == 3


def test_a_generator_runs_ahead_by_the_capacity():
    begun = []

    def generator():
        for batch in BATCHES * 5:
            begun.append(batch)
            yield [batch]

    loader = loader_of().set_batch_generator(generator)
    passed = iter(loader)
    for taken, _ in enumerate(itertools.islice(passed, 5), 1):
        # Two wait in the queue, and the thread holds one more.
        assert len(begun) <= taken + 3
    passed.close()


def test_decorators_of_readers_are_found_in_fluid_io():
    for (
        name
    ) in "batch buffered cache chain compose firstn map_readers shuffle xmap_readers multiprocess_reader".split():
        assert callable(getattr(fluid.io, name))
    assert fluid.io.DataLoader is fluid.reader.DataLoader
    assert fluid.io.PyReader is fluid.reader.PyReader
