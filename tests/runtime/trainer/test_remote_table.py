"""Tables that live on servers, read on a trainer: whole, by rows, and by programs that know of no servers."""

import pickle
import re

import numpy as np
import pytest

import paddle.fluid as fluid
from cluster.one_process import ROWS, Role, servers
from refluid import flags
from refluid.errors import OutOfRangeError, TableTooLargeError
from refluid.runtime.trainer.server_calls import READ, START, ServerCalls
from refluid.runtime.trainer.server_calls import ROWS as ROWS_OF

MODES = {
    "sync": {"sync_mode": True},
    "half_async": {"sync_mode": False, "half_async": True},
    "async": {"sync_mode": False, "runtime_split_send_recv": True},
    "geo": {"sync_mode": False, "geo_sgd_mode": True, "geo_sgd_need_push_nums": 2},
}
REMOTE = [mode for mode in MODES if mode != "geo"]  # in GEO, trainers hold the tables
INITIAL = np.random.RandomState(0).uniform(-1, 1, (ROWS, 3)).astype("float32")
USED = [1, 7, 38]


def network(built=None):
    """A model, and its program for tests: cloned before anything is made distributed."""
    x = fluid.layers.data("x", [4])
    ids = fluid.layers.data("ids", [1], dtype="int64")
    attr = fluid.ParamAttr("table", initializer=fluid.initializer.NumpyArrayInitializer(INITIAL))
    rows = fluid.layers.embedding(ids, [ROWS, 3], is_sparse=True, param_attr=attr)
    hidden = fluid.layers.fc(fluid.layers.concat([x, rows], axis=1), 8)
    loss = fluid.layers.mean(fluid.layers.square(hidden))
    if built is not None:
        built.update(test=loss.block.program.clone(for_test=True), rows=rows)
    return loss


def sgd():
    return fluid.optimizer.SGD(0.5)


class Trainer(Role):
    def __init__(self, endpoints, **options):
        self.built = {}
        super().__init__(endpoints, network=lambda: network(self.built), optimizer=sgd, **options)
        self.start()

    @property
    def table(self):
        return self.scope.find_var("table").get_tensor()

    def look_up(self, ids, program=None):
        """What the test program finds in the table."""
        feed = {"x": np.ones((len(ids), 4), "float32"), "ids": np.array(ids).reshape(-1, 1)}
        program = self.built["test"] if program is None else program
        return self.exe.run(program, feed=feed, fetch_list=[self.built["rows"]], scope=self.scope)[0]


def job(mode="sync", count=2):
    return servers(count, network=network, optimizer=sgd, **MODES[mode])


@pytest.fixture
def requested(monkeypatch):
    """What exchanges have requested of servers: purpose, slice, and the number of rows where only some were wanted."""
    found = []
    original = ServerCalls.exchange

    def exchange(self, purpose, messages, *rest):
        for message in messages.values():
            found.extend((purpose, name) for name in message.wanted)
            if purpose == ROWS_OF:
                found.extend((purpose, name, len(rows)) for name, rows in message.pushed.items())
        return original(self, purpose, messages, *rest)

    monkeypatch.setattr(ServerCalls, "exchange", exchange)
    return found


@pytest.fixture
def limit():
    yield lambda bytes_: flags.write_flag("FLAGS_max_remote_read_gb", bytes_ / 2**30)
    flags._set.pop("FLAGS_max_remote_read_gb", None)


@pytest.mark.parametrize("mode", MODES)
def test_a_table_reads_like_one_that_is_here_and_includes_all_steps_taken(mode):
    with job(mode) as endpoints:
        trainer = Trainer(endpoints, **MODES[mode])
        table = trainer.table
        assert table.shape() == table._get_dims() == [ROWS, 3] and len(table) == ROWS
        assert table._dtype() == fluid.core.VarDesc.VarType.FP32 and table._is_initialized() and table.lod() == []
        np.testing.assert_array_equal(np.array(table), INITIAL)
        for _ in range(3):
            trainer.step(ids=USED)
        whole = np.array(table)
        assert whole.dtype == np.float32
        assert np.flatnonzero((whole != INITIAL).any(axis=1)).tolist() == USED
        trainer.step(ids=[5])
        assert (np.array(table)[5] != INITIAL[5]).any(), "nothing is kept from the read before"
        trainer.close()


def test_steps_that_wait_to_be_pushed_are_read_too(monkeypatch):
    monkeypatch.setitem(flags._set, "FLAGS_communicator_max_merge_var_num", 100)
    with job("half_async") as endpoints:
        trainer = Trainer(endpoints, **MODES["half_async"])
        trainer.step(ids=USED)
        assert (np.array(trainer.table)[USED] != INITIAL[USED]).any(axis=1).all()
        trainer.step(ids=[5])
        assert (trainer.table[5] != INITIAL[5]).any()
        trainer.step(ids=[6])
        assert (trainer.look_up([6]) != INITIAL[6]).any()
        trainer.close()


INDEXES = [
    3,
    -1,
    slice(18, 23),
    slice(None, None, -7),
    [38, 2, 2, -1],
    np.array([[0, 39], [19, 20]]),
    [],
    np.arange(ROWS) % 9 == 0,
    (slice(3, 5), 1),
    ([4, 30], [0, 2]),
    (30, Ellipsis),
]


def test_an_index_reads_these_rows_only(requested):
    with job() as endpoints:
        trainer = Trainer(endpoints)
        for index in INDEXES:
            requested.clear()
            np.testing.assert_array_equal(trainer.table[index], INITIAL[index], str(index))
            first = index[0] if isinstance(index, tuple) else index
            assert {purpose for purpose, *_ in requested} == {ROWS_OF}
            assert sum(count for _, _, count in requested) == np.unique(np.arange(ROWS)[first]).size
        trainer.close()


def test_an_index_that_names_no_rows_reads_the_whole_table():
    with job() as endpoints:
        trainer = Trainer(endpoints)
        np.testing.assert_array_equal(trainer.table[..., 1], INITIAL[..., 1])
        np.testing.assert_array_equal(trainer.table[None], INITIAL[None])
        trainer.close()


def test_rows_that_do_not_exist_are_named():
    problems = [
        ([3, ROWS], f"table: there is no row {ROWS}, it has {ROWS} rows"),
        (-ROWS - 1, f"table: there is no row {-ROWS - 1}"),
        ([0.5], "table: rows are chosen by integers, slices or a mask, not by float64"),
        (np.ones(3, bool), f"table: a mask of shape [3] does not fit its {ROWS} rows"),
    ]
    with job() as endpoints:
        trainer = Trainer(endpoints)
        for index, problem in problems:
            with pytest.raises(IndexError, match=re.escape(problem)):
                trainer.table[index]
        trainer.close()


def test_neither_training_nor_looking_at_a_tensor_reads_the_table(requested):
    with job() as endpoints:
        trainer = Trainer(endpoints)
        slices = {name for purpose, name, *_ in requested if purpose == START}
        assert slices and not any(name.startswith("table") for name in slices)
        for seed in range(3):
            trainer.step(seed, ids=[1, 7, 38, 7, 2, 0])
        table = trainer.table
        text = str(table)
        assert all(endpoint in text for endpoint in endpoints) and f"dim: [{ROWS}, 3]" in text
        assert table.shape() == [ROWS, 3] and table._is_initialized()
        reads = [request for request in requested if request[1].startswith("table")]
        assert {purpose for purpose, *_ in reads} == {ROWS_OF}, "lookups of the steps only"
        assert sum(count for _, _, count in reads) == 3 * 5, "each row once"
        trainer.close()


def test_a_table_that_is_too_large_says_where_it_lives_and_how_to_get_it(limit, tmp_path):
    with job() as endpoints:
        trainer = Trainer(endpoints)
        limit(ROWS * 3 * 4 - 1)
        with pytest.raises(TableTooLargeError) as error:
            np.array(trainer.table)
        text = str(error.value)
        assert f"float32[{ROWS}, 3]" in text and "FLAGS_max_remote_read_gb" in text
        assert re.search(r"lives on .*\(rows 0 to 20\), .*\(rows 20 to 40\)", text) and "480 bytes" in text
        assert all(endpoint in text for endpoint in endpoints)
        assert "get_tensor()[ids]" in text and "fluid.io.save_persistables" in text
        assert str(pickle.loads(pickle.dumps(error.value))) == text
        np.testing.assert_array_equal(trainer.table[3:7], INITIAL[3:7])  # as the hint says
        with fluid.scope_guard(trainer.scope):
            fluid.io.save_persistables(trainer.exe, str(tmp_path), trainer.main)
        assert (tmp_path / "table").stat().st_size > ROWS * 3 * 4
        np.testing.assert_array_equal(trainer.look_up([9]), INITIAL[[9]])
        limit(2 * 3 * 4)
        assert trainer.table[3:5].shape == (2, 3)
        with pytest.raises(TableTooLargeError, match="too large to read 3 rows of it at once"):
            trainer.table[3:6]
        limit(ROWS * 3 * 4)
        assert np.array(trainer.table).shape == (ROWS, 3)
        trainer.close()


def test_every_way_to_save_writes_the_servers_table(tmp_path):
    with job() as endpoints:
        trainer = Trainer(endpoints)
        trainer.step(ids=USED)
        exe, test, expected = trainer.exe, trainer.built["test"], np.array(trainer.table)
        with fluid.scope_guard(trainer.scope):
            fluid.io.save_persistables(exe, str(tmp_path / "persistables"), trainer.main)
            fluid.io.save_params(exe, str(tmp_path / "params"), test)
            fluid.io.save_vars(exe, str(tmp_path / "vars"), vars=[test.global_block().var("table")])
            fluid.save(test, str(tmp_path / "state"))
        trainer.close()
    assert (expected != INITIAL).any()
    table = [test.global_block().var("table")]
    for folder in ("persistables", "params", "vars"):
        with fluid.scope_guard(fluid.core.Scope()):
            fluid.io.load_vars(exe, str(tmp_path / folder), vars=table)
            np.testing.assert_array_equal(np.array(fluid.global_scope().find_var("table").get_tensor()), expected)
    state = fluid.load_program_state(str(tmp_path / "state"))
    np.testing.assert_array_equal(state["table"], expected)


def test_a_trainer_that_has_left_says_so():
    with job() as endpoints:
        trainer = Trainer(endpoints)
        trainer.look_up([1])
        trainer.close()
    trainer.exe = fluid.Executor(fluid.CPUPlace())
    reads = [lambda: np.array(trainer.table), lambda: trainer.table[1], lambda: trainer.look_up([1])]
    reads.append(lambda: trainer.look_up([1, 2]))  # compiled anew
    for read in reads:
        with pytest.raises(RuntimeError, match=r"table table lives on servers .* has left their job.*exe\.close\(\)"):
            read()
    assert trainer.table.shape() == [ROWS, 3] and "127.0.0.1" in str(trainer.table)


@pytest.mark.parametrize("mode", MODES)
def test_a_test_program_cloned_before_transpiling_sees_the_current_table(mode, requested):
    every = list(range(ROWS))
    with job(mode) as endpoints:
        trainer = Trainer(endpoints, **MODES[mode])
        np.testing.assert_array_equal(trainer.look_up(every), INITIAL)
        for _ in range(2):
            before = np.array(trainer.table)
            for _ in range(3):
                trainer.step(ids=USED)
            found = trainer.look_up(every)
            assert np.flatnonzero((found != before).any(axis=1)).tolist() == USED
            np.testing.assert_array_equal(found, np.array(trainer.table))
        if mode in REMOTE:
            requested.clear()
            trainer.look_up([3, 25])
            assert sorted(request[2] for request in requested if request[0] == ROWS_OF) == [1, 1]
            assert not any(request[0] == READ and request[1].startswith("table") for request in requested)
            with pytest.raises(OutOfRangeError, match=f"id {ROWS} is not in the table table"):
                trainer.look_up([3, ROWS])
        trainer.close()


def test_the_executor_of_a_test_program_can_be_closed_without_leaving_the_job():
    with job() as endpoints:
        trainer = Trainer(endpoints)
        training, trainer.exe = trainer.exe, fluid.Executor(fluid.CPUPlace())
        trainer.look_up([1])
        trainer.close()
        trainer.exe = training
        trainer.step(ids=USED)
        np.testing.assert_array_equal(trainer.look_up([2]), INITIAL[[2]])
        trainer.close()


def test_other_ops_and_fetches_get_the_whole_table_in_every_run():
    program = fluid.Program()
    with fluid.program_guard(program):
        table = program.global_block().create_var(name="table", shape=[ROWS, 3], dtype="float32", persistable=True)
        total = fluid.layers.reduce_sum(fluid.layers.square(table))
    with job() as endpoints:
        trainer = Trainer(endpoints)

        def run(**options):
            return trainer.exe.run(program, fetch_list=[total, "table"], scope=trainer.scope, **options)

        for _ in range(2):
            expected = np.array(trainer.table)
            found, whole = run()
            np.testing.assert_allclose(found, np.square(expected).sum(), rtol=1e-5)
            np.testing.assert_array_equal(whole, expected)
            np.testing.assert_array_equal(run(feed={"table": 2 * INITIAL})[1], 2 * INITIAL, "what is fed is not read")
            tensor = run(return_numpy=False)[1]
            trainer.step(ids=USED)
            np.testing.assert_array_equal(np.array(tensor), expected, "what was fetched does not change any more")
        trainer.close()


def test_a_value_set_on_a_trainer_is_refused_however_it_is_set(tmp_path):
    overwriting, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(overwriting, startup):
        shape = {"shape": [ROWS, 3], "dtype": "float32"}
        ones = fluid.layers.create_global_var(value=1.0, persistable=True, name="table", **shape)
        fluid.layers.assign(fluid.layers.fill_constant(value=2.0, **shape), ones)
    with job() as endpoints:
        trainer = Trainer(endpoints)
        with fluid.scope_guard(trainer.scope):
            fluid.io.save_persistables(trainer.exe, str(tmp_path), trainer.main)
            place = fluid.CPUPlace()
            test = trainer.built["test"]
            writes = {
                "a value that is set": lambda: trainer.table.set(INITIAL, place),
                "another shape": lambda: trainer.table._set_dims([3, ROWS]),
                "a value that is loaded": lambda: fluid.io.load_params(trainer.exe, str(tmp_path), test),
                "what assign writes (": lambda: trainer.exe.run(overwriting),
                "what fill_constant writes (": lambda: trainer.exe.run(startup),
            }
            for written, write in writes.items():
                with pytest.raises(RuntimeError, match="table table lives on servers") as error:
                    write()
                text = str(error.value)
                assert f": {written}" in text and endpoints[0] in text and "fluid.io.load_persistables(exe" in text
            with fluid.scope_guard(fluid.core.Scope()):  # as the hint says
                fluid.io.load_params(trainer.exe, str(tmp_path), test)
        np.testing.assert_array_equal(np.array(trainer.table), INITIAL)
        trainer.close()


def test_the_startup_program_may_run_again():
    with job() as endpoints:
        trainer = Trainer(endpoints)
        trainer.step(ids=USED)
        before = np.array(trainer.table)
        trainer.start()
        np.testing.assert_array_equal(np.array(trainer.table), before, "the servers' values, not new initial ones")
        trainer.step(ids=USED)
        assert (np.array(trainer.table)[USED] != before[USED]).any()
        trainer.close()


def test_a_scope_inside_another_reads_through_too():
    with job() as endpoints:
        trainer = Trainer(endpoints)
        trainer.step(ids=USED)
        expected = np.array(trainer.table)
        trainer.scope = trainer.scope.new_scope()
        np.testing.assert_array_equal(np.array(trainer.table), expected)
        np.testing.assert_array_equal(trainer.look_up([7]), expected[[7]])
        trainer.close()


def test_when_the_job_is_over_the_name_is_free_again():
    local, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(local, startup), fluid.unique_name.guard():
        network()
    with job() as endpoints:
        trainer = Trainer(endpoints)
        trainer.step(ids=USED)
        trainer.close()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=trainer.scope)
    np.testing.assert_array_equal(np.array(trainer.table), INITIAL)
    trainer.exe = exe
    np.testing.assert_array_equal(trainer.look_up([3]), INITIAL[[3]])


def several_lookups(built=None):
    """Two tables; lookups of sequences, of computed ids, with padding and of the other version, between other ops."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    tags = fluid.layers.data("tags", [2], dtype="int64", append_batch_size=True)
    attr = fluid.ParamAttr("table", initializer=fluid.initializer.NumpyArrayInitializer(INITIAL))
    other = fluid.ParamAttr("other", initializer=fluid.initializer.NumpyArrayInitializer(2 * INITIAL))
    size = [ROWS, 3]
    first = fluid.layers.embedding(words, size, is_sparse=True, param_attr=attr)
    pooled = fluid.layers.sequence_pool(first, "sum")
    second = fluid.layers.reduce_sum(fluid.embedding(tags, size, is_sparse=True, param_attr=other, padding_idx=4), 1)
    moved = fluid.layers.cast(fluid.layers.cast(tags, "float32") + 1.0, "int64")
    third = fluid.layers.reduce_sum(fluid.embedding(moved, size, is_sparse=True, param_attr=attr), 1)
    total = fluid.layers.concat([pooled, second, third], 1)
    if built is not None:
        built.update(test=total.block.program.clone(for_test=True), total=total)
    return fluid.layers.mean(fluid.layers.fc(total, 1))


def test_lookups_of_any_kind_find_the_same_rows_as_in_a_local_table(requested):
    built = {}
    words = fluid.create_lod_tensor(np.array([[1], [39], [5], [5], [20]]), [[2, 3]], fluid.CPUPlace())
    feed = {"words": words, "tags": np.array([[4, 0], [38, 19]])}
    with servers(2, network=several_lookups, optimizer=sgd) as endpoints:
        trainer = Role(endpoints, network=lambda: several_lookups(built), optimizer=sgd)
        trainer.start()
        requested.clear()
        for _ in range(2):
            (found,) = trainer.exe.run(built["test"], feed=feed, fetch_list=[built["total"]], scope=trainer.scope)
        trainer.close()
    pooled = [INITIAL[[1, 39]].sum(0), INITIAL[[5, 5, 20]].sum(0)]
    second = [2 * INITIAL[0], 2 * INITIAL[[38, 19]].sum(0)]
    third = [INITIAL[[5, 1]].sum(0), INITIAL[[39, 20]].sum(0)]
    np.testing.assert_allclose(found, np.concatenate([pooled, second, third], 1), rtol=1e-6)
    slices = [name for _, name, _ in requested]
    assert len(slices) == 2 * 3 * 2, "two slices of each table, and of one of them again for computed ids"
