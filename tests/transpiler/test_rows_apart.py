"""nce and hsigmoid with is_sparse on servers: trainers look up the rows they need, and train as the local program."""

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.ir import Program
from refluid.scope import Scope
from refluid.transpiler.rows_apart import with_rows_apart
from simulated_cluster import EXE, Job, close_jobs

CLASSES, WIDTH, BATCH, STEPS = 20, 4, 6, 12
PATHS = np.array([[0, 1, -1], [0, 2, 5], [0, 2, 6], [0, 1, 3]])  # of four labels
CODES = np.array([[0, 0, -1], [1, 0, 1], [1, 1, 0], [0, 1, 1]])


@pytest.fixture(autouse=True)
def close():
    yield
    close_jobs()


def nce(hidden, **options):
    label = fluid.layers.data("label", [1], dtype="int64")
    named = {"param_attr": "table", "bias_attr": "bias", "num_neg_samples": 5, "is_sparse": True}
    return fluid.layers.nce(hidden, label, CLASSES, **named, **options)


def hsigmoid(hidden):
    label, table, code = (fluid.layers.data(name, [size], dtype="int64") for name, size in SIZES.items())
    named = {"path_table": table, "path_code": code, "is_custom": True, "is_sparse": True}
    return fluid.layers.hsigmoid(hidden, label, CLASSES, param_attr="table", bias_attr="bias", **named)


SIZES = {"label": 1, "table_of": 3, "code_of": 3}
LOSSES = {
    "nce": nce,
    "nce, log-uniform": lambda hidden: nce(hidden, sampler="log_uniform"),
    "nce, custom": lambda hidden: nce(hidden, sampler="custom_dist", custom_dist=[1 / CLASSES] * CLASSES),
    "hsigmoid": hsigmoid,
}


def model(loss, optimizer=lambda: fluid.optimizer.Adagrad(0.2)):
    def build():
        fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 5
        ids = fluid.layers.data("ids", [1], dtype="int64")
        hidden = fluid.layers.embedding(ids, [30, WIDTH], is_sparse=True, is_distributed=True, param_attr="emb")
        optimizer().minimize(fluid.layers.mean(loss(hidden)))

    return build


def batches():
    random = np.random.RandomState(2)
    for _ in range(STEPS):
        label = random.randint(0, 4, (BATCH, 1))
        paths = {"table_of": PATHS[label[:, 0]], "code_of": CODES[label[:, 0]]}
        yield {"ids": random.randint(0, 30, (BATCH, 1)), "label": label, **paths}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_sync_job_equals_local_training(loss):
    main, startup, scope = Program(), Program(), Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        model(LOSSES[loss])()
    EXE.run(startup, scope=scope)
    job = Job(model(LOSSES[loss]), servers=2, trainers=1)
    for batch in batches():
        feed = {name: value for name, value in batch.items() if main.global_block().has_var(name)}
        EXE.run(main, feed=feed, scope=scope)
        job.step([feed])
    for name in ("table", "bias"):
        np.testing.assert_allclose(job.whole(name), np.asarray(scope.find_var(name).value), rtol=1e-5, atol=1e-6)
    (trainer,) = job.trainers
    types = [op.type for op in trainer.program.global_block().ops]
    assert types.count("distributed_lookup_table") == 2 and not {"nce", "hierarchical_sigmoid"} & set(types)
    assert "table" not in [name for op in trainer.program.global_block().ops for name in op.output_arg_names]
    names = {"nce_labels", "nce_of_rows"} if loss != "hsigmoid" else {"path_nodes", "hierarchical_sigmoid_of_rows"}
    assert names < set(types)


def test_programs_without_sparse_losses_stay_as_they_are():
    hidden = fluid.layers.data("x", [WIDTH])
    fluid.layers.nce(hidden, fluid.layers.data("label", [1], dtype="int64"), CLASSES)
    program = fluid.default_main_program()
    assert with_rows_apart(program) is program
