"""`paddle.utils.plot.Ploter` draws to a file and in a notebook, and needs matplotlib for nothing else."""

import sys
import types

import pytest

import paddle
from paddle.utils.plot import Ploter

PNG = b"\x89PNG\r\n"


@pytest.fixture
def costs(monkeypatch):
    monkeypatch.delenv("DISABLE_PLOT", raising=False)
    ploter = Ploter("train cost", "test cost")
    for step in range(3):
        ploter.append("train cost", step, 1 / (step + 1))
    return ploter


@pytest.fixture
def notebook(monkeypatch):
    """What IPython was told to do."""
    told = []
    display = types.ModuleType("IPython.display")
    display.clear_output = lambda wait: told.append(("clear", wait))
    display.display = lambda shown: told.append(("show", shown))
    display.Image = lambda data: data
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return told


def test_curves_are_drawn_to_a_file(costs, tmp_path):
    pytest.importorskip("matplotlib")
    costs.plot(str(tmp_path / "cost.png"))
    costs.plot(tmp_path / "cost.svg")
    assert (tmp_path / "cost.png").read_bytes().startswith(PNG)
    drawn = (tmp_path / "cost.svg").read_text()
    assert "train cost" in drawn and "test cost" not in drawn  # a curve without points is no curve


def test_another_point_is_another_picture(costs, notebook):
    pytest.importorskip("matplotlib")
    costs.plot()
    costs.append("test cost", 0, 2.0)
    costs.plot()
    (clear, first), (_, second) = notebook[:2], notebook[2:]
    assert clear == ("clear", True)
    assert first[1].startswith(PNG) and second[1].startswith(PNG) and first[1] != second[1]


def test_reset_removes_all_points(costs, notebook):
    pytest.importorskip("matplotlib")
    costs.plot()
    costs.reset()
    costs.plot()
    Ploter("train cost", "test cost").plot()
    shown = [picture for what, picture in notebook if what == "show"]
    assert shown[1] == shown[2] != shown[0]


def test_an_unknown_curve_is_an_error(costs):
    with pytest.raises(ValueError, match="no curve 'cost'; its curves are 'train cost', 'test cost'"):
        costs.append("cost", 0, 1.0)
    with pytest.raises(TypeError, match="the title of a curve is a string, not 3"):
        Ploter("cost", 3)


def test_disable_plot_draws_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("DISABLE_PLOT", "True")
    ploter = paddle.utils.Ploter("cost")
    ploter.append("cost", 0, 1.0)
    ploter.plot()
    ploter.plot(str(tmp_path / "cost.png"))
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_are_named(costs, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(ImportError, match="needs the package IPython; elsewhere pass a path"):
        costs.plot()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"extra \[plot\]"):
        costs.plot("cost.png")
