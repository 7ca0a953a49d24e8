"""Flax layers and optax optimizers with parameter servers compute what they compute locally."""

import flax.linen as nn
import numpy as np
import optax
import pytest

import paddle.fluid as fluid
import refluid
from refluid.errors import OpError
from refluid.ir import Program
from refluid.scope import Scope
from simulated_cluster import EXE, Job, close_jobs

BATCH, STEPS = 8, 5


@pytest.fixture(autouse=True)
def closed():
    yield
    close_jobs()


def config():
    """Weights of the first layer are cut into slices."""
    made = fluid.DistributeTranspilerConfig()
    made.min_block_size = 8
    return made


def batches():
    random = np.random.RandomState(3)
    for _ in range(STEPS):
        x = random.randn(BATCH, 6).astype("float32")
        yield {"x": x, "y": x.sum(1, keepdims=True), "ids": random.randint(0, 11, (BATCH, 1))}


def built_with(optimizer, flax=False, sparse=False):
    def build():
        fluid.default_startup_program().random_seed = 7
        x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
        if flax:
            hidden = refluid.flax_layer(nn.Sequential([nn.Dense(8), nn.LayerNorm(), nn.tanh]), x, name="hidden")
        else:
            hidden = fluid.layers.fc(x, 8, act="tanh")
        inputs = [hidden]
        if sparse:
            ids = fluid.layers.data("ids", [1], dtype="int64")
            inputs.append(fluid.layers.embedding(ids, [11, 4], is_sparse=True, param_attr="emb"))
        prediction = fluid.layers.fc(inputs, 1)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(prediction, y))
        optimizer().minimize(loss)

    return build


def locally(build):
    """All persistable variables after training on whole batches."""
    main, startup, scope = Program(), Program(), Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build()
    EXE.run(startup, scope=scope)
    inputs = {v.name for v in main.list_vars() if v.is_data}
    for batch in batches():
        EXE.run(main, feed={name: batch[name] for name in inputs}, scope=scope)
    return {p.name: np.asarray(scope.find_var(p.name).value) for p in main.all_parameters()}


def as_job(build, trainers=2):
    job = Job(build, config=config, trainers=trainers, as_data=False)
    for batch in batches():
        job.step([{name: value[rank::trainers] for name, value in batch.items()} for rank in range(trainers)])
    return job


SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 40)
TRANSFORMATIONS = {
    "sgd": lambda: optax.sgd(0.01),
    "momentum": lambda: optax.sgd(0.01, 0.9),
    "adam": lambda: optax.adam(1e-2),
    "adamw": lambda: optax.adamw(SCHEDULE),
    "rmsprop": lambda: optax.rmsprop(1e-3),
    "adagrad": lambda: optax.adagrad(1e-2),
    "lion": lambda: optax.lion(1e-3),
    "lamb": lambda: optax.lamb(1e-2),
    "adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=4),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=SCHEDULE),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_servers_apply_a_transformation_as_one_process_does(name):
    build = built_with(lambda: refluid.OptaxOptimizer(TRANSFORMATIONS[name]()))
    expected, job = locally(build), as_job(build)
    slices = {name for server in job.servers.values() for name in server.program.global_block().vars}
    assert any(name.startswith("fc_0.w_0.block") for name in slices) == (name not in ("lamb", "adafactor"))
    for param, value in expected.items():
        np.testing.assert_allclose(job.whole(param), value, atol=1e-5, err_msg=param)


def test_rows_of_sparse_tables_are_updated_on_servers():
    build = built_with(lambda: refluid.OptaxOptimizer(optax.sgd(0.01, 0.9)), sparse=True)
    expected, job = locally(build), as_job(build)
    for param, value in expected.items():
        np.testing.assert_allclose(job.whole(param), value, atol=1e-5, err_msg=param)


def test_clipping_by_the_norm_of_all_gradients_comes_from_fluid():
    def optimizer():
        return refluid.OptaxOptimizer(optax.adam(1e-2), grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1))

    expected, job = locally(built_with(optimizer)), as_job(built_with(optimizer))
    for param, value in expected.items():
        np.testing.assert_allclose(job.whole(param), value, atol=1e-5, err_msg=param)


def test_a_transformation_that_looks_at_several_parameters_is_refused_with_the_reason():
    build = built_with(lambda: refluid.OptaxOptimizer(optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2))))
    with pytest.raises(OpError, match="the update of fc_0.b_0 depends on fc_0.w_0(.|\n)*GradientClipByGlobalNorm"):
        Job(build, as_data=False)


def test_states_that_begin_with_parameters_are_refused():
    build = built_with(lambda: refluid.OptaxOptimizer(optax.contrib.schedule_free_sgd(1e-2)))
    with pytest.raises(ValueError, match=r"state fc_0.b_0_z_0 begins with the value of fc_0.b_0, which servers do not"):
        Job(build, as_data=False)


@pytest.mark.parametrize(
    "optimizer", [lambda: fluid.optimizer.Adam(1e-2), lambda: refluid.OptaxOptimizer(optax.adam(1e-2))]
)
def test_servers_hold_the_parameters_of_flax_modules(optimizer):
    build = built_with(optimizer, flax=True)
    expected, job = locally(build), as_job(build)
    assert "hidden.layers_0.kernel" in expected
    for param, value in expected.items():
        np.testing.assert_allclose(job.whole(param), value, atol=1e-5, err_msg=param)


def test_fluids_optimizers_follow_an_optax_schedule_on_servers():
    build = built_with(lambda: fluid.optimizer.SGD(optax.linear_schedule(0.1, 0.0, 4)))
    expected, job = locally(build), as_job(build)
    for param, value in expected.items():
        np.testing.assert_allclose(job.whole(param), value, atol=1e-5, err_msg=param)


@pytest.mark.parametrize(
    "optimizer", [lambda: optax.adam(1e-2), lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2))]
)
def test_several_devices_follow_one(optimizer):
    found = []
    for devices in (None, 2):
        main, startup, scope = Program(), Program(), Scope()
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
            built_with(lambda: refluid.OptaxOptimizer(optimizer()), flax=True)()
            EXE.run(startup)
            program = main
            if devices:
                loss = next(op for op in main.global_block().ops if op.type == "mean").output("Out")[0]
                places = fluid.cpu_places(devices)
                program = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss, places=places)
            for batch in batches():
                EXE.run(program, feed={name: batch[name] for name in ("x", "y")})
            found.append({p.name: np.asarray(scope.find_var(p.name).value) for p in main.all_parameters()})
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, atol=1e-5, err_msg=name)


def in_mode(mode):
    def made():
        found = config()
        found.sync_mode = mode == "sync"
        found.half_async = mode == "half_async"
        if mode == "geo":
            found.geo_sgd_mode, found.geo_sgd_need_push_nums = True, 2
        return found

    return made


@pytest.mark.parametrize("mode", ["async", "half_async", "geo"])
def test_one_trainer_learns_the_same_in_every_mode(mode):
    transformation = optax.sgd(SCHEDULE) if mode == "geo" else optax.adam(1e-2)  # GEO is for optimizers without state
    build = built_with(lambda: refluid.OptaxOptimizer(transformation), flax=True)
    job = Job(build, config=in_mode(mode), trainers=1, sync_mode=False, as_data=False)
    for batch in batches():
        job.step([batch])
    for param, value in locally(build).items():
        np.testing.assert_allclose(np.asarray(job.trainers[0][param]), value, atol=1e-5, err_msg=param)
