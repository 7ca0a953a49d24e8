"""Programs as graphs: Fluid's IrGraph and its nodes, for passes that link operators instead of ordering them.

A graph is a view of a program's global block; nodes are views of its operators and variables. There is one node for
each variable, also if several operators write it. Operators that a pass creates are placed when the order matters:
right before the first operator that reads what they write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from refluid.ir.desc import OpView, ProgramView, VarView
from refluid.ir.drawing import Graph as Drawing
from refluid.ir.operator import Operator
from refluid.ir.program import Program
from refluid.ir.variable import Variable


class Graph:
    """``core.Graph(program.desc)``: a copy of a program, to be rewritten."""

    def __init__(self, desc: ProgramView):
        if not isinstance(desc, ProgramView):
            raise TypeError(f"core.Graph expects program.desc, not {type(desc).__name__}")
        self.program: Program = desc._program.clone()
        self.created: list[Operator] = []  # by passes, not yet in their place

    def replace(self, program: Program) -> None:
        """Makes another program the one that the graph shows."""
        self.program, self.created = program, []

    def ordered_program(self) -> Program:
        """The program, with all operators in an order in which they can run."""
        block, waiting = self.program.global_block(), self.created
        while waiting:
            placed = [op for op in reversed(waiting) if self._place(op)]
            waiting = [op for op in waiting if op not in placed]
            if not placed:
                block.ops.extend(waiting)
                break
        self.created = []
        return self.program

    def _place(self, op: Operator) -> bool:
        ops = self.program.global_block().ops
        written = set(op.output_arg_names) - set(op.input_arg_names)
        for place, other in enumerate(ops):
            if not written.isdisjoint(other.input_arg_names):
                ops.insert(place, op)
                self.program.changed()
                return True
        return False


class IrNode:
    """A node of a graph: an operator or a variable."""

    def __init__(self, graph: Graph, viewed: Any):
        self._graph, self._viewed = graph, viewed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IrNode) and self._viewed is other._viewed

    def __hash__(self) -> int:
        return id(self._viewed)

    @property
    def node(self) -> IrNode:
        """The node itself, which real Fluid wraps."""
        return self

    def id(self) -> int:
        """A number that only this node has."""
        return id(self._viewed)

    def name(self) -> str:
        """The type of an operator, or the name of a variable."""
        raise NotImplementedError

    def is_op(self) -> bool:
        return isinstance(self, IrOpNode)

    def is_var(self) -> bool:
        return isinstance(self, IrVarNode)

    def is_ctrl_var(self) -> bool:
        """False: operators of a program are in order, and need no variables to control it."""
        return False

    def op(self) -> OpView | None:
        """The description of the operator."""
        return OpView(self._viewed) if self.is_op() else None

    def var(self) -> VarView | None:
        """The description of the variable."""
        return VarView(self._viewed) if self.is_var() else None

    @property
    def inputs(self) -> list[Any]:
        """The nodes that point here."""
        raise NotImplementedError

    @property
    def outputs(self) -> list[Any]:
        """The nodes that this one points at."""
        raise NotImplementedError


class IrVarNode(IrNode):
    """A variable of a graph."""

    _viewed: Variable

    def name(self) -> str:
        return self._viewed.name

    def shape(self) -> list[int]:
        return list(self._viewed.shape)

    def set_shape(self, shape: Sequence[int]) -> None:
        self._viewed.shape = tuple(shape)

    def dtype(self) -> Any:
        return self._viewed.dtype

    def type(self) -> Any:
        return self._viewed.type

    def persistable(self) -> bool:
        return self._viewed.persistable

    @property
    def inputs(self) -> list[IrOpNode]:
        """The operators that write the variable."""
        return [IrOpNode(self._graph, op) for op in self._ops() if self.name() in op.output_arg_names]

    @property
    def outputs(self) -> list[IrOpNode]:
        """The operators that read the variable."""
        return [IrOpNode(self._graph, op) for op in self._ops() if self.name() in op.input_arg_names]

    def _ops(self) -> list[Operator]:
        return [*self._graph.program.global_block().ops, *self._graph.created]


class IrOpNode(IrNode):
    """An operator of a graph."""

    _viewed: Operator

    def name(self) -> str:
        return self._viewed.type

    def input(self, name: str) -> list[str]:
        """The variable names in an input slot."""
        return self._viewed.input(name)

    def output(self, name: str) -> list[str]:
        """The variable names in an output slot."""
        return self._viewed.output(name)

    def input_arg_names(self) -> list[str]:
        return self._viewed.input_arg_names

    def output_arg_names(self) -> list[str]:
        return self._viewed.output_arg_names

    def rename_input(self, old_input_name: str, new_input_name: str) -> None:
        self._viewed.rename_input(old_input_name, new_input_name)

    def rename_output(self, old_output_name: str, new_output_name: str) -> None:
        self._viewed.rename_output(old_output_name, new_output_name)

    def set_type(self, new_type: str) -> None:
        OpView(self._viewed).set_type(new_type)

    def set_attr(self, name: str, val: Any) -> None:
        self._viewed.set_attr(name, val)

    @property
    def inputs(self) -> list[IrVarNode]:
        """The variables that the operator reads."""
        return self._variables(self._viewed.input_arg_names)

    @property
    def outputs(self) -> list[IrVarNode]:
        """The variables that the operator writes."""
        return self._variables(self._viewed.output_arg_names)

    def _variables(self, names: Iterable[str]) -> list[IrVarNode]:
        found = map(self._viewed.block.find_var_recursive, dict.fromkeys(names))
        return [IrVarNode(self._graph, variable) for variable in found if variable is not None]


class IrGraph:
    """A program as nodes, which passes link, rename and remove.

    Args:
      graph: ``core.Graph(program.desc)``.
      for_test: whether passes should prepare the program for inference.
    """

    def __init__(self, graph: Graph, for_test: bool = False):
        if not isinstance(graph, Graph):
            raise TypeError(f"IrGraph expects core.Graph(program.desc), not {type(graph).__name__}")
        self.graph = graph
        self._for_test = for_test

    def is_test(self) -> bool:
        """Whether the program is prepared for inference."""
        return self._for_test

    def clone(self) -> IrGraph:
        """A copy, with a program of its own."""
        return IrGraph(Graph(self.to_program().desc), self._for_test)

    def to_program(self) -> Program:
        """The program that the graph shows, as a copy."""
        return self.graph.ordered_program().clone()

    # Nodes

    def all_nodes(self) -> list[IrNode]:
        return [*self.all_op_nodes(), *self.all_var_nodes()]

    def all_var_nodes(self) -> list[IrVarNode]:
        return [IrVarNode(self.graph, variable) for variable in self._block.vars.values()]

    def all_persistable_nodes(self) -> list[IrVarNode]:
        return [node for node in self.all_var_nodes() if node.persistable()]

    def all_op_nodes(self) -> list[IrOpNode]:
        return [IrOpNode(self.graph, op) for op in [*self._block.ops, *self.graph.created]]

    def topology_sort(self) -> list[IrOpNode]:
        """The operators in an order in which they can run."""
        return [IrOpNode(self.graph, op) for op in self.graph.ordered_program().global_block().ops]

    def build_adjacency_list(self) -> dict[IrOpNode, set[IrOpNode]]:
        """For each operator those that it depends on."""
        nodes = self.topology_sort()
        return {node: {before for variable in node.inputs for before in variable.inputs} - {node} for node in nodes}

    def has_circle(self) -> bool:
        """False: operators of a program are in order."""
        return False

    def graph_num(self) -> int:
        """1: a program is one graph."""
        return 1

    def resolve_hazard(self) -> None:
        """Does nothing: the order of operators says which value of a variable each of them reads."""

    # Changes

    def create_var_node(self, name: str, var_type: Any, shape: Sequence[int], var_dtype: Any) -> IrVarNode:
        """Creates a variable."""
        options: dict[str, Any] = {"name": name, "type": var_type, "shape": shape, "dtype": var_dtype}
        return IrVarNode(self.graph, self._block.create_var(**options))

    def create_persistable_node(self, name: str, var_type: Any, shape: Sequence[int], var_dtype: Any) -> IrVarNode:
        """Creates a variable that stays in the scope."""
        node = self.create_var_node(name, var_type, shape, var_dtype)
        node._viewed.persistable = True
        return node

    def create_var_node_from_desc(self, var_desc: VarView) -> IrVarNode:
        """Creates a variable like another."""
        return IrVarNode(self.graph, self._block._clone_variable(var_desc._viewed, force_persistable=False))

    def create_op_node(
        self, op_type: str, attrs: Mapping[str, Any], inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> IrOpNode:
        """Creates an operator; inputs and outputs are nodes, or lists of them, by slot."""
        op = Operator(self._block, op_type, _names(inputs), _names(outputs), attrs)
        for name, value in self.graph.program.current_op_attrs().items():
            op.attrs.setdefault(name, value)
        self.graph.created.append(op)
        return IrOpNode(self.graph, op)

    def create_op_node_from_desc(self, op_desc: OpView) -> IrOpNode:
        """Creates an operator like another."""
        op = op_desc._viewed.copy_to(self._block)
        self.graph.created.append(op)
        return IrOpNode(self.graph, op)

    def link_to(self, node_in: IrNode, node_out: IrNode) -> None:
        """Does nothing more: an operator is linked to the variables that it names."""
        for node in (node_in, node_out):
            if not isinstance(node, IrNode):
                raise TypeError(f"link_to expects two nodes, not {type(node).__name__}")

    def update_input_link(self, old_input_node: IrVarNode, new_input_node: IrVarNode, op_node: IrOpNode) -> None:
        """Lets an operator read another variable."""
        op_node.rename_input(old_input_node.name(), new_input_node.name())

    def update_output_link(self, old_output_node: IrVarNode, new_output_node: IrVarNode, op_node: IrOpNode) -> None:
        """Lets an operator write another variable."""
        op_node.rename_output(old_output_node.name(), new_output_node.name())

    def safe_remove_nodes(self, remove_nodes: IrNode | Iterable[IrNode]) -> None:
        """Removes nodes."""
        nodes = {remove_nodes} if isinstance(remove_nodes, IrNode) else set(remove_nodes)
        removed = {node.id() for node in nodes if node.is_op()}
        self._block.ops = [op for op in self._block.ops if id(op) not in removed]
        self.graph.created = [op for op in self.graph.created if id(op) not in removed]
        for node in nodes:
            if node.is_var():
                self._block.remove_var(node.name())
        self.graph.program.changed()

    def draw(self, save_path: str, name: str, marked_nodes: Any = None, remove_ctr_var: bool = True) -> None:
        """Writes ``<save_path>/<name>.dot``, a drawing of the graph for Graphviz."""
        self.graph.ordered_program()
        marked = [f"^{re.escape(node.name())}$" for node in marked_nodes or ()]
        drawing = Drawing(name)
        drawing.add(self._block, highlights=marked)
        folder = Path(save_path)
        folder.mkdir(parents=True, exist_ok=True)
        drawing.save(str(folder / f"{name}.dot"))

    def _find_node_by_name(self, nodes: Iterable[IrNode], node_name: str) -> IrNode:
        for node in nodes:
            if node.name() == node_name:
                return node
        raise AssertionError(f"none of these nodes is called {node_name}")

    @property
    def _block(self) -> Any:
        return self.graph.program.global_block()


def _names(by_slot: Mapping[str, Any]) -> dict[str, list[str]]:
    lists = {slot: nodes if isinstance(nodes, list | tuple | set) else [nodes] for slot, nodes in by_slot.items()}
    return {slot: [node.name() for node in nodes] for slot, nodes in lists.items()}
