"""The arithmetic of the benchmarks that say how a mode learns, on runs whose answer is known."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    """Imports a benchmark script, which finds its neighbours by their plain names."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield __import__
    for name in set(sys.modules) - before:
        if str(BENCH) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def run(seen, unit=1.0, step=1.0):
    """What trainers report: ``seen[t][k]`` are the counts that step k of trainer t read, in updates."""
    return [
        [(step * k, step * (k + 1), [[-unit * count for count in counts]]) for k, counts in enumerate(steps)]
        for steps in seen
    ]


def test_a_trainer_that_lags_two_steps_has_an_own_staleness_of_two(bench):
    staleness = bench("staleness")
    steps = [(max(0, k - 2),) * 2 for k in range(37)] + [(k, k) for k in range(37, 40)]  # it catches up at the end

    own = staleness.analyse(run([steps, steps]), "tasync", warm=5)["own"]

    assert set(own) == {2.0}


def test_steps_that_take_turns_are_stale_by_the_other_trainers_update(bench):
    staleness = bench("staleness")
    # Both read (k, k); trainer 0 is applied first, so trainer 1's update meets one update it has not seen.
    steps = [(k, k) for k in range(20)]
    found = staleness.analyse(run([steps, steps]), "tasync", warm=2)

    assert set(found["own"]) == {0.0}
    assert set(found["others"]) == {0.5}  # who came first cannot be seen: the middle of 0 and 1
    assert found["unit"] == 1.0


def test_rounds_that_are_averaged_have_no_staleness(bench):
    staleness = bench("staleness")
    steps = [(k, k) for k in range(20)]

    found = staleness.analyse(run([steps, steps], unit=0.5), "sync", warm=2)

    assert found["unit"] == 0.5
    assert set(found["own"]) == set(found["others"]) == {0.0}


def test_in_geo_the_others_steps_are_counted_by_the_clock(bench):
    staleness = bench("staleness")
    first = [(k, k // 10 * 10) for k in range(40)]  # what trainer 1 did arrives every ten steps
    second = [(k // 10 * 10, k) for k in range(40)]

    found = staleness.analyse(run([first, second]), "geo", warm=0)

    assert set(found["own"]) == {0.0}
    assert set(found["others"]) == set(map(float, range(10)))


def test_the_histogram_puts_every_step_in_one_bin(bench):
    lines = bench("staleness").histogram([-1, 0, 0, 5, 300]).splitlines()

    assert [line.split("%")[0].split() for line in lines] == [
        ["below", "0", "20.0"],
        ["0", "40.0"],
        ["4-5", "20.0"],
        ["256", "or", "more", "20.0"],
    ]


def job(losses):
    """Two trainers of three steps; trainer 0 evaluates after each, one second apart."""
    lead = {
        "system": "refluid",
        "start": 10.0,
        "first": [8.0, 9.0],
        "ends": [11.0, 12.0, 13.0],
        "losses": [(11.0 + i, 2 + i, loss) for i, loss in enumerate(losses)],
        "evaluating": [0.1] * 3,
        "first_loss": 4.0,
        "start_s": 1.0,
        "samples": 20,
    }
    return {"trainers": [lead, dict(lead, start=10.5, ends=[11.5, 12.5, 13.5])], "note": ""}


def test_time_to_loss_counts_the_samples_of_all_trainers_until_the_target(bench):
    out = bench("time_to_loss").summary(job([1.0, 0.0005, 0.0001]), "fit_a_line")

    assert out["seconds"] == 1.5  # from 10.5, when the last trainer was ready
    assert out["samples"] == 20 * (2 + 2 + 1)  # the first steps, and those that were over


def test_a_target_that_is_not_reached_has_no_time(bench):
    script = bench("time_to_loss")
    out = script.summary(job([1.0, float("nan"), 0.5]), "fit_a_line")

    assert out["seconds"] is None
    assert not script.converged(out, "fit_a_line")
    assert "not reached (1 of 1)" in script.cell([out], "")


@pytest.mark.parametrize(("number", "height", "begin"), [(None, 273, 0), (0, 136, 0), (1, 137, 136)])
def test_slices_of_a_parameter_begin_where_the_transpilers_cut_them(bench, number, height, begin):
    assert bench("time_to_loss").slice_begin(number, height, 273, servers=2) == begin


def test_the_plot_is_an_image_with_a_line_for_every_curve_and_skips_what_is_not_a_number(bench):
    curve = [(0.0, 4.0), (1.0, float("nan")), (2.0, 0.1)]
    image = ElementTree.fromstring(bench("curves").svg([("geo", 0.5, [curve, []])], ["Fluid", "refluid"], per_row=3))

    lines = [e.get("points") for e in image.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len((line or "").split()) for line in lines] == [2, 0]
