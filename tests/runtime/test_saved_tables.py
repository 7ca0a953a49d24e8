"""Jobs with tables that grow save and resume: through the functions of Fluid, on any number of servers."""

import threading

import numpy as np
import pytest

import paddle.fluid as fluid
import refluid
from refluid.errors import OutOfRangeError, ServerError
from refluid.files.tensors import write_lod_tensor, write_selected_rows
from refluid.inference.models import save_model as save_again
from refluid.ir import OP_ROLE, OpRole
from refluid.runtime.tables.files.chain import open_table
from simulated_cluster import EXE, Job, bound, close_jobs

WIDTH, BATCH = 3, 6
IDS = np.array([-(2**63), 2**40, 17, -1, 5, 10**15, 0, 3, 2**62, 99])


@pytest.fixture(autouse=True)
def close():
    yield
    close_jobs()


def adagrad():
    return fluid.optimizer.Adagrad(0.1)


def model(optimizer=adagrad, width=WIDTH, height=10, dense=False):
    def build():
        fluid.default_startup_program().random_seed = 7
        y = fluid.layers.data("y", [1])
        ids = fluid.layers.data("ids", [1], dtype="int64")
        found = [
            fluid.layers.embedding(ids, [height, width], True, True, param_attr=fluid.ParamAttr(name))
            for name in ("emb", "other")
        ]
        guess = fluid.layers.fc(found, 1) if dense else fluid.layers.reduce_sum(sum(found), 1, keep_dim=True)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
        optimizer().minimize(loss)

    return build


def feeds(steps, names=IDS, seed=0):
    random = np.random.RandomState(seed)
    for _ in range(steps):
        yield {"ids": names[random.randint(0, len(names), (BATCH, 1))], "y": random.randn(BATCH, 1).astype("float32")}


def run(job, steps, seed=0, names=IDS):
    for feed in feeds(steps, names, seed):
        count = len(job.trainers)
        job.step([{name: value[place::count] for name, value in feed.items()} for place in range(count)])


def on_trainer(job, action, number=0):
    """Does something as a script on a trainer does it."""
    trainer = job.trainers[number]
    with bound(trainer.session), fluid.scope_guard(trainer.scope), fluid.program_guard(trainer.program):
        return action(trainer)


def save(job, folder):
    on_trainer(job, lambda trainer: fluid.io.save_persistables(EXE, str(folder), trainer.program))


def save_delta(job, folder, base):
    on_trainer(job, lambda trainer: refluid.save_delta(trainer.program, str(folder), str(base)))


def rows_of(job, table="emb", names=IDS):
    return on_trainer(job, lambda trainer: trainer[table].read_rows(names))


def check_same(job, other):
    for table in ("emb", "other"):
        np.testing.assert_array_equal(rows_of(job, table), rows_of(other, table))
    if "fc_0.w_0" in {variable.name for variable in job.trainers[0].program.list_vars()}:
        np.testing.assert_array_equal(job.whole("fc_0.w_0"), other.whole("fc_0.w_0"))


OPTIMIZERS = {
    "adagrad": adagrad,
    "adam": lambda: fluid.optimizer.Adam(fluid.layers.exponential_decay(0.05, 3, 0.7)),
    "sgd": lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.01)),
}


@pytest.mark.parametrize(("optimizer", "before", "after"), [("adagrad", 2, 3), ("adam", 3, 1), ("sgd", 1, 2)])
def test_a_job_resumes_on_another_number_of_servers(tmp_path, optimizer, before, after):
    build = model(OPTIMIZERS[optimizer], dense=optimizer == "adam")
    job = Job(build, before)
    run(job, 5)
    save(job, tmp_path)
    resumed = Job(build, after, load=tmp_path)
    check_same(resumed, job)
    for each in (job, resumed):
        run(each, 5, seed=1)
    check_same(resumed, job)


def test_deltas_are_saved_and_resumed(tmp_path):
    job = Job(model(), 2, trainers=1)
    run(job, 5)
    save(job, tmp_path / "0")
    run(job, 2, seed=1, names=IDS[:3])
    save_delta(job, tmp_path / "1", tmp_path / "0")
    run(job, 2, seed=2, names=np.array([123456, 17]))
    save_delta(job, tmp_path / "2", tmp_path / "1")
    resumed = Job(model(), 3, trainers=1, load=tmp_path / "2")
    check_same(resumed, job)
    run(resumed, 1, seed=3)
    save_delta(resumed, tmp_path / "3", tmp_path / "2")  # incremental training goes on with deltas
    check_same(Job(model(), 1, trainers=1, load=tmp_path / "3"), resumed)


def test_a_delta_says_what_it_cannot_be_based_on(tmp_path):
    job = Job(model(), 2, trainers=1)
    run(job, 1)
    save(job, tmp_path / "0")
    save(job, tmp_path / "1")
    with pytest.raises(ServerError, match="touched since snapshot .* are not known here"):
        save_delta(job, tmp_path / "2", tmp_path / "0")
    with pytest.raises(ValueError, match="is the folder that changes are saved of"):
        save_delta(job, tmp_path / "1", tmp_path / "1")
    assert not (tmp_path / "2").exists() or not any((tmp_path / "2").iterdir())


def test_saving_again_replaces_what_was_saved_and_leaves_no_files_behind(tmp_path):
    job = Job(model(), 2, trainers=1)
    run(job, 1)
    save(job, tmp_path / "model")
    first = {path.name for path in (tmp_path / "model").iterdir()}
    run(job, 1, seed=1)
    save(job, tmp_path / "model")
    second = {path.name for path in (tmp_path / "model").iterdir()}
    assert len(first) == len(second) and len(first & second) == len(first) - 4
    check_same(Job(model(), 2, trainers=1, load=tmp_path / "model"), job)


def test_checkpoint_notify_writes_tables_as_well(tmp_path):
    job = Job(model(), 1, trainers=1)
    run(job, 2)
    program = fluid.Program()
    attrs = {"epmap": job.endpoints, "dir": str(tmp_path), "lookup_table": "emb", OP_ROLE: int(OpRole.RPC)}
    program.global_block().append_op(type="checkpoint_notify", attrs=attrs)
    on_trainer(job, lambda trainer: EXE.run(program))
    check_same(Job(model(), 1, trainers=1, load=tmp_path), job)


def test_parameters_alone_may_be_saved_too(tmp_path):
    job = Job(model(dense=True), 2, trainers=1, as_data=False)
    on_trainer(job, lambda trainer: fluid.io.save_params(EXE, str(tmp_path), trainer.program))
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".rows"} == {
        "emb", "other", "fc_0.w_0", "fc_0.w_1", "fc_0.b_0",
    }  # fmt: skip


def test_tables_do_not_fit_into_one_file():
    job = Job(model(), 1, trainers=1)
    for folder, filename in (("folder", "all"), (None, None)):
        with pytest.raises(ValueError, match="table emb grows .* pass dirname, and no filename"):
            on_trainer(job, lambda t: fluid.io.save_persistables(EXE, folder, t.program, filename))  # noqa: B023


def local_files(folder, optimizer=adagrad):
    """What a local run of the same program would have saved, and the rows it has."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        model(optimizer)()
        EXE.run(startup)
        for feed in feeds(3, np.arange(10)):
            EXE.run(main, feed=feed)
        fluid.io.save_persistables(EXE, str(folder), main)
        return {v.name: np.array(scope.find_var(v.name).get_tensor()) for v in main.list_vars() if v.persistable}


def test_servers_load_the_tables_of_a_local_run(tmp_path):
    held = local_files(tmp_path)
    job = Job(model(), 2, trainers=1, load=tmp_path)
    np.testing.assert_array_equal(rows_of(job, "emb", np.arange(10)), held["emb"])
    tables = [server.server._growing()["emb"].table for server in job.servers.values()]
    for table in tables:
        for ids, records in table.records():
            moments = next(value for name, value in held.items() if name.startswith("emb_moment"))
            np.testing.assert_array_equal(table.form.slot_of(records, "Moment"), moments[ids])
    assert sum(map(len, tables)) == 10


def test_servers_load_the_lookup_table_of_real_fluid(tmp_path):
    """A folder with the rows of each server, as selected rows; real Fluid has one such table in a job."""

    def one_table():
        ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
        found = fluid.layers.embedding(ids, [10, WIDTH], True, True, param_attr=fluid.ParamAttr("emb"))
        loss = fluid.layers.mean(found - y)
        fluid.optimizer.SGD(0.1).minimize(loss)

    job = Job(one_table, 1, trainers=1)
    on_trainer(job, lambda trainer: fluid.io.save_persistables(EXE, str(tmp_path), trainer.program))
    for path in (tmp_path / "emb", *tmp_path.glob("*.rows")):
        path.unlink()
    values = np.arange(5 * WIDTH, dtype=np.float32).reshape(5, WIDTH)
    (tmp_path / "__lookup_table__").mkdir()
    for name, part in (("emb.block0", slice(0, 2)), ("emb.block1", slice(2, 5))):
        with open(tmp_path / "__lookup_table__" / name, "wb") as stream:
            write_selected_rows(stream, IDS[:5][part].tolist(), 10, values[part])
    np.testing.assert_array_equal(rows_of(Job(one_table, 2, trainers=1, load=tmp_path), "emb", IDS[:5]), values)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (model(width=4), "emb has rows of 3 float32; in this program table emb has rows of 4 float32"),
        (model(OPTIMIZERS["adam"]), "emb was trained with adagrad, which does not keep emb_moment1_0"),
        (model(lambda: fluid.optimizer.Momentum(0.1, 0.9)), "does not keep emb_velocity_0; .*another optimizer"),
        (model(lambda: fluid.optimizer.SGD(0.1)), r"trained with adagrad \(Moment\); this program .* sgd \(no state\)"),
    ],
    ids=["width", "adam", "momentum", "sgd"],
)
def test_a_program_that_the_files_do_not_fit_is_refused(tmp_path, other, problem):
    save(Job(model(), 2, trainers=1), tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=problem):
        Job(other, 2, trainers=1, load=tmp_path)


def test_a_damaged_delta_leaves_a_server_as_it_was(tmp_path):
    job = Job(model(), 1, trainers=1)
    run(job, 1)
    save(job, tmp_path / "0")
    run(job, 1, seed=1)
    save_delta(job, tmp_path / "1", tmp_path / "0")
    part = next((tmp_path / "1").glob("emb.*.rows"))
    part.write_bytes(part.read_bytes()[:-1])
    server = next(iter(job.servers.values()))
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        EXE.run(server.startup)
        before = {name: np.array(scope.find_var(name).value) for name in scope.local_var_names()}
        with pytest.raises(ValueError, match=r"emb.*rows has .* bytes; its manifest says"):
            fluid.io.load_persistables(EXE, str(tmp_path / "1"), server.program)
        assert {*scope.local_var_names()} == {*before}
        for name, value in before.items():
            np.testing.assert_array_equal(np.array(scope.find_var(name).value), value)


def test_a_folder_without_a_table_is_refused(tmp_path):
    job = Job(model(), 1, trainers=1)
    save(job, tmp_path)
    (tmp_path / "other").unlink()
    with pytest.raises(FileNotFoundError, match="variable other: there is no file .*other, and no __lookup_table__"):
        Job(model(), 1, trainers=1, load=tmp_path)


def test_a_tensor_of_another_width_is_refused(tmp_path):
    local_files(tmp_path)
    with open(tmp_path / "emb", "wb") as stream:
        write_lod_tensor(stream, np.zeros((10, 7), np.float32))
    with pytest.raises(ValueError, match=r"emb holds float32\[10, 7\]; in this program its rows have 3 weights"):
        Job(model(), 1, trainers=1, load=tmp_path)


def test_parts_that_a_trainer_does_not_see_are_reported(tmp_path, monkeypatch):
    from refluid.runtime.server import table_saving

    job = Job(model(), 1, trainers=1)
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(table_saving, "folder_for", lambda folder: elsewhere)  # the same path, on another machine
    with pytest.raises(
        ValueError, match=r"server 127.0.0.1:6170 wrote emb\..* saves to a folder that all of its processes"
    ):
        save(job, tmp_path / "model")


def build_with_prediction():
    """Returns nothing, as all builders; its prediction has a name of its own."""
    fluid.default_startup_program().random_seed = 7  # all servers begin rows alike
    ids, y = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("y", [1])
    found = fluid.layers.embedding(ids, [10, WIDTH], True, True, param_attr=fluid.ParamAttr("emb"))
    guess = fluid.layers.reduce_sum(found, 1, keep_dim=True)
    fluid.default_main_program().global_block().create_var(name="guess", shape=guess.shape, dtype="float32")
    guess = fluid.layers.assign(guess, fluid.default_main_program().global_block().var("guess"))
    adagrad().minimize(fluid.layers.mean(fluid.layers.square_error_cost(guess, y)))


def save_model(job, folder, **options):
    def save(trainer):
        guess = trainer.program.global_block().var("guess")
        return fluid.io.save_inference_model(str(folder), ["ids"], [guess], EXE, trainer.program, **options)

    on_trainer(job, save)


def test_a_model_with_rows_in_the_range_of_its_table_is_saved_for_inference(tmp_path):
    job = Job(build_with_prediction, 2, trainers=1)
    run(job, 3, names=np.arange(8))
    save_model(job, tmp_path)
    (found,) = refluid.load(tmp_path)(ids=np.arange(10).reshape(10, 1))
    np.testing.assert_allclose(found.ravel(), rows_of(job, "emb", np.arange(10)).sum(1), rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"params_filename": "all"}], ids=["separate", "combined"])
def test_a_model_with_rows_of_any_ids_predicts_what_the_job_does(tmp_path, options):
    job = Job(build_with_prediction, 2, trainers=1)
    run(job, 3)
    save_model(job, tmp_path / "model", **options)
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"__model__", *(options.values() or ["emb"])}
    asked = np.append(IDS, [12345, -77])  # rows that nobody has updated are as they begin
    expected = rows_of(job, "emb", asked).sum(1)
    model = refluid.load(tmp_path / "model")
    (found,) = model(ids=asked.reshape(-1, 1))
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6)
    save_again(model.model, tmp_path / "again", "combined")
    (found,) = refluid.load(tmp_path / "again")(ids=asked.reshape(-1, 1))
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6)
    with fluid.scope_guard(fluid.Scope()):
        for _ in range(2):  # the second replaces the rows of the first
            program, feed, fetch = fluid.io.load_inference_model(str(tmp_path / "model"), EXE, **options)
        (found,) = EXE.run(program, {feed[0]: asked.reshape(-1, 1)}, fetch)
        np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6)
        with pytest.raises(OutOfRangeError, match=f"contain {2**63 - 1}, which stands for no row"):
            EXE.run(program, {feed[0]: np.array([[2**63 - 1]])}, fetch)


def test_ids_that_were_not_admitted_are_zeros_in_a_saved_model_too(tmp_path):
    def build():
        build_with_prediction()
        refluid.table_options("emb", min_count=2)

    job = Job(build, 2, trainers=1)
    for ids in ([5, 10**12], [10**12]):
        job.step([{"ids": np.array(ids).reshape(-1, 1), "y": np.ones((len(ids), 1), "float32")}])
    save_model(job, tmp_path)
    (found,) = refluid.load(tmp_path)(ids=np.array([[5], [10**12], [6]]))
    assert found[1, 0] != 0 and found[0, 0] == found[2, 0] == 0
    np.testing.assert_allclose(found.ravel(), rows_of(job, "emb", np.array([5, 10**12, 6])).sum(1), rtol=1e-6)


def test_a_model_of_real_fluid_with_selected_rows_lacks_what_it_lacks(tmp_path):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        ids = fluid.layers.data("ids", [1], dtype="int64")
        found = fluid.layers.embedding(ids, [10, 2], is_sparse=True, padding_idx=0, param_attr="emb")
        main.global_block().var("emb").type = fluid.core.VarDesc.VarType.SELECTED_ROWS
        fluid.io.save_inference_model(str(tmp_path), ["ids"], [found], EXE, main, program_only=True)
    with open(tmp_path / "emb", "wb") as stream:
        write_selected_rows(stream, [7, 10**12], 10**12 + 1, np.array([[1, 2], [3, 4]], "float32"))
    model = refluid.load(tmp_path)
    (rows,) = model(ids=np.array([[10**12], [0], [7]]))
    np.testing.assert_array_equal(rows, [[3, 4], [0, 0], [1, 2]])
    with pytest.raises(OutOfRangeError, match="id 8 is not in the table emb"):
        model(ids=np.array([[8]]))
    with pytest.raises(ValueError, match="has rows with any ids .* cannot be read, computed with or exported"):
        refluid.export(model.model, tmp_path / "exported")
    for damaged, problem in (([7, 7], "has a row twice"), ([7, 2**63 - 1], "has a row twice, or one with id")):
        with open(tmp_path / "emb", "wb") as stream:
            write_selected_rows(stream, damaged, 9, np.ones((2, 2), "float32"))
        with pytest.raises(ValueError, match=problem):
            refluid.load(tmp_path)
    with open(tmp_path / "emb", "wb") as stream:
        write_selected_rows(stream, [7], 9, np.ones((1, 3), "float32"))
    with pytest.raises(ValueError, match=r"rows of \[2\] float32; its file holds rows of \[3\]"):
        refluid.load(tmp_path)


def test_rows_are_of_one_moment_while_trainers_push(tmp_path):
    """With one gradient for all, the moment of a row says how often it was updated, and so what its weights are."""

    def build():
        ids = fluid.layers.data("ids", [1], dtype="int64")
        attr = fluid.ParamAttr("emb", initializer=fluid.initializer.Constant(0.0))
        found = fluid.layers.embedding(ids, [64, WIDTH], True, True, param_attr=attr)
        fluid.optimizer.Adagrad(0.1).minimize(fluid.layers.reduce_sum(found))

    job, stop = Job(build, 2, trainers=2, sync_mode=False), threading.Event()

    def push(number):
        random = np.random.RandomState(number)
        while not stop.is_set():
            job.trainers[number].step({"ids": random.permutation(64)[:32].reshape(32, 1)})

    threads = [threading.Thread(target=push, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    table = next(iter(job.servers.values())).server._growing()["emb"].table

    def await_steps(more):
        while table.step < more:
            assert all(thread.is_alive() for thread in threads)

    try:
        await_steps(5)
        save(job, tmp_path / "0")
        for number in range(1, 4):
            await_steps(table.step + 3)
            save_delta(job, tmp_path / str(number), tmp_path / str(number - 1))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    seen = []
    for number in range(4):
        saved = open_table(tmp_path / str(number) / "emb")
        parts = [records for _, records in saved.records()]
        records = np.concatenate([*parts, np.empty((0, saved.form.words), np.uint32)])
        moments = saved.form.slot_of(records, "Moment")
        seen.append(moments.sum())
        assert (moments == saved.form.counts_of(records)[:, None]).all()
        steps = np.cumsum(np.append(0.0, -0.1 / np.sqrt(np.arange(1, 1 + moments.max(initial=0)))))
        np.testing.assert_allclose(saved.form.weights_of(records), steps[moments.astype(int)], rtol=1e-3)
    assert seen == sorted(set(seen))


def load_locally(folder, read):
    """What a program in one process, which knows of no servers, loads of the first of its tables."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        model()()
        EXE.run(startup)
        fluid.io.load_params(EXE, str(folder), main)
        return read(main, scope)


def test_a_program_in_one_process_loads_tables_of_servers(tmp_path):
    def read_all(main, scope):
        return np.array(scope.find_var("emb").get_tensor())

    def look_up(main, scope):
        output = main.global_block().ops[0].output("Out")
        feed = {"ids": np.array([[12], [3]]), "y": np.zeros((2, 1), "float32")}
        with pytest.raises(RuntimeError, match=r"has rows with any ids .* is for inference only; what adagrad"):
            EXE.run(main, feed)
        return EXE.run(main.clone(for_test=True), feed, output)[0]

    job = Job(model(), 2, trainers=1)
    run(job, 2, names=np.arange(8))
    save(job, tmp_path)
    np.testing.assert_array_equal(load_locally(tmp_path, read_all), rows_of(job, "emb", np.arange(10)))
    run(job, 1, names=np.array([10, 12]))
    save(job, tmp_path)
    np.testing.assert_array_equal(load_locally(tmp_path, look_up), rows_of(job, "emb", np.array([12, 3])))
    with pytest.raises(ValueError, match=r"emb has rows with any ids .* cannot be read, computed with or exported"):
        load_locally(tmp_path, read_all)


def test_what_tables_hold_is_told_over_all_servers():
    from refluid.runtime.trainer.table_saving import describe_tables

    job = Job(model(), 3, trainers=1)
    run(job, 8)
    found = on_trainer(job, lambda trainer: describe_tables(trainer.session))["emb"]
    assert (found["rows"], found["step"]) == (len(IDS), 8)
    assert (found["lowest"], found["highest"]) == (IDS.min(), IDS.max()) and found["bytes"] > 0
