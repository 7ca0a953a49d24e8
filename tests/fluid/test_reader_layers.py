"""Readers inside of programs. What they read, and their programs, are compared with real Fluid in golden/."""

import threading

import numpy as np
import pytest

import paddle.fluid as fluid
from golden.readers import lists
from refluid.errors import OpError
from refluid.ops.core import registry
from refluid.readers.making import makes
from refluid.readers.reader import Reader
from refluid.scope import Scope, scope_guard

EXE = fluid.Executor(fluid.CPUPlace())
BATCHES = [[np.full((2, 3), i, "float32")] for i in range(3)]


def small_reader(batches=BATCHES, **options):
    """A started reader, and the mean of what it reads."""
    reader = fluid.layers.py_reader(2, [(-1, 3)], ["float32"], **options)
    mean = fluid.layers.mean(fluid.layers.read_file(reader))
    reader.decorate_tensor_provider(lambda: iter(batches))
    EXE.run(fluid.default_startup_program())
    return reader, mean


def means(mean, program=None, limit=9):
    """The means of the batches until the end of a pass."""
    found = []
    try:
        while len(found) < limit:
            found.append(float(EXE.run(program, fetch_list=[mean])[0][0]))
    except fluid.core.EOFException:
        found.append("end")
    return found


def test_the_end_of_a_pass_says_what_to_do():
    reader, mean = small_reader(name="train")
    reader.start()
    means(mean)
    with pytest.raises(fluid.core.EOFException, match="next data: the pass of reader train_double_buffer has ended;"):
        EXE.run(fetch_list=[mean])
    reader.reset()


def test_a_reader_must_be_started():
    reader, mean = small_reader()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"call start\(\) before running a program that reads from it"):
            EXE.run(fetch_list=[mean])
        reader.reset()  # before any start, and again: nothing happens
    reader.start()
    with pytest.raises(RuntimeError, match=r"start\(\) was called before; call reset\(\) to begin another pass"):
        reader.start()
    assert means(mean) == [0, 1, 2, "end"]
    with pytest.raises(RuntimeError, match="start"):
        reader.start()
    reader.reset()


def test_a_reader_must_have_a_generator():
    reader = fluid.layers.py_reader(2, [(-1, 3)], ["float32"])
    with pytest.raises(RuntimeError, match=r"no generator is set; call decorate_paddle_reader\(\)"):
        reader.start()


def test_the_generator_may_be_replaced_between_passes():
    reader, mean = small_reader()
    reader.start()
    assert means(mean) == [0, 1, 2, "end"]
    reader.reset()
    reader.decorate_batch_generator([[np.full((1, 3), 7, "float32")]])
    reader.start()
    assert means(mean) == [7, "end"]
    reader.reset()


def test_an_error_of_the_generator_is_raised_by_the_run_that_would_read_its_batch():
    def broken():
        yield BATCHES[1]
        raise KeyError("no such file")

    reader, mean = small_reader()
    reader.decorate_tensor_provider(broken)
    reader.start()
    assert means(mean, limit=1) == [1]
    for _ in range(2):
        with pytest.raises(KeyError, match="no such file") as caught:
            EXE.run(fetch_list=[mean])
        assert caught.traceback[-1].name == "broken"
    reader.reset()
    reader.decorate_tensor_provider(BATCHES)
    reader.start()
    assert means(mean) == [0, 1, 2, "end"]
    reader.reset()


def test_a_batch_with_too_few_values_is_an_error():
    reader, mean = small_reader([[np.zeros((2, 3), "float32")] * 2])
    reader.start()
    with pytest.raises(ValueError, match="a batch has 2 values, but 1 variables are fed"):
        EXE.run(fetch_list=[mean])
    reader.reset()


def test_values_may_be_fed_beside_those_that_are_read_and_in_place_of_them():
    reader = fluid.layers.py_reader(2, [(-1, 3)], ["float32"])
    x, y = fluid.layers.read_file(reader), fluid.layers.data("y", [3])
    total = fluid.layers.elementwise_add(x, y)
    reader.decorate_tensor_provider(BATCHES)
    EXE.run(fluid.default_startup_program())
    reader.start()
    ones = np.ones((2, 3), "float32")
    for expected in (1, 2):
        assert (EXE.run(feed={"y": ones}, fetch_list=[total])[0] == expected).all()
    (fed,) = EXE.run(feed={"y": ones, x.name: ones * 6}, fetch_list=[total])
    assert (fed == 7).all()
    assert (EXE.run(feed={"y": ones}, fetch_list=[total])[0] == 3).all()
    reader.reset()


def test_clones_and_parsed_programs_read_from_the_same_reader():
    reader, mean = small_reader()
    main = fluid.default_main_program()
    parsed = fluid.Program.parse_from_string(main.desc.serialize_to_string())
    described = parsed.global_block().var(reader.name).desc
    assert (described.shapes(), described.lod_levels()) == ([[-1, 3]], [0])
    reader.start()
    every = (main, main.clone(for_test=True), fluid.CompiledProgram(parsed).with_data_parallel(loss_name=mean.name))
    assert [float(EXE.run(program, fetch_list=[mean.name])[0][0]) for program in every] == [0, 1, 2]
    reader.reset()


def test_training_and_test_have_readers_of_their_own():
    train, mean = small_reader(name="train")
    test_program = fluid.Program()
    with fluid.program_guard(test_program, fluid.default_startup_program()), fluid.unique_name.guard():
        test, test_mean = small_reader([[np.full((1, 3), 5, "float32")]], name="test")
    train.start()
    test.start()
    assert means(mean, limit=1) == [0]
    assert means(test_mean, test_program) == [5, "end"]
    assert means(mean) == [1, 2, "end"]
    train.reset()
    test.reset()


def test_two_readers_of_one_name_are_an_error():
    small_reader(name="same")
    with pytest.raises(ValueError, match="the queue same_queue of another reader already; give this reader another"):
        small_reader(name="same")


def test_a_program_reads_from_several_readers_until_one_has_ended():
    first, second = (fluid.layers.py_reader(2, [(-1, 3)], ["float32"]) for _ in range(2))
    total = fluid.layers.mean(fluid.layers.elementwise_add(*map(fluid.layers.read_file, (first, second))))
    first.decorate_tensor_provider(BATCHES)
    second.decorate_tensor_provider(BATCHES[1:])
    EXE.run(fluid.default_startup_program())
    first.start()
    second.start()
    assert means(total) == [1, 3, "end"]
    first.reset()
    second.reset()


def test_running_the_startup_program_again_keeps_the_reader():
    reader, mean = small_reader()
    reader.start()
    assert means(mean, limit=1) == [0]
    EXE.run(fluid.default_startup_program())
    assert means(mean) == [1, 2, "end"]
    reader.reset()


def test_a_scope_without_the_reader_is_named_as_the_reason():
    small_reader(name="train")
    with scope_guard(Scope()):
        with pytest.raises(OpError, match=r"the queue train_queue is not in this scope(.|\n)*same fluid.scope_guard"):
            EXE.run(fluid.default_startup_program())
        with pytest.raises(OpError, match=r"reader train_reader is not in this scope(.|\n)*run the startup program"):
            EXE.run()


def test_reading_inside_of_a_loop_is_an_error():
    reader = fluid.layers.py_reader(2, [(-1, 3)], ["float32"])
    count = fluid.layers.fill_constant([1], "int64", 0)
    more = fluid.layers.less_than(count, count)
    with fluid.layers.While(more).block():
        fluid.layers.read_file(reader)
        fluid.layers.increment(count)
    with pytest.raises(OpError, match="read: it is inside of a loop or a branch"):
        EXE.run()


def test_an_op_that_makes_a_reader_is_run_once_by_the_executor():
    for type in ("create_py_reader", "create_double_buffer_reader"):
        with pytest.raises(RuntimeError, match=f"{type} makes a reader: Executor.run runs it"):
            registry.lookup(type).rule()
    reader, mean = small_reader()
    reader.start()
    means(mean)
    held = fluid.global_scope().find_var(reader.name).get_reader()
    reader.reset()
    reader.start()
    means(mean)
    reader.reset()
    assert fluid.global_scope().find_var(reader.name).get_reader() is held
    with pytest.raises(RuntimeError, match="holds no reader"):
        fluid.global_scope().var("nothing").get_reader()


class Counting(Reader):
    """Reads 0, 1, 2 ..., three in a pass."""

    def __init__(self):
        self.count, self.read_by = 0, set()

    def reset(self):
        self.count = 0

    def next(self):
        self.read_by.add(threading.current_thread())
        self.count += 1
        return [np.full((1, 3), self.count, "float32")] if self.count <= 3 else None


@pytest.fixture
def counting(monkeypatch):
    """A reader of another kind, behind a double buffer, and the mean of what is read."""
    monkeypatch.setattr("refluid.readers.making._MAKERS", {**_makers(), "create_py_reader": lambda queue, **_: counter})
    counter = Counting()
    reader, mean = small_reader()
    return counter, fluid.global_scope(), reader, mean


def _makers():
    from refluid.readers import making

    return making._MAKERS


def test_a_double_buffer_reads_ahead_in_a_thread(counting):
    counter, scope, reader, mean = counting
    for _ in range(2):
        assert means(mean) == [1, 2, 3, "end"]
        scope.find_var(reader.name).get_reader().reset()
    assert means(mean, limit=1) == [1]
    scope.find_var(reader.name).get_reader().reset()
    assert threading.current_thread() not in counter.read_by
    assert not any(thread.is_alive() for thread in counter.read_by)


def test_makers_are_registered_by_op():
    @makes("create_nothing")
    def nothing():
        return Counting()

    assert _makers().pop("create_nothing") is nothing


def test_samples_are_converted_like_those_of_a_data_feeder():
    reader = fluid.layers.py_reader(2, [(2, 2), (-1, 1)], ["float32", "int64"], [0, 2])
    image, words = fluid.layers.read_file(reader)
    reader.decorate_sample_list_generator([[(range(4), [[1, 2], [3]]), (range(4), [[4]])]])
    EXE.run(fluid.default_startup_program())
    reader.start()
    image, words = EXE.run(fetch_list=[image, words], return_numpy=False)
    reader.reset()
    assert (image.shape(), words.shape()) == ([2, 2, 2], [4, 1])
    assert words.lod() == [[0, 2, 3], [0, 2, 3, 4]]


def test_a_wrong_description_is_an_error():
    with pytest.raises(ValueError, match="2 shapes, 1 dtypes and 2 lod_levels; expected one of each per variable"):
        fluid.layers.py_reader(2, [(-1, 3), (-1, 1)], ["float32"])
    with pytest.raises(ValueError, match="capacity of a reader must be at least 1, not 0"):
        fluid.layers.py_reader(0, [(-1, 3)], ["float32"])


def test_training_from_a_reader_equals_training_from_feeds():
    losses = {}
    for kind in ("fed", "read"):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 3
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), scope_guard(Scope()):
            data = [fluid.layers.data("x", [3]), fluid.layers.data("y", [1], dtype="int64")]
            words = fluid.layers.data("z", [1], dtype="int64", lod_level=1)
            if kind == "read":
                reader = fluid.io.DataLoader.from_generator([*data, words], 2, iterable=False)
                reader.set_sample_list_generator(lists(3, 4))
            pooled = fluid.layers.sequence_pool(fluid.layers.embedding(words, [20, 4]), "sum")
            hidden = fluid.layers.fc([data[0], pooled], 1)
            loss = fluid.layers.mean(fluid.layers.square(hidden))
            fluid.optimizer.Adam(0.1).minimize(loss)
            EXE.run(startup)
            if kind == "read":
                reader.start()
                losses[kind] = means(loss, main)
                reader.reset()
            else:
                feeder = fluid.DataFeeder([*data, words], fluid.CPUPlace(), main)
                feeds = map(feeder.feed, lists(3, 4)())
                losses[kind] = [float(EXE.run(main, feed=feed, fetch_list=[loss])[0][0]) for feed in feeds]
    assert losses["read"] == [*losses["fed"], "end"]


def test_a_saved_inference_model_has_no_readers(tmp_path):
    x = fluid.data("x", [None, 3])
    loader = fluid.io.DataLoader.from_generator([x], 2, iterable=False)
    doubled = fluid.layers.scale(x, 2.0)
    fluid.io.save_inference_model(str(tmp_path), ["x"], [doubled], EXE)
    program, names, targets = fluid.io.load_inference_model(str(tmp_path), EXE)
    assert not any(registry.handles_readers(op.type) for op in program.global_block().ops)
    assert (EXE.run(program, feed={"x": BATCHES[1][0]}, fetch_list=targets)[0] == 2).all()
    assert names == ["x"]
    loader.reset()


def test_a_parallel_executor_reads():
    reader, mean = small_reader()
    reader.start()
    assert fluid.ParallelExecutor(use_cuda=False).run(fetch_list=[mean.name])[0] == [0]
    reader.reset()


def test_waiting_for_a_batch_shows_in_profiles(capsys):
    reader, mean = small_reader()
    reader.start()
    with fluid.profiler.profiler("CPU"):
        means(mean)
    reader.reset()
    assert "read batch" in capsys.readouterr().out
