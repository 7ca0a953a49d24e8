"""The model of docs/scale.md and its simulation: sizes are those of tables, times those of cases with an answer."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from refluid.runtime.tables.records import RecordForm
from refluid.runtime.tables.rules import OPTIMIZERS, Rule
from refluid.runtime.tables.table import _SEGMENTS, Table

BENCH = Path(__file__).parents[2] / "bench"
COSTS = {
    "trainer_step": 1e-3,
    "trainer_message": 1e-4,
    "trainer_row": 2e-7,
    "trainer_value": 1e-8,
    "server_message": 2e-4,
    "server_row": 3e-7,
    "server_value": 2e-8,
    "saved_row": 1e-7,
    "saved_byte": 1e-9,
    "latency": 1e-4,
    "disk": 1e8,
}


@pytest.fixture
def bench(monkeypatch):
    """Imports a script of bench/scale, which finds its neighbours by their plain names."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.syspath_prepend(str(BENCH / "scale"))
    before = set(sys.modules)
    yield __import__
    for name in set(sys.modules) - before:
        if str(BENCH) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture
def costs(bench):
    return bench("model").Costs(**COSTS)


@pytest.mark.parametrize(
    ("rows", "width", "optimizer", "precision"),
    [(300, 8, "sgd", "native"), (30_000, 3, "adam", "native"), (150_000, 8, "adagrad", "bfloat16")],
)
def test_memory_is_that_of_the_table_that_ships(bench, rows, width, optimizer, precision):
    model = bench("model")
    form = RecordForm(width, slots=OPTIMIZERS[optimizer].states, precision=precision)
    table, ids = Table("emb", form, Rule(optimizer, {})), np.arange(rows)
    for _ in range(8):  # until indexes have grown
        table.update(ids, np.ones((rows, width), np.float32), table.begin_step(0.1))
    assert model.SEGMENTS == _SEGMENTS
    assert model.memory_of(rows, form) == pytest.approx(table.bytes, rel=0.03)


def test_servers_share_out_whole_shards(bench):
    model = bench("model")
    shares = {servers: model.Job(1e9, servers, 1).shares for servers in (1, 3, 100, 256)}
    assert all(sum(share) == pytest.approx(1) for share in shares.values())
    assert max(shares[100]) == 3 / 256 and min(shares[100]) == 2 / 256
    assert set(shares[256]) == {1 / 256}


def test_a_job_that_cannot_be_says_why(bench):
    model = bench("model")
    assert model.obstacles(model.Job(1e6, 2, 2)) == []
    assert any("256 shards" in each for each in model.obstacles(model.Job(1e9, 300, 2)))
    (problem,) = model.obstacles(model.Job(1e9, 1, 2))
    assert "GB on a host" in problem
    large = model.Host(memory=1e13)
    (problem,) = model.obstacles(model.Job(1e11, 8, 2, server_host=large))
    assert "8.6 thousand million rows on a server" in problem


def test_one_trainer_and_one_server_take_turns(bench, costs):
    """Nothing waits for anything else, so a step takes the sum of its parts."""
    model, simulation = bench("model"), bench("simulation")
    job = model.Job(
        1e6, 1, 1, batch_rows=1000, server_host=model.Host(network=1e18), trainer_host=model.Host(network=1e18)
    )
    parts = model.trainer_seconds(job, costs) + model.server_seconds(job, costs, 1.0)
    waits = 2 * model.MESSAGES * (costs.latency + job.server_host.delay)
    found = simulation.Simulation(job, costs, steps=50).run()
    assert found.steps_per_second == pytest.approx(1 / (parts + waits), rel=1e-3)
    assert found.busy["trainers"] == pytest.approx(model.trainer_seconds(job, costs) / (parts + waits), rel=0.05)


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"servers": 1, "trainers": 40}, "servers"),
        ({"servers": 8, "trainers": 2}, "trainers"),
        ({"servers": 1, "trainers": 40, "server_network": 2e7}, "network of servers"),
    ],
)
def test_with_much_to_do_the_first_limit_is_reached(bench, costs, changes, first):
    model, simulation = bench("model"), bench("simulation")
    host = model.Host(network=changes.pop("server_network", 1e12))
    job = model.Job(1e6, batch_rows=5000, compute=1e-3, server_host=host, **changes)
    most = model.limits(job, costs)
    assert min(most, key=most.get) == first
    found = simulation.Simulation(job, costs, steps=30).run()
    assert found.bottleneck == first
    assert 0.75 * most[first] < found.steps_per_second <= 1.05 * most[first]


def test_a_round_waits_for_all_trainers(bench, costs):
    model, simulation = bench("model"), bench("simulation")
    steps = {
        sync: simulation.Simulation(model.Job(1e6, 2, 8, sync=sync), costs, steps=30).run().steps_per_second
        for sync in (False, True)
    }
    assert 0.5 * steps[False] < steps[True] <= steps[False]


def test_processes_that_share_two_cores_use_both_and_no_more(bench, costs):
    model, simulation = bench("model"), bench("simulation")
    job = model.Job(1e6, 3, 4, batch_rows=5000, compute=0.0)
    per_step = model.trainer_seconds(job, costs) + sum(model.server_seconds(job, costs, share) for share in job.shares)
    found = simulation.Simulation(job, costs, steps=60, shared=2).run()
    assert 0.9 * 2 / per_step < found.steps_per_second <= 1.02 * 2 / per_step


def test_costs_are_found_again_from_jobs_that_have_them(bench, costs):
    model, measuring, real_jobs = bench("model"), bench("costs"), bench("real_jobs")
    found = {}
    for name, servers, rows, width in (
        ("few", 1, measuring.FEW, 8),
        ("spread", measuring.SPREAD, measuring.FEW, 8),
        ("many", 1, measuring.MANY, 8),
        ("wide", 1, measuring.MANY, 64),
    ):
        job = model.Job(1e6, servers, 1, width, batch_rows=rows, compute=0.0)
        trainer, server = model.trainer_seconds(job, costs), model.server_seconds(job, costs, 1 / servers)
        waits = 2 * model.MESSAGES * costs.latency
        found[name] = real_jobs.Measured(trainer, server, 0.0, trainer + server + waits, 0.0)
    for name, value in measuring.of_jobs(found).items():
        assert value == pytest.approx(COSTS[name], rel=1e-6), name


def test_a_drawing_has_a_curve_for_every_name(bench):
    drawing = bench("drawing")
    curve = [(1, 20.0), (10, 150.0), (100, 900.0)]
    text = drawing.svg([("a", "x", [curve, curve], None), ("b", "x", [curve, curve], 128.0)], ["one", "two"])
    root = ElementTree.fromstring(text)
    assert len(root.findall(".//{*}polyline")) == 4
    assert {"one", "two", "a", "b"} <= {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}
