"""The high-level API: Trainer, its events and checkpoints, and Inferencer."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid

W = np.array([[1.0], [2.0]], "float32")


def infer_func():
    x = fluid.layers.data(name="x", shape=[2], dtype="float32")
    return fluid.layers.fc(x, size=1)


def train_func():
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    predicted = infer_func()
    return [fluid.layers.mean(fluid.layers.square_error_cost(predicted, y)), fluid.layers.mean(predicted)]


def optimizer_func():
    return fluid.optimizer.SGD(learning_rate=0.1)


def reader(batches=4):
    numbers = np.random.RandomState(0)
    for _ in range(batches):
        x = numbers.rand(8, 2).astype("float32")
        yield list(zip(x, x @ W, strict=True))


def make_trainer(**arguments):
    return fluid.Trainer(train_func, optimizer_func, place=fluid.CPUPlace(), **arguments)


def train(trainer, epochs=2, handle=None):
    """Trains and returns (kind, epoch, step) of each event, and the losses."""
    events, losses = [], []

    def handler(event):
        events.append((type(event).__name__, event.epoch, getattr(event, "step", None)))
        if handle:
            handle(event)
        if isinstance(event, fluid.EndStepEvent) and event.metrics:
            losses.append(float(event.metrics[0].item()))

    trainer.train(epochs, handler, reader, ["x", "y"])
    return events, losses


@pytest.mark.parametrize("parallel", [False, True])
def test_events_come_in_order_and_the_loss_falls(parallel):
    events, losses = train(make_trainer(parallel=parallel), epochs=30)
    kinds = [kind.removesuffix("Event") for kind, _, _ in events[:4]]
    assert kinds == ["BeginEpoch", "BeginStep", "EndStep", "BeginStep"]
    assert events[-1] == ("EndEpochEvent", 29, None)
    assert losses[-1] < 0.1 * losses[0]


def test_a_handler_may_do_without_metrics():
    fetched = []

    def handle(event):
        if isinstance(event, fluid.BeginStepEvent):
            event.fetch_metrics = event.step != 1
        if isinstance(event, fluid.EndStepEvent):
            fetched.append(len(event.metrics))

    train(make_trainer(), 1, handle)
    assert fetched == [2, 0, 2, 2]


def test_stop_ends_training_after_the_step():
    trainer = make_trainer()

    def handle(event):
        if isinstance(event, fluid.EndStepEvent) and event.step == 1:
            trainer.stop()

    events, losses = train(trainer, 5, handle)
    assert len(losses) == 2 and events[-1] == ("EndStepEvent", 0, 1)


def test_test_gives_means_over_batches():
    trainer = make_trainer()
    means = trainer.test(reader, feed_order={"y": 1, "x": 0})
    assert len(means) == 2 and means[0] > 0
    assert means == trainer.test(reader, ["x", "y"])
    with pytest.raises(ValueError, match="no batch"):
        trainer.test(lambda: iter(()), ["x", "y"])


@pytest.mark.parametrize("order", [{"x": 0, "y": 2}, "x"])
def test_an_order_of_feeds_must_make_sense(order):
    with pytest.raises((ValueError, TypeError), match="feed_order"):
        make_trainer().test(reader, order)


def test_saved_parameters_serve_an_inferencer_and_another_trainer(tmp_path):
    trainer = make_trainer()
    train(trainer, 20)
    trainer.save_params(str(tmp_path))
    inferencer = fluid.Inferencer(infer_func, str(tmp_path), place=fluid.CPUPlace())
    x = np.array([[0.5, 0.25], [1, 1]], "float32")
    (predicted,) = inferencer.infer({"x": x})
    weight, bias = (np.array(trainer.scope.find_var(name).get_tensor()) for name in ("fc_0.w_0", "fc_0.b_0"))
    np.testing.assert_allclose(predicted, x @ weight + bias, rtol=1e-6)
    assert fluid.contrib.inferencer.Inferencer is fluid.contrib.Inferencer is fluid.Inferencer
    with pytest.raises(ValueError, match="inputs must be a dict"):
        inferencer.infer([x])
    again = make_trainer(param_path=str(tmp_path))
    assert again.test(reader, ["x", "y"]) == trainer.test(reader, ["x", "y"])


def test_a_trainer_saves_an_inference_model(tmp_path):
    trainer = make_trainer()
    trainer.save_inference_model(str(tmp_path), ["x"], [1])
    exe = fluid.Executor(fluid.CPUPlace())
    program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
    types = [op.type for op in program.global_block().ops]
    assert feeds == ["x"] and "mul" in types and "square" not in types
    assert exe.run(program, feed={"x": np.ones([3, 2], "float32")}, fetch_list=fetches)[0].shape == (1,)


def test_a_missing_param_path_is_told():
    with pytest.warns(UserWarning, match="directory absent does not exist"):
        make_trainer(param_path="absent")


@pytest.mark.parametrize(
    "wrong", [{"max_num_checkpoints": 0}, {"epoch_interval": 0}, {"step_interval": -1}, {"step_interval": 1.5}]
)
def test_a_checkpoint_config_checks_its_numbers(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least 1"):
        fluid.CheckpointConfig(**wrong)


def test_checkpoints_come_at_intervals_and_go_when_training_has_ended(tmp_path):
    config = fluid.CheckpointConfig(str(tmp_path), max_num_checkpoints=2, epoch_interval=2, step_interval=3)
    seen = []

    def handle(event):
        if isinstance(event, fluid.EndStepEvent):
            seen.append(sorted(path.name for path in tmp_path.iterdir()))

    train(make_trainer(checkpoint_config=config), 3, handle)
    saves = [after != before for before, after in zip([[], *seen], seen, strict=False)]
    assert saves == [True, False, False, True] + [False] * 4 + [True, False, False, True]
    assert seen[-1] == ["checkpoint_2", "checkpoint_3"]
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_is_local(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINING_ROLE", "TRAINER")
    with pytest.raises(NotImplementedError, match="one process"):
        make_trainer()


def test_a_run_that_is_killed_again_and_again_gives_the_losses_of_one_that_is_not(tmp_path):
    def run(folder, kill_at=None):
        environment = {**os.environ, "REFLUID_KILL_AT": str(kill_at or "")}
        script = Path(__file__).parent / "training_to_kill.py"
        ran = subprocess.run([sys.executable, script, folder], env=environment, capture_output=True, text=True)
        assert ran.returncode == (-9 if kill_at else 0), ran.stderr
        return [tuple(line.rsplit(" ", 1)) for line in ran.stdout.splitlines()]

    def left():
        return [re.sub(r"[0-9a-f]{12}", "TOKEN", path.name) for path in sorted(tmp_path.iterdir())]

    expected = run("-")
    assert len(expected) == 12
    reached = run(tmp_path, "written:2")  # within the first checkpoint: the next run begins anew
    assert left() == [".checkpoint_0.TOKEN.partial"]

    reached += run(tmp_path, "written:6")  # the second one's manifest is written, but the folder has no name yet
    manifest = json.loads((tmp_path / "checkpoint_0" / "manifest.json").read_text())
    assert len(manifest["variables"]) == 21
    assert left() == [".checkpoint_1.TOKEN.partial", "checkpoint_0"]
    assert next(tmp_path.glob(".checkpoint_1.*/manifest.json")).exists()

    reached += run(tmp_path, "remove:2")  # half of the oldest one is removed
    assert left() == [".checkpoint_0.removed", "checkpoint_1", "checkpoint_2"]

    assert run(tmp_path) == expected[5:]  # the newest one was saved in step 4, before its event, as Fluid does it
    assert set(reached) == set(expected[:4])
    assert left() == []
