"""Curves of values over steps, for a notebook or a file.

Drawing needs matplotlib, refluid's extra ``plot``. DISABLE_PLOT=True turns it off.
"""

import os

from refluid import charts

__all__ = ["PlotData", "Ploter"]


class PlotData:
    """One curve."""

    def __init__(self):
        self.reset()

    def append(self, step, value):
        """Adds a point."""
        self.step.append(step)
        self.value.append(value)

    def reset(self):
        """Removes all points."""
        self.step, self.value = [], []


class Ploter:
    """Several curves in one plot.

    Args:
      args: the titles of the curves.

    Example:
        cost = Ploter("train cost", "test cost")
        cost.append("train cost", step, value)
        cost.plot()  # in a notebook; cost.plot("cost.png") elsewhere
    """

    def __init__(self, *args):
        for title in args:
            if not isinstance(title, str):
                raise TypeError(f"Ploter: the title of a curve is a string, not {title!r}")
        self.__args__ = args
        self.__plot_data__ = {title: PlotData() for title in args}
        self.__disable_plot__ = os.environ.get("DISABLE_PLOT")

    def append(self, title, step, value):
        """Adds a point to the curve ``title``."""
        if title not in self.__plot_data__:
            raise ValueError(f"Ploter has no curve {title!r}; its curves are {', '.join(map(repr, self.__args__))}")
        self.__plot_data__[title].append(step, value)

    def plot(self, path=None):
        """Draws the curves that have points: to a file or, without a path, as the output of the notebook's cell."""
        if self.__plot_is_disabled__():
            return
        figure, axes = charts.figure()
        for title, data in self.__plot_data__.items():
            if data.step:
                axes.plot(data.step, data.value, label=title)
        if axes.lines:
            axes.legend(loc="upper left")
        if path is None:
            charts.show_in_notebook(figure)
        else:
            figure.savefig(path)

    def reset(self):
        """Removes all points of all curves."""
        for data in self.__plot_data__.values():
            data.reset()

    def _repr_html_(self):
        return charts.small_chart({title: (data.step, data.value) for title, data in self.__plot_data__.items()})

    def __plot_is_disabled__(self):
        return self.__disable_plot__ == "True"
