"""Flax layers and optax optimizers with parameter servers compute what they compute locally."""

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

import paddle.fluid as fluid
import refluid
import simulated_cluster
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedCollectiveRoleMaker, UserDefinedRoleMaker
from paddle.fluid.incubate.fleet.collective import Collective
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import DistributedTranspiler
from refluid.errors import OpError
from refluid.ir import Program
from refluid.scope import Scope
from simulated_cluster import EXE, Job, close_jobs

BATCH, STEPS = 8, 5


@pytest.fixture(autouse=True)
def closed():
    yield
    close_jobs()


def config(**options):
    """Weights of the first layer are cut into slices."""
    made = fluid.DistributeTranspilerConfig()
    for name, value in {"min_block_size": 8, **options}.items():
        setattr(made, name, value)
    return made


def batches(steps=STEPS):
    random = np.random.RandomState(3)
    for _ in range(steps):
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


def made_by(build):
    """The main program that ``build`` makes, and a scope in which its startup program has run."""
    main, startup, scope = Program(), Program(), Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build()
    EXE.run(startup, scope=scope)
    return main, scope


def locally(build):
    """All parameters after training on whole batches."""
    main, scope = made_by(build)
    inputs = {v.name for v in main.list_vars() if v.is_data}
    for batch in batches():
        EXE.run(main, feed={name: batch[name] for name in inputs}, scope=scope)
    return {p.name: np.asarray(scope.find_var(p.name).value) for p in main.all_parameters()}


def in_plain_optax(build, transformation, steps):
    """All parameters after training on whole batches in a loop without programs."""
    main, scope = made_by(build)
    loss = next(op for op in main.global_block().ops if op.type == "mean").output("Out")[0]
    function, state = refluid.to_jax(main.clone(for_test=True), ["x", "y"], [loss], scope)
    params = {p.name: state[p.name] for p in main.all_parameters()}

    @jax.jit
    def step(params, memory, feed):
        grads = jax.grad(lambda params: function({**state, **params}, **feed)[0][0][0])(params)
        updates, memory = transformation.update(grads, memory, params)
        return optax.apply_updates(params, updates), memory

    memory = transformation.init(params)
    for batch in batches(steps):
        params, memory = step(params, memory, {name: batch[name] for name in ("x", "y")})
    return params


def trained(job, steps=STEPS):
    trainers = len(job.trainers)
    for batch in batches(steps):
        job.step([{name: value[rank::trainers] for name, value in batch.items()} for rank in range(trainers)])
    return job


def as_job(build, steps=STEPS, **options):
    return trained(Job(build, config=lambda: config(**options), as_data=False), steps)


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
def test_servers_apply_a_transformation_as_plain_optax_does(name):
    steps, transformation = 50, TRANSFORMATIONS[name]()
    build = built_with(lambda: refluid.OptaxOptimizer(transformation))
    expected = in_plain_optax(build, transformation, steps)
    for sliced in (True, False):
        job = as_job(build, steps, slice_var_up=sliced)
        held = {name for server in job.servers.values() for name in server.program.global_block().vars}
        is_cut = any(name.startswith("fc_0.w_0.block") for name in held)
        assert is_cut == (sliced and name not in ("lamb", "adafactor"))
        for param, value in expected.items():
            np.testing.assert_allclose(job.whole(param), value, atol=1e-5, err_msg=f"{param}, sliced {sliced}")


def test_rows_of_sparse_tables_are_updated_on_servers():
    build = built_with(lambda: refluid.OptaxOptimizer(optax.sgd(0.01, 0.9)), sparse=True)
    expected, job = locally(build), as_job(build)
    for param, value in expected.items():
        np.testing.assert_allclose(job.whole(param), value, atol=1e-5, err_msg=param)


def test_clipping_by_the_norm_of_all_gradients_comes_from_fluid():
    def optimizer():
        return refluid.OptaxOptimizer(optax.adam(1e-2), grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1))

    build = built_with(optimizer, flax=True)
    expected, job = locally(build), as_job(build)
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


CLIPPED = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2))


@pytest.mark.parametrize(("through", "transformation"), [("fluid", CLIPPED), ("fleet", optax.adam(1e-2))])
def test_several_devices_follow_one(through, transformation, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    fleet = Collective()
    fleet.init(UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170"]))

    def optimizer():
        made = refluid.OptaxOptimizer(transformation)
        return fleet.distributed_optimizer(made) if through == "fleet" else made

    expected = locally(built_with(lambda: refluid.OptaxOptimizer(transformation), flax=True))
    main, scope = made_by(built_with(optimizer, flax=True))
    loss = next(op for op in main.global_block().ops if op.type == "mean").output("Out")[0]
    compiled = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss, places=fluid.cpu_places(2))
    program = fleet.main_program if through == "fleet" else compiled
    for batch in batches():
        (losses,) = EXE.run(program, feed={name: batch[name] for name in ("x", "y")}, fetch_list=[loss], scope=scope)
        assert len(losses) == 2
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(scope.find_var(name).value), value, atol=1e-5, err_msg=name)


class FleetJob(Job):
    """The roles of a job, made by Fleet."""

    def __init__(self, transformation, mode, workers):
        self.endpoints = [f"127.0.0.1:{6170 + place}" for place in range(2)]
        self.servers, self.trainers = {}, []
        simulated_cluster._open.append(self)
        for number, endpoint in enumerate(self.endpoints):
            programs = self._programs(transformation, mode, Role.SERVER, number, workers)
            self.servers[endpoint] = simulated_cluster.Server(*programs, self.servers)
        for number in range(workers):
            programs = self._programs(transformation, mode, Role.WORKER, number, workers)
            self.trainers.append(simulated_cluster.Trainer(*programs, self.servers))

    def _programs(self, transformation, mode, role, number, workers):
        fleet = DistributedTranspiler()
        fleet.init(UserDefinedRoleMaker(number, role, workers, self.endpoints))
        options = {"sync_mode": mode == "sync", "half_async": mode == "half_async", "geo_sgd_mode": mode == "geo"}
        strategy = config(wait_port=False, geo_sgd_need_push_nums=2, **options)
        with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
            optimizer = refluid.OptaxOptimizer(transformation)
            built_with(lambda: fleet.distributed_optimizer(optimizer, strategy), flax=True)()
        return fleet.main_program, fleet.startup_program


@pytest.mark.parametrize(("mode", "workers"), [("sync", 2), ("async", 1), ("half_async", 1), ("geo", 1)])
def test_a_fleet_learns_the_same_in_every_mode(mode, workers):
    transformation = optax.sgd(SCHEDULE) if mode == "geo" else optax.adam(1e-2)  # GEO is for optimizers without state
    job = trained(FleetJob(transformation, mode, workers))
    build = built_with(lambda: refluid.OptaxOptimizer(transformation), flax=True)
    for param, value in locally(build).items():
        np.testing.assert_allclose(np.asarray(job.trainers[0][param]), value, atol=1e-5, err_msg=param)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x))
        return nn.Dropout(0.5, deterministic=not train)(x)


def test_trainers_keep_the_statistics_of_their_own_batches():
    def build():
        x, y = fluid.layers.data("x", [6]), fluid.layers.data("y", [1])
        hidden = refluid.flax_layer(Normed(), x, name="normed")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        refluid.OptaxOptimizer(optax.adam(1e-2)).minimize(loss)

    job = as_job(build)
    first, second = (np.asarray(trainer["normed.batch_stats.BatchNorm_0.mean"]) for trainer in job.trainers)
    assert first.any() and second.any() and not np.array_equal(first, second)
    first, second = (np.asarray(trainer["normed.Dense_0.kernel"]) for trainer in job.trainers)
    np.testing.assert_array_equal(first, second)
