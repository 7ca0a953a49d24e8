"""Two programs, startup and main, as one graph."""

import itertools

from refluid.ir.drawing import Graph

__all__ = ["draw_graph"]

_numbers = itertools.count(1)


def draw_graph(startup_program, main_program, **kwargs):
    """Writes both programs as one Graphviz file, and as a PDF beside it where Graphviz is installed.

    Args:
      filename: where the file goes; by default a numbered ``.gv`` file in the working directory.
      graph_attr, node_attr: Graphviz attributes of the graph and of the nodes of operators.

    Returns: the graph; its text is in ``source``.
    """
    unknown = sorted(set(kwargs) - {"filename", "graph_attr", "node_attr"})
    if unknown:
        raise TypeError(f"draw_graph takes filename, graph_attr and node_attr, not {', '.join(unknown)}")
    number = next(_numbers)
    graph = Graph(f"graph {number}", **{"rankdir": "TB", **kwargs.get("graph_attr", {})})
    node_attr = kwargs.get("node_attr")
    graph.add(startup_program.global_block(), "startup", attrs=node_attr)
    graph.add(main_program.global_block(), "main", attrs=node_attr)
    graph.save(kwargs.get("filename") or f"{number}.gv")
    return graph
