"""Trainers with several devices, and servers: gradients meet on the devices first, then on the servers."""

import numpy as np
import pytest

import paddle.fluid as fluid
from programs_to_distribute import config, regression, tagger
from simulated_cluster import EXE, Job, close_jobs


@pytest.fixture(autouse=True)
def closed():
    yield
    close_jobs()


def seeded(build):
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 3
    build()


def batches(build, steps=4, samples=8):
    random = np.random.RandomState(0)
    for _ in range(steps):
        y = random.rand(samples, 1).astype("float32")
        if build is regression:
            yield {"x": random.rand(samples, 8).astype("float32"), "y": y}
        else:
            yield {"word": random.randint(0, 10, (samples, 1)).astype("int64"), "y": y}


def trained_alone(build, name):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        seeded(build)
        EXE.run(startup)
        for feed in batches(build):
            EXE.run(main, feed=feed)
        return np.array(fluid.global_scope().find_var(name).get_tensor())


@pytest.mark.parametrize(("build", "name"), [(regression, "fc_0.w_0"), (tagger, "emb")])
def test_devices_of_two_trainers_train_as_one_device_does(build, name):
    job = Job(lambda: seeded(build), config=config)
    for trainer in job.trainers:
        block = trainer.program.global_block()
        loss = next(n.removesuffix("@GRAD") for op in block.ops if op.role == 257 for n in op.output_arg_names)
        compiled = fluid.CompiledProgram(trainer.program).with_data_parallel(loss, places=fluid.cpu_places(2))
        trainer.program = compiled._program_to_run()
    for feed in batches(build):
        job.step([{n: value[part] for n, value in feed.items()} for part in (slice(0, 4), slice(4, 8))])
    np.testing.assert_allclose(job.whole(name), trained_alone(build, name), atol=1e-5)
