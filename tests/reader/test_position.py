"""Positions of readers: a run that is resumed continues with the batch after the last one."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.jobs import Process
from refluid.readers.decorators import BatchReader
from refluid.readers.position import Position
from refluid.readers.queued import DoubleBuffer, QueueReader

SCRIPT = Path(__file__).parent / "reading_to_kill.py"
SAMPLES = 20


def samples():
    """Shuffled anew in every pass."""
    numbers = list(range(SAMPLES))
    random.shuffle(numbers)
    for number in numbers:
        yield np.array([number], "int64"), np.random.rand(1).astype("float32")


def loader(kind=fluid.io.DataLoader.from_generator, iterable=True, **options):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        feeds = [fluid.layers.data("number", [1], dtype="int64"), fluid.layers.data("noise", [1])]
        made = kind(feed_list=feeds, capacity=4, iterable=iterable, **options)
    set_samples = made.decorate_sample_generator if kind is fluid.io.PyReader else made.set_sample_generator
    set_samples(samples, batch_size=2, places=fluid.CPUPlace())
    return made


def values(batch):
    return [
        (int(n), float(x)) for n, x in zip(*(np.array(batch[0][k]).ravel() for k in ("number", "noise")), strict=True)
    ]


def taken(made, count=None):
    found = []
    for batch in made():
        found += values(batch)
        if count is not None and len(found) == 2 * count:
            break
    return found


@pytest.mark.parametrize("kind", [fluid.io.DataLoader.from_generator, fluid.io.PyReader])
def test_a_loader_continues_after_the_last_batch_in_the_same_order(kind):
    random.seed(5)
    np.random.seed(5)
    whole = loader(kind)
    expected = [taken(whole) for _ in range(3)]
    random.seed(5)
    np.random.seed(5)
    first = loader(kind)
    seen = [taken(first), taken(first, 4)]
    state = json.loads(json.dumps(first.state_dict()))
    assert (state["epoch"], state["batch"]) == (1, 4)
    random.seed(99)  # a new process knows nothing of the old one's numbers
    resumed = loader(kind)
    resumed.load_state_dict(state)
    rest = taken(resumed)

    assert seen[0] == expected[0] and seen[1] + rest == expected[1]
    assert taken(resumed) == expected[2], "the passes after it are the same, too"
    assert (resumed.state_dict()["epoch"], resumed.state_dict()["batch"]) == (3, 0)


def test_a_generator_in_a_process_of_its_own_continues_in_the_same_order():
    random.seed(5)
    np.random.seed(5)
    first = loader(use_multiprocess=True)
    passes = [taken(first), taken(first, 4)]
    state = first.state_dict()
    random.seed(99)
    resumed, again = (loader(use_multiprocess=True) for _ in range(2))
    resumed.load_state_dict(state)
    rest = taken(resumed)
    assert sorted(n for n, _ in passes[1] + rest) == [*range(SAMPLES)]
    assert passes[0] != passes[1] + rest, "each pass has other random numbers"
    assert [x for _, x in passes[0]] != [x for _, x in passes[1] + rest]
    again.load_state_dict(state)
    assert taken(again) == rest


def test_a_position_between_two_passes_has_the_random_numbers_of_the_next():
    first = loader()
    taken(first)
    state = first.state_dict()
    expected = taken(first)
    random.seed(99)
    np.random.seed(99)
    resumed = loader()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert taken(resumed) == expected


def test_after_the_last_batch_nothing_is_left_of_the_pass():
    first = loader()
    passing = iter(first)
    for _ in range(10):
        next(passing)
    resumed = loader()
    resumed.load_state_dict(first.state_dict())
    assert taken(resumed) == [] and len(taken(resumed)) == SAMPLES


def test_a_pass_that_is_left_early_counts_as_one():
    made = loader()
    taken(made, 3)
    taken(made, 2)
    assert (made.state_dict()["epoch"], made.state_dict()["batch"]) == (1, 2)


def test_with_several_places_whole_steps_are_left_out():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        number = fluid.layers.data("number", [1], dtype="int64")
    made, resumed = (fluid.io.DataLoader.from_generator([number], capacity=4) for _ in range(2))
    for each in (made, resumed):
        each.set_batch_generator(lambda: ([np.array([[i]])] for i in range(8)), places=[fluid.CPUPlace()] * 2)
    next(iter(made))
    resumed.load_state_dict(made.state_dict())
    assert [[int(np.array(f["number"]).item()) for f in step] for step in resumed()] == [[2, 3], [4, 5], [6, 7]]


def test_batches_that_are_left_out_are_not_converted():
    converted = []

    class Sample(tuple):
        def __iter__(self):
            converted.append(self[0])
            return super().__iter__()

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        number = fluid.layers.data("number", [1], dtype="int64")
    made = fluid.io.DataLoader.from_generator([number], capacity=1)
    made.set_sample_list_generator(lambda: ([Sample((i,))] for i in range(6)), places=fluid.CPUPlace())
    made.load_state_dict({"epoch": 0, "batch": 4, "random": None})
    assert [int(np.array(step[0]["number"]).item()) for step in made()] == [4, 5]
    assert set(converted) <= {4, 5}


@pytest.mark.parametrize(
    "state", [{}, {"epoch": 1, "batch": -1, "random": None}, 3, {"epoch": 1, "batch": 1, "random": 7}]
)
def test_what_is_no_position_is_refused(state):
    with pytest.raises(ValueError, match="expected what state_dict.. returned, got"):
        Position().load_state_dict(state)


def test_a_run_that_is_killed_sees_every_sample_once(tmp_path):
    output = ""
    for steps, code in ((16, -9), (-1, 0)):  # killed in the second pass
        process = Process([SCRIPT, tmp_path, steps], tmp_path / "log.txt")
        process.finish(code)
        output += process.output
    for way in ("loader", "queue", "memory"):
        seen = [int(word) for line in output.splitlines() for word in line.split()[1:] if line.split()[0] == way]
        passes = seen[:24], seen[24:]
        assert [sorted(each) for each in passes] == [[*range(1, 25)]] * 2, way
        assert (passes[0] == passes[1]) == (way == "queue"), "the others are shuffled"


def reads(**options):
    """A program that reads from a loader, and what `state_dict` is a method of."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        number = fluid.layers.data("number", [1], dtype="int64")
        made = fluid.io.DataLoader.from_generator([number], capacity=2, iterable=False)
        made.set_batch_generator(lambda: ([np.array([[i]])] for i in range(4)))
        out = fluid.layers.scale(number, 1.0)
    return made, lambda: fluid.Executor().run(main, fetch_list=[out])[0].item()


def test_a_program_that_reads_continues_after_the_last_batch():
    made, run = reads()
    made.start()
    assert [run() for _ in range(3)] == [0, 1, 2]
    state = made.state_dict()
    made.reset()
    assert state["batch"] == 3 and state["epoch"] == 0
    resumed, run = reads()
    resumed.load_state_dict(state)
    resumed.start()
    assert run() == 3
    for _ in range(2):
        with pytest.raises(fluid.core.EOFException):
            run()
    resumed.reset()
    assert (resumed.state_dict()["epoch"], resumed.state_dict()["batch"]) == (1, 0)
    resumed.start()
    assert run() == 0
    resumed.reset()


def queue(count=4):
    made = QueueReader(2, "decorate")
    made.name = "queue"
    made.source = lambda skip: ([np.array([[i]])] for i in range(skip, count))
    return made


def test_a_reader_that_reads_ahead_of_the_program_hides_the_position():
    made = queue()
    buffer = DoubleBuffer(made)  # reads nothing ahead: the queue does
    assert made.state_dict()["batch"] == 0
    batches = BatchReader(buffer, 2)
    batches.name = "pairs"
    with pytest.raises(RuntimeError, match="queue: its position is not known, because pairs around it reads before"):
        made.state_dict()


def test_a_batch_that_arrives_after_a_reset_is_not_counted(monkeypatch):
    made = queue()
    made.start()
    assert made._ahead is not None
    take = made._ahead.take

    def late(default):
        batch = take(default)
        made.reset()
        made.start()
        return batch

    monkeypatch.setattr(made._ahead, "take", late)
    made.next()
    assert (made.state_dict()["epoch"], made.state_dict()["batch"]) == (1, 0)
    made.reset()


def files(folder, count=10):
    (folder / "a.txt").write_text("".join(f"1 {number}\n" for number in range(1, count + 1)))
    return [str(folder / "a.txt")]


def in_memory(folder, batch_size=2, kind="InMemoryDataset"):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        number = fluid.layers.data("number", [1], dtype="int64")
    made = fluid.DatasetFactory().create_dataset(kind)
    made.set_use_var([number])
    made.set_batch_size(batch_size)
    made.set_filelist(files(folder))
    if kind == "InMemoryDataset":
        made.load_into_memory()
    return made


def numbers(feeds, count=None):
    found = []
    for feed in feeds:
        found += feed["number"].ravel().tolist()
        if len(found) == count:
            break
    return found


def test_shuffles_of_a_dataset_are_repeated(tmp_path):
    made = in_memory(tmp_path)
    made.global_shuffle()
    made.local_shuffle()
    first = numbers(made.feeds())
    made.local_shuffle()
    seen = numbers(made.feeds(), 4)
    state = json.loads(json.dumps(made.state_dict()))
    for shuffles in (("global_shuffle", "local_shuffle"), ("global_shuffle",), ("local_shuffle",)):
        resumed = in_memory(tmp_path)
        resumed.load_state_dict(state)
        if shuffles == ("local_shuffle",):
            with pytest.raises(RuntimeError, match="call global_shuffle.fleet. before they are read"):
                resumed.feeds()
            continue
        for name in shuffles:
            getattr(resumed, name)()
        rest = numbers(resumed.feeds())
        assert sorted(seen + rest) == [*range(1, 11)] and sorted(first) == sorted(seen + rest)
        assert numbers(resumed.feeds()) == seen + rest


def test_a_loader_of_a_dataset_has_its_position(tmp_path):
    made, resumed = (
        fluid.io.DataLoader.from_dataset(in_memory(tmp_path, kind="QueueDataset"), fluid.CPUPlace()) for _ in range(2)
    )
    passing = iter(made)
    assert next(passing)[0]["number"].ravel().tolist() == [1, 2]
    resumed.load_state_dict(made.state_dict())
    passing.close()
    assert numbers(step[0] for step in resumed()) == [*range(3, 11)]


def test_a_dataset_in_another_order_is_refused(tmp_path):
    made = in_memory(tmp_path, kind="QueueDataset")
    numbers(made.feeds(), 4)
    resumed = in_memory(tmp_path, batch_size=5, kind="QueueDataset")
    resumed.load_state_dict(made.state_dict())
    with pytest.raises(ValueError, match="2 batches are to be left out, .*: batch_size was 2, and is 5"):
        resumed.feeds()
    resumed.set_batch_size(2)
    assert numbers(resumed.feeds()) == [*range(5, 11)], "a pass that was refused leaves the position as it was"


def test_the_threads_that_read_belong_to_a_position(tmp_path):
    """Not those of `set_thread`: the caller may ask for others."""
    made = in_memory(tmp_path, kind="QueueDataset")
    numbers(made.feeds(2), 4)
    state = made.state_dict()
    resumed = in_memory(tmp_path, kind="QueueDataset")
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    with pytest.raises(ValueError, match="threads was 2, and is 1"):
        resumed.feeds()
    assert numbers(resumed.feeds(2)) == [*range(5, 11)]

    made = in_memory(tmp_path)
    made.preload_into_memory(2)
    assert made.state_dict()["order"]["threads"] == 1
    made.wait_preload_done()
    made.local_shuffle()
    seen = numbers(made.feeds(), 4)
    resumed = in_memory(tmp_path)
    resumed.load_state_dict(made.state_dict())
    with pytest.raises(ValueError, match="threads was 2, and is 1"):
        resumed.feeds()
    resumed.set_thread(2)
    resumed.load_into_memory()
    assert sorted(seen + numbers(resumed.feeds())) == [*range(1, 11)]


def test_the_files_belong_to_a_position(tmp_path):
    made = in_memory(tmp_path, kind="QueueDataset")
    numbers(made.feeds(), 4)
    resumed = in_memory(tmp_path, kind="QueueDataset")
    resumed.load_state_dict(made.state_dict())
    resumed.set_filelist(made.filelist * 2)
    with pytest.raises(ValueError, match="files was 1 with digest .*, and is 2 with digest"):
        resumed.feeds()
    resumed.set_filelist(made.filelist)
    Path(made.filelist[0]).write_text("1 1\n")
    with pytest.raises(ValueError, match="2 batches are to be left out, but a pass over this dataset has only 1"):
        numbers(resumed.feeds())


def test_the_number_of_trainers_belongs_to_a_position(tmp_path):
    made = in_memory(tmp_path)
    made.global_shuffle()
    numbers(made.feeds(), 4)
    state = made.state_dict()
    state["order"]["trainers"] = 2  # that samples were distributed among
    resumed = in_memory(tmp_path)
    resumed.load_state_dict(state)
    resumed.global_shuffle()
    with pytest.raises(ValueError, match="trainers was 2, and is 1"):
        resumed.feeds()


def test_a_position_comes_before_the_shuffle(tmp_path):
    made = in_memory(tmp_path)
    made.local_shuffle()
    with pytest.raises(RuntimeError, match="the samples are shuffled already; call it before"):
        made.load_state_dict(made.state_dict())


def test_training_counts_the_batches_that_were_trained_on(tmp_path):
    """Others are read ahead already when a step fails."""
    made = in_memory(tmp_path, kind="QueueDataset")
    seen = []

    def step(array):
        seen.extend(np.array(array).ravel().tolist())
        if len(seen) == 6 and not resumed:
            raise RuntimeError("power failure")
        return np.array(array)

    main, resumed = fluid.Program(), []
    with fluid.program_guard(main, fluid.Program()):
        number = fluid.layers.data("number", [1], dtype="int64")
        out = main.global_block().create_var(name="out", dtype="int64", shape=[-1, 1])
        fluid.layers.py_func(step, number, out)
    exe = fluid.Executor()
    with pytest.raises(Exception, match="power failure"):
        exe.train_from_dataset(main, made)
    state = made.state_dict()
    assert (state["epoch"], state["batch"]) == (0, 2)
    del seen[4:]  # what the failed step did is not kept
    resumed.append(in_memory(tmp_path, kind="QueueDataset"))
    resumed[0].load_state_dict(state)
    exe.train_from_dataset(main, resumed[0])
    assert seen == [*range(1, 11)]
    assert (resumed[0].state_dict()["epoch"], resumed[0].state_dict()["batch"]) == (1, 0)
