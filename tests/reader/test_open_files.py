"""layers.open_files and the readers around it, as programs use them."""

import gc
import os
import time

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from refluid.files import recordio
from refluid.readers.queued import DoubleBuffer
from refluid.readers.recordio_files import FilesReader

FP32, INT64 = 5, 3


def write(path, batches, compressor=recordio.Compressor.NoCompress):
    with recordio.Writer(path, compressor, 2) as writer:
        for batch in batches:
            writer.write(recordio.pack_tensors(batch))
    return str(path)


def numbered(start, count=4):
    """Batches of one sample: two features and a label."""
    return [[np.full((1, 2), i, "float32"), np.array([[i]])] for i in range(start, start + count)]


@pytest.fixture
def files(tmp_path):
    return [write(tmp_path / f"{i}.recordio", numbered(10 * i)) for i in range(3)]


@pytest.fixture
def programs():
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        yield main, startup


def opened(files, **options):
    return layers.open_files(files, [[-1, 2], [-1, 1]], [0, 0], ["float32", "int64"], **options)


def labels_of_a_pass(reader, label, exe):
    found = []
    while True:
        try:
            found += exe.run(fetch_list=[label])[0].reshape(-1).tolist()
        except fluid.core.EOFException:
            reader.reset()
            return found


def run(reader, passes=1):
    """The labels that a program reads, for each pass."""
    _, label = layers.read_file(reader)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [labels_of_a_pass(reader, label, exe) for _ in range(passes)]


ALL = [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


def test_one_thread_keeps_the_order_of_the_files(files, programs):
    assert run(opened(files, thread_num=1), passes=2) == [ALL, ALL]


def test_testing_keeps_the_order_of_the_files(files, programs):
    assert run(opened(files, thread_num=3, is_test=True)) == [ALL]


def test_several_threads_read_everything(files, programs):
    one, two = run(opened(files, thread_num=3, buffer_size=1), passes=2)
    assert sorted(one) == sorted(two) == ALL


def test_the_end_comes_after_all_passes(files, programs):
    assert run(opened(files[:1], pass_num=3), passes=2) == [[0, 1, 2, 3] * 3] * 2


def test_readers_wrap_each_other(files, programs):
    programs[0].random_seed = 7
    reader = layers.double_buffer(layers.batch(layers.shuffle(opened(files), 12), 5))
    one, two = run(reader, passes=2)
    assert len(one) == len(two) == 10 and set(one) <= set(ALL) and len(set(one)) == 10
    assert one != sorted(one) and one != two


def test_eof_tells_the_end_before_it_is_read(files, programs):
    reader = layers.shuffle(opened(files[:1]), 4)
    _, label = layers.read_file(reader)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(programs[1])
    count = 0
    while count == 0 or not reader.eof():
        exe.run(fetch_list=[label])
        count += 1
    assert count == 4
    reader.reset()
    assert not reader.eof()
    reader.reset()


def test_sequences_are_read_and_joined(tmp_path, programs):
    tensors = [fluid.create_lod_tensor(np.arange(n).reshape(n, 1), [[n]], fluid.CPUPlace()) for n in (2, 3)]
    path = write(tmp_path / "a.recordio", [[tensor] for tensor in tensors])
    reader = layers.batch(layers.open_files([path], [[-1, 1]], [1], ["int64"]), 2)
    words = layers.read_file(reader)
    total = layers.sequence_pool(layers.cast(words, "float32"), "sum")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(programs[1])
    assert exe.run(fetch_list=[total])[0].reshape(-1).tolist() == [1.0, 3.0]
    reader.reset()


def test_random_data_has_no_end_and_obeys_the_seed(programs):
    programs[0].random_seed = 3
    reader = layers.random_data_generator(0.0, 1.0, [[2, 3], [2, 1]], [0, 0])
    image, label = layers.read_file(reader)
    assert image.shape == (2, 3) and label.dtype == fluid.core.VarDesc.VarType.FP32
    exe = fluid.Executor(fluid.CPUPlace())

    def first():
        with fluid.scope_guard(fluid.Scope()):
            exe.run(programs[1])
            return [exe.run(fetch_list=[image])[0] for _ in range(2)]

    one, two = first(), first()
    np.testing.assert_array_equal(one, two)
    assert (one[0] != one[1]).all()


def test_a_preprocessor_changes_every_batch(files, programs):
    preprocessor = layers.Preprocessor(reader=opened(files[:1]))
    with preprocessor.block():
        image, label = preprocessor.inputs()
        assert image.shape == (-1, 2)
        preprocessor.outputs(layers.reduce_sum(image, dim=1, keep_dim=True), label * 2 + 1)
    reader = layers.double_buffer(preprocessor())
    total, label = layers.read_file(reader)
    assert total.shape == (-1, 1)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(programs[1])
    for _ in range(2):
        found = [[float(value.item()) for value in exe.run(fetch_list=[total, label])] for _ in range(4)]
        assert found == [[2.0 * i, 2.0 * i + 1] for i in range(4)]
        with pytest.raises(fluid.core.EOFException):
            exe.run(fetch_list=[total])
        reader.reset()


def test_a_preprocessor_draws_the_same_numbers_with_a_seed(files, programs):
    programs[0].random_seed = 5
    preprocessor = layers.Preprocessor(reader=opened(files[:1]))
    with preprocessor.block():
        image, _ = preprocessor.inputs()
        preprocessor.outputs(layers.dropout(image + 1.0, 0.5), image)
    noisy, _ = layers.read_file(preprocessor())
    exe = fluid.Executor(fluid.CPUPlace())

    def steps():
        with fluid.scope_guard(fluid.Scope()) as _:
            exe.run(programs[1])
            found = np.stack([exe.run(fetch_list=[noisy])[0] for _ in range(4)])
            preprocessor().reset()
            return found

    one, two = steps(), steps()
    np.testing.assert_array_equal(one, two)


def test_a_preprocessor_reads_parameters_of_the_scope(files, programs):
    preprocessor = layers.Preprocessor(reader=opened(files[:1]))
    with preprocessor.block():
        image, label = preprocessor.inputs()
        scale = fluid.initializer.Constant(3.0)
        preprocessor.outputs(layers.fc(image, 1, param_attr=scale, bias_attr=False), label)
    value, _ = layers.read_file(preprocessor())
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(programs[1])
    assert [exe.run(fetch_list=[value])[0].item() for _ in range(3)] == [0.0, 6.0, 12.0]
    preprocessor().reset()


def test_a_preprocessor_takes_sequences(tmp_path, programs):
    words = fluid.create_lod_tensor(np.arange(5, dtype="float32").reshape(5, 1), [[2, 3]], fluid.CPUPlace())
    path = write(tmp_path / "a.recordio", [[words]])
    preprocessor = layers.Preprocessor(layers.open_files([path], [[-1, 1]], [1], ["float32"]))
    with preprocessor.block():
        (sequence,) = preprocessor.inputs()
        preprocessor.outputs(layers.sequence_pool(sequence, "sum"), sequence * 2.0)
    total, doubled = layers.read_file(preprocessor())
    assert doubled.lod_level == 1
    exe = fluid.Executor(fluid.CPUPlace())
    found = exe.run(fetch_list=[total, doubled], return_numpy=False)
    assert [np.array(tensor).reshape(-1).tolist() for tensor in found] == [[1.0, 9.0], [0.0, 2.0, 4.0, 6.0, 8.0]]
    assert found[1].lod() == [[0, 2, 5]]
    preprocessor().reset()


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files of this process")
def test_files_are_closed_by_reset_and_when_readers_are_forgotten(files):
    def reader():
        made = FilesReader(files, [-1, 2, -1, 1], [2, 2], [0, 0], [FP32, INT64], 3, 1)
        assert made.next() is not None
        return made

    before = open_descriptors()
    first = reader()
    first.reset()
    assert open_descriptors() == before
    del first
    double = DoubleBuffer(reader())
    assert double.next() is not None
    del double  # its thread notices, and then those that read the files
    deadline = time.monotonic() + 10
    while open_descriptors() > before:
        assert time.monotonic() < deadline
        gc.collect()


def test_a_preprocessor_is_used_in_the_right_order(files, programs):
    preprocessor = layers.Preprocessor(reader=opened(files))
    with pytest.raises(ValueError, match=r"call inputs\(\) inside of `with preprocessor.block\(\):`"):
        preprocessor.inputs()
    with pytest.raises(ValueError, match="complete its block before you call it"):
        preprocessor()
    with pytest.raises(ValueError, match=r"its block must call inputs\(\) and outputs\(\)"), preprocessor.block():
        preprocessor.inputs()
    with pytest.raises(ValueError, match="it has a block already"), preprocessor.block():
        pass


def test_a_clone_reads_from_the_same_reader(files, programs):
    reader = layers.shuffle(opened(files[:1], thread_num=1), 1)
    preprocessor = layers.Preprocessor(reader)
    with preprocessor.block():
        _, label = preprocessor.inputs()
        preprocessor.outputs(label)
    label = layers.read_file(preprocessor())
    clone = programs[0].clone(for_test=True)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(programs[1])
    found = [exe.run(program, fetch_list=[label])[0].item() for program in (programs[0], clone) * 2]
    assert found == [0, 1, 2, 3]
    preprocessor().reset()


def test_a_program_that_was_saved_reads_the_same(files, programs):
    programs[0].random_seed = 3
    reader = layers.batch(layers.shuffle(opened(files[:1], pass_num=2), 8), 2)
    preprocessor = layers.Preprocessor(reader)
    with preprocessor.block():
        preprocessor.outputs(preprocessor.inputs()[1] + 1)
    label = layers.read_file(preprocessor())
    noise = layers.read_file(layers.random_data_generator(0.0, 1.0, [[2, 1]], [0]))
    assert [op.type for op in programs[0].global_block().ops] == [
        "open_files",
        "create_shuffle_reader",
        "create_batch_reader",
        "create_custom_reader",
        "read",
        "create_random_data_generator",
        "read",
    ]
    read = fluid.Program.parse_from_string(programs[0].desc.serialize_to_string())
    read.random_seed = 3
    exe = fluid.Executor(fluid.CPUPlace())

    def a_pass(program):
        with fluid.scope_guard(fluid.Scope()):
            found = [exe.run(program, fetch_list=[label.name, noise.name]) for _ in range(4)]
            with pytest.raises(fluid.core.EOFException):
                exe.run(program, fetch_list=[label.name])
            return np.stack(found)

    one, other = a_pass(programs[0]), a_pass(read)
    np.testing.assert_array_equal(one, other)
    assert sorted(one[:, 0].reshape(-1)) == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([np.zeros((1, 2), "float32")], "it has 1 values, but 2 are declared"),
        (
            [np.zeros((1, 3), "float32"), np.array([[1]])],
            r"value 0 is float32\[1, 3\] .* float32\[-1, 2\] of LoD level 0",
        ),
        ([np.zeros((1, 2)), np.array([[1]])], r"value 0 is float64\[1, 2\] of LoD level 0, but float32\[-1, 2\]"),
    ],
)
def test_records_that_do_not_fit_are_named(tmp_path, batch, message):
    path = write(tmp_path / "a.recordio", [*numbered(0, 1), batch])
    reader = FilesReader([path], [-1, 2, -1, 1], [2, 2], [0, 0], [FP32, INT64], 1, 1)
    assert reader.next() is not None
    with pytest.raises(recordio.RecordIOError, match=f"a.recordio, record 1: {message}"):
        reader.next()


def test_missing_sequences_are_named(tmp_path):
    path = write(tmp_path / "a.recordio", numbered(0, 1))
    reader = FilesReader([path], [-1, 2, -1, 1], [2, 2], [0, 1], [FP32, INT64], 1, 1)
    with pytest.raises(recordio.RecordIOError, match=r"value 1 is int64\[1, 1\] of LoD level 0, but .* of LoD level 1"):
        reader.next()


def test_a_missing_file_is_named(programs):
    with pytest.raises(FileNotFoundError, match=r"not-there.recordio"):
        run(opened(["not-there.recordio"]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: opened([]), "open_files: filenames is empty"),
        (lambda: opened("a", thread_num=0), "open_files: thread_num must be at least 1, not 0"),
        (lambda: opened("a", pass_num=0), "open_files: pass_num must be at least 1, not 0"),
        (lambda: layers.open_files("a", [[1]], [0, 0], ["float32"]), "1 shapes, 2 lod_levels and 1 dtypes"),
        (lambda: layers.shuffle(opened("a"), 0), "shuffle: buffer_size must be at least 1, not 0"),
        (lambda: layers.batch(opened("a"), 0), "batch: batch_size must be at least 1, not 0"),
        (lambda: layers.random_data_generator(0, 1, [[-1, 2]], [0]), r"not shape \[-1, 2\] and LoD level 0"),
        (lambda: layers.random_data_generator(0, 1, [[2, 2]], [1]), r"not shape \[2, 2\] and LoD level 1"),
    ],
)
def test_wrong_arguments_are_named(programs, call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_only_readers_are_wrapped(programs):
    with pytest.raises(
        TypeError, match="create_batch_reader: expected a reader, as open_files returns it, not Variable"
    ):
        layers.batch(layers.data("x", [1]), 2)


def test_fluids_module_path_has_the_layers_too():
    assert layers.io.open_files is layers.open_files


def test_samples_of_a_preprocessed_py_reader_have_the_form_of_its_inputs(programs):
    queue = layers.py_reader(4, [[-1, 4]], ["float32"], use_double_buffer=False)
    preprocessor = layers.Preprocessor(reader=queue)
    with preprocessor.block():
        (image,) = preprocessor.inputs()
        preprocessor.outputs(layers.cast(layers.reduce_sum(image, dim=1, keep_dim=True), "int64"))
    reader = preprocessor()
    total = layers.read_file(reader)
    reader.decorate_paddle_reader(lambda: iter([[(np.full(4, i + 0.5),) for i in range(2)]]))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(programs[1])
    reader.start()
    assert exe.run(fetch_list=[total])[0].tolist() == [[2], [6]]
    reader.reset()
