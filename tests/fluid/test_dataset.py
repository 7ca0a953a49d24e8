"""fluid.dataset: the batches of real Fluid, its descriptions, and clear errors for calls in the wrong order."""

import gc
import json
import os
import threading
import time
from itertools import chain
from pathlib import Path
from weakref import ref

import fsspec
import numpy as np
import pytest

import paddle.fluid as fluid
from datasets.batch_cases import CASES
from refluid import flags
from refluid.errors import MalformedLineError

RECORDED = json.loads((Path(__file__).parent.parent / "datasets/batches.json").read_text())


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def variables(slots):
    return [
        fluid.layers.data(name, shape, dtype=dtype, lod_level=lod_level, append_batch_size=False)
        for name, (dtype, lod_level, shape) in slots.items()
    ]


def make(folder, kind, slots, *texts, batch_size=2):
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_batch_size(batch_size)
    dataset.set_use_var(variables(slots))
    files = []
    for number, text in enumerate(texts):
        files.append(str(folder / f"part-{number}"))
        Path(files[-1]).write_bytes(text.encode())
    dataset.set_filelist(files)
    return dataset


def ids(folder, kind="InMemoryDataset", *texts, **options):
    return make(folder, kind, {"ids": ("int64", 1, [-1, 1])}, *texts, **options)


def all_ids(dataset, **options):
    return [np.array(feed["ids"])[:, 0].tolist() for feed in dataset.feeds(**options)]


@pytest.mark.parametrize("name", CASES)
def test_batches_are_those_of_real_fluid(name, tmp_path):
    case, recorded = CASES[name], RECORDED[name]
    dataset = make(tmp_path, case["kind"], case["slots"], *case["files"], batch_size=case["batch_size"])
    if case["kind"] == "InMemoryDataset":
        dataset.load_into_memory()
    feeds = list(dataset.feeds())
    assert dataset.desc() == recorded["desc"]
    assert len(feeds) == len(recorded["batches"])
    for feed, batch in zip(feeds, recorded["batches"], strict=True):
        assert list(feed) == list(case["slots"])
        for slot, (lod, shape, values) in batch.items():
            found = np.array(feed[slot])
            assert (feed[slot].lod()[0] if lod else None) == lod
            assert (found.dtype, list(found.shape)) == (case["slots"][slot][0], shape)
            np.testing.assert_array_equal(found.ravel(), np.array(values, found.dtype))


def test_several_threads_bring_the_same_samples(tmp_path):
    texts = ["".join(f"1 {i}\n" for i in range(n * 100, n * 100 + 10 * n + 1)) for n in range(1, 8)]
    expected = sorted(i for n in range(1, 8) for i in range(n * 100, n * 100 + 10 * n + 1))
    for kind in ("QueueDataset", "InMemoryDataset", "FileInstantDataset", "BoxPSDataset"):
        dataset = ids(tmp_path, kind, *texts, batch_size=16)
        dataset.set_thread(3)
        if kind in ("InMemoryDataset", "BoxPSDataset"):
            dataset.load_into_memory()
        batches = all_ids(dataset)
        assert sorted(chain(*batches)) == expected
        assert [len(batch) for batch in batches[:-1]] == [16] * (len(batches) - 1)


def test_feeds_train_a_program(tmp_path):
    slots = {"words": ("int64", 1, [-1, 1]), "label": ("float32", 0, [-1, 1])}
    dataset = make(tmp_path, "QueueDataset", slots, "2 1 2 1 0.5\n1 3 1 1\n", batch_size=2)
    block = fluid.default_main_program().global_block()
    mean = fluid.layers.reduce_mean(fluid.layers.sequence_pool(fluid.layers.cast(block.var("words"), "float32"), "sum"))
    exe = fluid.Executor(fluid.CPUPlace())
    [feed] = dataset.feeds()
    assert exe.run(feed=feed, fetch_list=[mean])[0] == 3.0


def test_a_dataset_in_memory_is_shuffled_kept_and_released(tmp_path):
    dataset = ids(tmp_path, "InMemoryDataset", "".join(f"1 {i}\n" for i in range(1, 101)), batch_size=32)
    assert dataset.get_memory_data_size() == 0
    dataset.load_into_memory()
    assert (dataset.get_memory_data_size(), dataset.get_shuffle_data_size()) == (100, 0)
    in_order = all_ids(dataset)
    dataset.local_shuffle()
    shuffled = all_ids(dataset)
    assert shuffled == all_ids(dataset) != in_order
    assert sorted(chain(*shuffled)) == list(range(1, 101)) == list(chain(*in_order))
    dataset.global_shuffle()
    assert (dataset.get_memory_data_size(), dataset.get_shuffle_data_size()) == (100, 100)
    dataset.release_memory()
    assert (dataset.get_memory_data_size(), dataset.get_shuffle_data_size()) == (0, 0)
    with pytest.raises(RuntimeError, match=r"InMemoryDataset.feeds: nothing is in memory; call load_into_memory\(\)"):
        dataset.feeds()


def test_files_are_preloaded_while_others_are_in_use(tmp_path):
    dataset = ids(tmp_path, "InMemoryDataset", "1 1\n1 2\n")
    dataset.load_into_memory()
    (tmp_path / "next").write_text("1 3\n")
    dataset.set_filelist([str(tmp_path / "next")])
    dataset.preload_into_memory(2)
    assert all_ids(dataset) == [[1, 2]]
    dataset.wait_preload_done()
    assert all_ids(dataset) == [[3]]
    (tmp_path / "next").write_text("1 x\n")
    dataset.preload_into_memory()
    with pytest.raises(RuntimeError, match=r"already preloading; call wait_preload_done\(\) first"):
        dataset.preload_into_memory()
    with pytest.raises(MalformedLineError, match="next, line 1"):
        dataset.wait_preload_done()
    with pytest.raises(RuntimeError, match=r"wait_preload_done: call preload_into_memory\(\) first"):
        dataset.wait_preload_done()


def test_a_forgotten_preload_ends_its_command(tmp_path):
    dataset = ids(tmp_path, "InMemoryDataset", "1 1\n")
    started, ended = tmp_path / "started", ref(dataset)
    dataset.set_pipe_command(f"echo $$ > {started}.new; mv {started}.new {started}; sleep 1000")
    before = set(threading.enumerate())
    dataset.preload_into_memory()
    wait_for(started.exists)
    pid = int(started.read_text())
    del dataset
    wait_for(lambda: gc.collect() is not None and ended() is None)
    wait_for(lambda: set(threading.enumerate()) <= before)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_slots_are_shuffled_one_evaluation_at_a_time(tmp_path):
    slots = {"a": ("int64", 1, [-1, 1]), "b": ("int64", 1, [-1, 1])}
    dataset = make(tmp_path, "InMemoryDataset", slots, "".join(f"1 {i} 1 {i}\n" for i in range(1, 51)), batch_size=50)
    dataset.load_into_memory()
    with pytest.raises(RuntimeError, match="call set_fea_eval"):
        dataset.slots_shuffle(["a"])
    dataset.set_fea_eval(10, True)
    with pytest.raises(ValueError, match="there is no slot c; there are a, b"):
        dataset.slots_shuffle(["c"])
    for shuffled, other in (("a", "b"), ("b", "a")):
        dataset.slots_shuffle([shuffled])
        [feed] = dataset.feeds()
        assert np.array(feed[other])[:, 0].tolist() == list(range(1, 51))
        assert np.array(feed[shuffled])[:, 0].tolist() != sorted(np.array(feed[shuffled])[:, 0]) == list(range(1, 51))


def test_lines_of_the_same_id_are_merged(tmp_path):
    # What real Fluid makes of these lines: C and E are not pairs, and both lines of D have values for a and b.
    text = (
        "1 A 1 5 1 0 1 0.5 1 1\n1 B 1 6 1 0 1 0 1 1\n1 A 1 0 2 7 8 1 0 1 1\n1 C 1 9 1 4 1 5 1 2\n1 D 1 8 1 2 1 9 1 3\n"
        "1 D 1 2 1 2 1 4 1 6\n1 B 1 0 1 44 1 4.5 1 2\n1 E 1 0 1 44 1 4.5 1 2\n1 E 1 0 1 43 1 0 1 2\n"
        "1 E 1 3 1 0 1 0 1 2\n"
    )
    sequence = ("int64", 1, [-1, 1])
    slots = {"a": sequence, "b": sequence, "f": ("float32", 1, [-1, 1]), "d": ("float32", 0, [-1, 1])}
    dataset = make(tmp_path, "InMemoryDataset", slots, text, batch_size=1)
    dataset.set_merge_by_lineid(2)
    dataset.load_into_memory()
    assert dataset.get_memory_data_size() == 10
    dataset.global_shuffle()
    found = [{name: np.array(value).ravel().tolist() for name, value in feed.items()} for feed in dataset.feeds()]
    assert sorted(found, key=lambda sample: sample["a"]) == [
        {"a": [5], "b": [7, 8], "f": [0.5], "d": [1.0]},
        {"a": [6], "b": [44], "f": [4.5], "d": [2.0]},
    ]
    dataset.global_shuffle()
    assert dataset.get_memory_data_size() == dataset.get_shuffle_data_size() == 2


def test_words_before_the_slots_are_not_values(tmp_path):
    for words, text in ((1, "1 first 1 5\n1 second 2 6 7\n"), (2, "1 first 1 note 1 5\n1 second 1 note 2 6 7\n")):
        dataset = ids(tmp_path, "InMemoryDataset", text)
        dataset.set_parse_ins_id(words == 2)
        dataset.set_parse_content(True)
        dataset.load_into_memory()
        assert all_ids(dataset) == [[5, 6, 7]]


def test_a_line_id_must_be_one_word(tmp_path):
    dataset = ids(tmp_path, "InMemoryDataset", "1 first 1 5\n2 second third 1 6\n")
    dataset.set_parse_ins_id(True)
    with pytest.raises(MalformedLineError, match="line 2: the id of the line, number 1 of 2: expected '1' and a word"):
        dataset.load_into_memory()
    with pytest.raises(ValueError, match="set_merge_by_lineid: expected a positive number, got 0"):
        dataset.set_merge_by_lineid(0)


def test_malformed_lines_are_errors_or_counted(tmp_path, monkeypatch):
    dataset = ids(tmp_path, "QueueDataset", "1 1\n1 x\n1 2\n", "oops\n1 3\n")
    with pytest.raises(MalformedLineError, match=r"part-0, line 2: slot ids(.|\n)*FLAGS_dataset_skip_malformed_lines"):
        all_ids(dataset)
    monkeypatch.setitem(flags._set, "FLAGS_dataset_skip_malformed_lines", True)
    assert (all_ids(dataset), dataset.skipped_lines) == ([[1, 2], [3]], 2)
    assert (all_ids(dataset), dataset.skipped_lines) == ([[1, 2], [3]], 2)


def test_values_without_a_variable_are_ignored_with_a_warning(tmp_path):
    dataset = ids(tmp_path, "QueueDataset", "1 1 1 5\n1 2 1 6\n")
    with pytest.warns(UserWarning, match="part-0: lines have more values than the 1 variables of set_use_var take"):
        assert all_ids(dataset) == [[1, 2]]


def test_paths_of_hdfs_go_to_the_configured_file_system(tmp_path):
    fsspec.filesystem("memory").pipe("/warehouse/day/part", b"1 4\n")
    dataset = ids(tmp_path, "QueueDataset")
    dataset.set_filelist(["hdfs:/day/part"])
    with pytest.raises(RuntimeError, match=r"hdfs:/day/part names no host; call set_hdfs_config\(fs_name, fs_ugi\)"):
        dataset.feeds()
    dataset.set_hdfs_config("hdfs://nowhere:9000", "user,password")  # nothing is connected before it is read
    dataset.set_hdfs_config("memory://warehouse", "user,password")
    dataset.set_filelist(["hdfs:/day/part", "afs:/day/part", "memory://warehouse/day/part"])
    assert all_ids(dataset) == [[4, 4], [4]]
    dataset.set_download_cmd("printf '1 7\\n' #")
    assert all_ids(dataset) == [[7, 7], [4]]


def test_a_pipe_command_turns_files_into_lines(tmp_path):
    dataset = ids(tmp_path, "QueueDataset", "5,6\n7\n")
    dataset.set_pipe_command("awk -F, '{print NF, $0}' | tr , ' '")
    assert all_ids(dataset) == [[5, 6, 7]]


def test_a_dense_variable_needs_a_dim_for_the_batch(tmp_path):
    dataset = make(tmp_path, "QueueDataset", {"x": ("float32", 0, [2])}, "2 1 2\n2 3 4\n")
    with pytest.raises(ValueError, match=r"x has the shape \[2\], and a batch brings 4 values(.|\n)*-1 for the batch"):
        list(dataset.feeds())
    dataset.set_batch_size(1)
    assert [feed["x"].tolist() for feed in dataset.feeds()] == [[1, 2], [3, 4]]


def test_calls_in_the_wrong_order_are_explained():
    queue, memory = (fluid.DatasetFactory().create_dataset(kind) for kind in ("QueueDataset", "InMemoryDataset"))
    with pytest.raises(RuntimeError, match=r"QueueDataset.feeds: call set_use_var\(variables\) first"):
        queue.feeds()
    queue.set_use_var(variables({"ids": ("int64", 1, [-1, 1])}))
    with pytest.raises(RuntimeError, match=r"QueueDataset.feeds: call set_filelist\(files\) first"):
        queue.feeds()
    for method in (memory.local_shuffle, memory.global_shuffle, memory.feeds):
        with pytest.raises(RuntimeError, match="nothing is in memory"):
            method()
    with pytest.raises(NotImplementedError, match="QueueDataset reads a stream, which cannot be shuffled"):
        queue.local_shuffle()
    with pytest.raises(NotImplementedError, match="QueueDataset reads a stream, which cannot be shuffled"):
        queue.global_shuffle()
    with pytest.raises(NotImplementedError, match="QueueDataset reads a stream, which cannot be shuffled"):
        queue.slots_shuffle(["ids"])


def test_wrong_arguments_are_explained():
    dataset = fluid.DatasetFactory().create_dataset()
    with pytest.raises(ValueError, match="datafeed class Nothing does not exist; there are QueueDataset, InMemory"):
        fluid.DatasetFactory().create_dataset("Nothing")
    with pytest.raises(ValueError, match="float32 and int64 variables only, but x is int32"):
        dataset.set_use_var([fluid.layers.data("x", [1], dtype="int32")])
    with pytest.raises(ValueError, match=r"cannot fill y of shape \[-1, -1\]"):
        dataset.set_use_var([fluid.layers.data("y", [-1, -1], dtype="int64", append_batch_size=False)])
    with pytest.raises(TypeError, match="expected a list of paths, got the string 'part-0'"):
        dataset.set_filelist("part-0")
    with pytest.raises(ValueError, match="set_batch_size: expected a positive number, got 0"):
        dataset.set_batch_size(0)
    with pytest.raises(ValueError, match="set_thread: expected a positive number, got 0"):
        dataset.set_thread(0)
    with pytest.raises(ValueError, match="expected a day such as '20190720', got 'monday'"):
        fluid.DatasetFactory().create_dataset("BoxPSDataset").set_date("monday")


def test_descriptions_of_feeds_are_read_and_changed(tmp_path):
    text = 'name: "MultiSlotDataFeed"\nbatch_size: 2\nmulti_slot_desc {\n%s}\n'
    slot = '  slots {\n    name: "%s"\n    type: "uint64"\n    is_dense: %s\n    is_used: %s\n  }\n'
    (tmp_path / "feed.prototxt").write_text(text % (slot % ("words", "false", "true") + slot % ("l", "false", "false")))
    desc = fluid.DataFeedDesc(str(tmp_path / "feed.prototxt"))
    desc.set_batch_size(128)
    desc.set_dense_slots(["words"])
    desc.set_use_slots(["l", "words"])
    changed = text.replace("2", "128") % (slot % ("words", "true", "true") + slot % ("l", "false", "true"))
    assert desc.desc() == changed + 'pipe_command: "cat"\n'
    with pytest.raises(KeyError, match="no slot other; it has words, l"):
        desc.set_use_slots(["other"])
    (tmp_path / "bad.prototxt").write_text("bogus: 3\n")
    with pytest.raises(ValueError, match="bad.prototxt: 1:1 : .*bogus"):
        fluid.DataFeedDesc(str(tmp_path / "bad.prototxt"))
