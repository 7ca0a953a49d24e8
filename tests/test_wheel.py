"""An installed wheel is complete: it trains, saves, loads and runs a distributed job outside the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {"src": "", "runtime": "refluid/runtime/", "transpiler": "refluid/transpiler/"}
NOT_SHIPPED = shutil.ignore_patterns("__pycache__", "*.egg-info")

TRAIN_SAVE_AND_LOAD = """
import sys
import numpy as np
import paddle, refluid, refluid.runtime, refluid.transpiler
import paddle.fluid as fluid

for package in (paddle, refluid, refluid.runtime, refluid.transpiler):
    assert package.__file__.startswith(sys.prefix), package.__file__
x = fluid.layers.data(name="x", shape=[13], dtype="float32")
predicted = fluid.layers.fc(x, size=1)
loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, fluid.layers.data(name="y", shape=[1])))
fluid.optimizer.Adam(0.01).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
inputs = np.random.RandomState(0).rand(20, 13).astype("float32")
batch = {"x": inputs, "y": inputs.sum(1, keepdims=True)}
losses = [float(exe.run(feed=batch, fetch_list=[loss])[0]) for _ in range(20)]
assert losses[-1] < losses[0], losses
fluid.io.save_inference_model("model", ["x"], [predicted], exe)
text = fluid.default_main_program().desc.serialize_to_string()
assert fluid.Program.parse_from_string(text).desc.serialize_to_string() == text
(before,) = exe.run(fluid.default_main_program().clone(for_test=True), feed=batch, fetch_list=[predicted])
np.testing.assert_allclose(refluid.load("model")(x=inputs)[0], before, rtol=1e-6)
"""

JOB = """
import sys
import numpy as np
import refluid
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet

assert refluid.__file__.startswith(sys.prefix), refluid.__file__
words = fluid.layers.data(name="words", shape=[1], dtype="int64")
rows = fluid.layers.embedding(words, size=[50, 4], is_sparse=True)
loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(rows, size=1)))
fleet.init(PaddleCloudRoleMaker())
fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), fluid.DistributeTranspilerConfig()).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    fleet.init_worker()
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fleet.startup_program)
    for _ in range(5):
        exe.run(fleet.main_program, feed={"words": np.arange(8).reshape(8, 1)}, fetch_list=[loss])
    fleet.save_persistables(exe, "persistables")
    fleet.stop_worker()
    print("the job is done")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this checkout, built from a copy: a build/ folder in the checkout would bring old files back."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=NOT_SHIPPED)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", out, copy)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The bin folder of a fresh environment with the wheel, and with the dependencies of this one by path."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-deps", "--no-index", wheel)
    # Only after the installation, so that pip does not find the refluid of this environment. A path from a .pth file
    # brings no .pth files of its own, so the editable refluid stays out.
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def run(*command, cwd=None):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_the_rooms(wheel):
    kept = {
        inside + path.relative_to(ROOT / room).as_posix()
        for room, inside in ROOMS.items()
        for path in (ROOT / room).rglob("*")
        if path.is_file() and not NOT_SHIPPED(path.parent, path.relative_to(ROOT).parts)
    }
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {"refluid/ir/attr_types.json", "refluid/runtime/transport/protocol.proto"} <= kept
    assert shipped == kept


def test_an_installed_refluid_trains_saves_and_loads(installed, tmp_path):
    run(installed / "python", "-c", TRAIN_SAVE_AND_LOAD, cwd=tmp_path)


def test_an_installed_refluid_runs_a_server_and_a_trainer(installed, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    out = run(installed / "refluid", "launch", "--servers", "1", "--trainers", "1", "job.py", cwd=tmp_path)
    assert "the job is done" in out
    assert (tmp_path / "persistables/embedding_0.w_0").exists()
