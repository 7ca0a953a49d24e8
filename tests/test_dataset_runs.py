"""Passes over datasets: the same numbers as `Executor.run`, fed ahead, reported, and nothing left behind."""

import _thread
import gc
import logging
import threading
from functools import cache
from weakref import ref

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.dataset_runs import without_training
from refluid.run_reports import described


class Batches:
    """A dataset of ready feeds."""

    def __init__(self, feeds, failure=None):
        self._feeds, self._failure = feeds, failure
        self.closed = False
        self.threads = []

    def feeds(self, threads=None, meter=None):
        self.threads.append(threads)
        try:
            for feed in self._feeds:
                if meter is not None:
                    meter.add("parse", 0.001)
                yield feed
            if self._failure is not None:
                raise self._failure
        finally:
            self.closed = True


def feeds(count=6, batch=4, last=None):
    rng = np.random.RandomState(0)
    found = []
    for number in range(count):
        size = last if last is not None and number == count - 1 else batch
        lengths = rng.randint(1, 4, size)
        ids = rng.randint(0, 10, (lengths.sum(), 1)).astype("int64")
        y = rng.rand(size, 1).astype("float32")
        found.append({"ids": fluid.create_lod_tensor(ids, [lengths.tolist()], fluid.CPUPlace()), "y": y})
    return found


@cache
def build():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        y = fluid.layers.data("y", [1])
        rows = fluid.layers.embedding(ids, [10, 4], param_attr="table")
        hidden = fluid.layers.dropout(fluid.layers.sequence_pool(rows, "sum"), 0.3)
        p = fluid.layers.fc(hidden, 1, param_attr="w")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(p, y))
        fluid.optimizer.Adam(0.1).minimize(loss)
    return main, startup, loss, p


class Model:
    """A small program on sequences, compiled once for all tests, in a new scope; always the same parameters."""

    def __init__(self):
        self.main, self.startup, self.loss, self.p = build()
        self.scope = fluid.core.Scope()
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)

    def train(self, dataset, **options):
        self.exe.train_from_dataset(self.main, dataset, scope=self.scope, **options)

    def infer(self, dataset, **options):
        self.exe.infer_from_dataset(self.main, dataset, scope=self.scope, **options)

    def parameter(self, name="w"):
        return np.array(self.scope.find_var(name).get_tensor())

    def losses(self, batches):
        run = [self.exe.run(self.main, feed=feed, fetch_list=[self.loss], scope=self.scope)[0] for feed in batches]
        return [f"{float(loss):g}" for loss in run]


def printed(text):
    """The numbers of a fetch of one element, as they were printed."""
    return [line.removeprefix("\tdata: [").removesuffix("]") for line in text.splitlines() if "data" in line]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert {thread for thread in threading.enumerate() if thread.name.startswith("refluid")} <= before


def test_a_data_parallel_program_trains_on_one_device(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    plain, parallel = Model(), Model()
    plain.train(Batches(feeds()))
    parallel.main = fluid.CompiledProgram(parallel.main).with_data_parallel(parallel.loss.name)
    parallel.train(Batches(feeds()))
    np.testing.assert_array_equal(parallel.parameter(), plain.parameter())


def test_a_program_of_a_collective_job_does_not_train_apart_from_the_others(monkeypatch):
    model = Model()
    monkeypatch.setattr(model.main, "_trainers_endpoints", ["127.0.0.1:1", "127.0.0.1:2"])
    with pytest.raises(RuntimeError, match=r"train_from_dataset: the program belongs to a job of 2 processes"):
        model.train(Batches(feeds()))


def test_a_pass_trains_like_executor_run_on_the_same_batches(capsys):
    batches = feeds(6, last=3)
    fed, passed = Model(), Model()
    expected = fed.losses(batches)
    passed.train(Batches(batches), fetch_list=[passed.loss], fetch_info=["loss"], print_period=1)
    assert printed(capsys.readouterr().out) == expected
    for name in ("w", "table"):
        np.testing.assert_array_equal(passed.parameter(name), fed.parameter(name))


def test_a_step_is_found_once_for_each_shape():
    model = Model()
    model.train(Batches(feeds(8, last=3)))
    before = model.exe.compilations
    model.train(Batches(feeds(8, last=3)))
    assert model.exe.compilations == before


def test_a_negative_number_of_threads_is_refused():
    with pytest.raises(ValueError, match="train_from_dataset: thread must be 0, .*, or more; it is -1"):
        Model().train(Batches(feeds(1)), thread=-1)


def test_fetches_are_printed_as_fluid_prints_them_every_period(capsys):
    model = Model()
    model.train(Batches(feeds(7)), fetch_list=[model.loss, model.p], fetch_info=["the loss", "p"], print_period=3)
    lines = capsys.readouterr().out.splitlines()
    assert len(printed("\n".join(lines))) == 4  # two fetches, after batches 3 and 6
    assert lines[0] == f"the loss\t{model.loss.name}\t\tlod: {{}}"
    assert lines[6:10] == [f"p\t{model.p.name}\t\tlod: {{}}", "\tdim: 4, 1", "\tlayout: NCHW", "\tdtype: float"]


def test_a_sequence_is_printed_with_its_offsets():
    tensor = fluid.create_lod_tensor(np.array([[3], [5], [9]], "int64"), [[1, 2]], fluid.CPUPlace())
    assert described("ids", "ids", tensor) == (
        "ids\tids\t\tlod: {{0, 1, 3}}\n\tdim: 3, 1\n\tlayout: NCHW\n\tdtype: int64_t\n\tdata: [3 5 9]\n\t"
    )


def test_the_end_of_a_pass_is_logged_with_its_rate_and_where_the_time_went(caplog):
    model = Model()
    with caplog.at_level(logging.INFO, "refluid"):
        model.train(Batches(feeds(5)), thread=3)
    (record,) = [record for record in caplog.records if record.name == "refluid.dataset"]
    found = record.fields
    assert found["msg"] == "train_from_dataset ended"
    assert (found["step"], found["samples"]) == (5, 20)
    assert found["samples_per_second"] > 0
    assert {"parse", "wait", "compute"} <= found.keys()


def test_the_threads_of_a_call_replace_those_of_the_dataset():
    dataset, model = Batches(feeds(1)), Model()
    model.train(dataset, thread=3)
    model.train(dataset)
    assert dataset.threads == [3, None]


def test_debug_prints_times_and_the_rate_every_hundred_batches(capsys):
    model = Model()
    model.train(Batches(feeds(1) * 200), debug=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["mean read time", "IO percent"]
    assert len(lines) == 6 and lines[2].endswith(" instances/s")


def test_inferring_changes_no_parameters_even_with_a_training_program(capsys):
    model, batches = Model(), feeds(3)
    before = {name: model.parameter(name) for name in ("w", "table")}
    model.infer(Batches(batches), fetch_list=[model.loss], print_period=1)
    for name, value in before.items():
        np.testing.assert_array_equal(model.parameter(name), value)
    assert len(printed(capsys.readouterr().out)) == 3
    compiled = model.exe.compilations
    model.infer(Batches(batches), fetch_list=[model.loss])
    assert model.exe.compilations == compiled


def test_an_error_of_the_dataset_arrives_and_closes_it():
    dataset, model = Batches(feeds(4), ValueError("part-0:17: expected 3 numbers")), Model()
    with pytest.raises(ValueError, match="part-0:17"):
        model.train(dataset)
    assert dataset.closed


def test_an_error_of_a_step_names_the_batch(capsys):
    batches = feeds(4)
    batches[2]["ids"] = fluid.create_lod_tensor(np.full((4, 1), 99), [[1] * 4], fluid.CPUPlace())
    dataset, model = Batches(batches), Model()
    with pytest.raises(IndexError, match="99") as raised:
        model.train(dataset)
    assert raised.value.__notes__ == [
        "in train_from_dataset, step 3: batch 3 of the dataset (samples 9 to 12 of the pass)"
    ]
    assert dataset.closed


def test_an_interrupt_closes_the_dataset(interruptible):
    class Interrupted(Batches):
        def feeds(self, threads=None, meter=None):
            try:
                yield from self._feeds
                _thread.interrupt_main()
                threading.Event().wait()
            finally:
                self.closed = True

    dataset, model = Interrupted(feeds(3)), Model()
    with pytest.raises(KeyboardInterrupt):
        model.train(dataset)
    assert dataset.closed


class Endless(Batches):
    """Yields batches until it is told to stop."""

    def __init__(self, batches):
        super().__init__(batches)
        self.enough = threading.Event()

    def feeds(self, threads=None, meter=None):
        while not self.enough.is_set():
            yield from self._feeds


class Handler(fluid.executor.FetchHandler):
    def __init__(self, dataset, *wanted, failure=None, **options):
        super().__init__(*wanted, period_secs=0.01, **options)
        self._dataset, self._failure, self.seen = dataset, failure, []

    def handler(self, res_dict):
        if next(iter(res_dict.values() if isinstance(res_dict, dict) else res_dict)) is None:
            return  # before the first step
        self.seen.append(res_dict)
        self._dataset.enough.set()
        if self._failure is not None:
            raise self._failure


def test_a_fetch_handler_sees_values_while_the_program_trains():
    model, dataset = Model(), Endless(feeds(1))
    handler = Handler(dataset, {"loss": model.loss, "w": "w", "nothing": "nope"})
    model.train(dataset, fetch_handler=handler)
    seen = handler.seen[0]
    assert seen["loss"].shape == (1,) and seen["w"].shape == (4, 1)
    assert seen["nothing"] is None


def test_a_fetch_handler_of_fluid_1_6_gets_a_list():
    model, dataset = Model(), Endless(feeds(1))
    handler = Handler(dataset, [model.loss.name, "w"], return_np=False)
    model.train(dataset, fetch_handler=handler)
    assert [type(value).__name__ for value in handler.seen[0]] == ["LoDTensor", "LoDTensor"]


def test_what_a_fetch_handler_raises_is_logged_and_raised_when_the_pass_has_ended(caplog):
    model, dataset = Model(), Endless(feeds(1))
    with caplog.at_level(logging.ERROR, "refluid"), pytest.raises(ZeroDivisionError) as raised:
        model.train(dataset, fetch_handler=Handler(dataset, {"loss": model.loss}, failure=ZeroDivisionError("mine")))
    assert "went on to the end" in raised.value.__notes__[0]
    assert "ZeroDivisionError: mine" in caplog.text


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"dataset": None}, RuntimeError, "a dataset is needed"),
        ({"dataset": [1]}, TypeError, "not list"),
        ({"fetch_list": ["nope"]}, ValueError, "no such variable"),
        ({"fetch_list": ["w"], "fetch_info": ["a", "b"]}, ValueError, "2 texts for the 1 variables"),
        ({"print_period": 0}, ValueError, "print_period must be 1 or more"),
        ({"fetch_handler": print}, TypeError, "must be a fluid.executor.FetchHandler"),
    ],
)
def test_wrong_arguments_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        Model().train(**{"dataset": Batches(feeds(1)), **options})


def test_a_fetch_handler_needs_variables_and_a_period():
    with pytest.raises(TypeError, match="a dict of variables or a list of names"):
        fluid.executor.FetchHandler()
    with pytest.raises(ValueError, match="period_secs must be positive"):
        fluid.executor.FetchHandler({}, period_secs=0)


@pytest.fixture
def files(tmp_path):
    """Two files of ten lines."""
    rng = np.random.RandomState(1)
    for number in range(2):
        lines = [f"2 {a} {b} 1 {y:.3f}\n" for a, b, y in zip(*rng.randint(0, 10, (2, 10)), rng.rand(10), strict=True)]
        (tmp_path / f"part-{number}").write_text("".join(lines))
    return [str(tmp_path / f"part-{number}") for number in range(2)]


def queue(files):
    block = build()[0].global_block()
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var([block.var("ids"), block.var("y")])
    dataset.set_batch_size(4)
    dataset.set_filelist(files)
    return dataset


def test_files_are_trained_on_like_the_feeds_that_they_hold(files, capsys):
    fed, passed = Model(), Model()
    expected = fed.losses(queue(files).feeds())
    passed.train(queue(files), thread=1, fetch_list=[passed.loss], print_period=1)
    assert printed(capsys.readouterr().out) == expected and len(expected) == 5


def test_an_error_in_a_file_names_the_line(files):
    with open(files[1], "a") as file:
        file.write("2 1 x 1 0.5\n")
    with pytest.raises(ValueError, match=r"part-1.*11"):
        Model().train(queue(files))


def test_an_error_of_a_step_names_the_files_of_its_batch(files):
    with open(files[1], "a") as file:
        file.write("1 99 1 0.5\n")
    with pytest.raises(IndexError, match="99") as raised:
        Model().train(queue(files))
    assert raised.value.__notes__[-1].endswith(
        f"batch 6 of the dataset (samples 21 to 21 of the pass), from {files[1]}"
    )


def test_programs_that_were_inferred_with_are_freed():
    program = fluid.Program()
    assert without_training(program) is program
    known = ref(program)
    del program
    gc.collect()
    assert known() is None


@pytest.mark.parametrize(("places", "drop_last", "sizes"), [(1, True, [[6]] * 3), (2, False, [[6, 6], [6, 2]])])
def test_a_loader_gets_a_feed_for_each_place(files, places, drop_last, sizes):
    dataset = queue(files)
    dataset.set_batch_size(6)
    loader = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(places), drop_last)
    for found in (loader, loader()):  # every loop is a pass
        assert [[len(feed["y"]) for feed in group] for group in found] == sizes


def test_the_feeds_of_a_loader_train_like_the_dataset_itself(files):
    passed, fed = Model(), Model()
    passed.train(queue(files))
    for feed in fluid.io.DataLoader.from_dataset(queue(files), fluid.CPUPlace(), drop_last=False):
        fed.exe.run(fed.main, feed=feed, scope=fed.scope)
    np.testing.assert_array_equal(passed.parameter(), fed.parameter())
