"""Programs with named inputs and outputs, operators with neighbours: what slim's strategies look at and change."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from paddle.fluid import io
from paddle.fluid.compiler import CompiledProgram
from refluid.compression.counting import count_operations, count_parameters
from refluid.files.tensors import read_lod_tensor
from refluid.ir import Operator, OpRole, Parameter, Program, Variable, program_guard
from refluid.scope import Scope, global_scope, scope_guard

__all__ = ["GraphWrapper", "OpWrapper", "VarWrapper"]


class VarWrapper:
    """A variable of a graph."""

    def __init__(self, var: Variable, graph: GraphWrapper):
        self._var, self._graph = var, graph

    def __eq__(self, v: object) -> bool:
        return isinstance(v, VarWrapper) and self._var.name == v._var.name

    def __hash__(self) -> int:
        return hash(self._var.name)

    def name(self) -> str:
        return self._var.name

    def shape(self) -> tuple[int, ...]:
        return self._var.shape

    def set_shape(self, shape: Sequence[int]) -> None:
        self._var.shape = tuple(shape)

    def inputs(self) -> list[OpWrapper]:
        """The operators of which the variable is an input."""
        return [op for op in self._graph.ops() if self in op.all_inputs()]

    def outputs(self) -> list[OpWrapper]:
        """The operators of which the variable is an output."""
        return [op for op in self._graph.ops() if self in op.all_outputs()]


class OpWrapper:
    """An operator of a graph."""

    def __init__(self, op: Operator, graph: GraphWrapper):
        self._op, self._graph = op, graph

    def __eq__(self, op: object) -> bool:
        return isinstance(op, OpWrapper) and self._op is op._op

    def __hash__(self) -> int:
        return id(self._op)

    def type(self) -> str:
        return self._op.type

    def idx(self) -> int:
        """The position in the program."""
        return self._op.idx

    def all_inputs(self) -> list[VarWrapper]:
        return self._graph._existing(self._op.input_arg_names)

    def all_outputs(self) -> list[VarWrapper]:
        return self._graph._existing(self._op.output_arg_names)

    def inputs(self, name: str) -> list[VarWrapper]:
        """The variables in an input slot."""
        return self._graph._existing(self._op.input(name))

    def outputs(self, name: str) -> list[VarWrapper]:
        """The variables in an output slot."""
        return self._graph._existing(self._op.output(name))

    def is_bwd_op(self) -> bool:
        """Whether the operator computes gradients."""
        return bool(self._op.role & OpRole.Backward)

    def is_opt_op(self) -> bool:
        """Whether the operator belongs to an optimizer."""
        return bool(self._op.role & OpRole.Optimize)

    def attr(self, name: str) -> Any:
        return self._op.attr(name)

    def set_attr(self, key: str, value: Any) -> None:
        self._op.set_attr(key, value)


class GraphWrapper:
    """A program with named inputs and outputs.

    Args:
      program: the program; a new one by default.
      in_nodes: names of inputs -> names of variables, as pairs or a mapping.
      out_nodes: likewise. The loss of a graph to be trained is called ``loss`` or ``cost``.
    """

    def __init__(self, program: Program | None = None, in_nodes: Any = (), out_nodes: Any = ()):
        self.program = Program() if program is None else program
        self.persistables = {v.name: v for v in self.program.list_vars() if v.persistable}
        self.teacher_persistables: dict[str, Variable] = {}
        self.compiled_graph: CompiledProgram | None = None
        self.in_nodes, self.out_nodes = _named(in_nodes), _named(out_nodes)

    def all_parameters(self) -> list[VarWrapper]:
        return [VarWrapper(parameter, self) for parameter in self.program.all_parameters()]

    def is_parameter(self, var: VarWrapper) -> bool:
        return isinstance(var._var, Parameter)

    def is_persistable(self, var: VarWrapper) -> bool:
        return var._var.persistable

    def ops(self) -> list[OpWrapper]:
        return [OpWrapper(op, self) for block in self.program.blocks for op in block.ops]

    def vars(self) -> list[VarWrapper]:
        return [VarWrapper(variable, self) for variable in self.program.list_vars()]

    def var(self, name: str) -> VarWrapper:
        """The variable of that name."""
        return VarWrapper(self.program.global_block().var(name), self)

    def _existing(self, names: Sequence[str]) -> list[VarWrapper]:
        found = (self.program.global_block().find_var_recursive(name) for name in names)
        return [VarWrapper(variable, self) for variable in found if variable is not None]

    def pre_ops(self, op: OpWrapper) -> list[OpWrapper]:
        """The operators whose outputs ``op`` reads."""
        read = set(op.all_inputs())
        return [each for each in self.ops() if each != op and not read.isdisjoint(each.all_outputs())]

    def next_ops(self, op: OpWrapper) -> list[OpWrapper]:
        """The operators that read what ``op`` writes."""
        written = set(op.all_outputs())
        return [each for each in self.ops() if each != op and not written.isdisjoint(each.all_inputs())]

    def get_param_by_op(self, op: OpWrapper) -> list[VarWrapper]:
        """The parameters that an operator reads."""
        return [variable for variable in op.all_inputs() if self.is_parameter(variable)]

    def numel_params(self) -> int:
        """The number of elements of all parameters."""
        return count_parameters(self.program)

    def flops(self, only_conv: bool = False) -> float:
        """The number of operations for one sample, counted as real Fluid counts them."""
        return count_operations(self.program, only_convolutions=only_conv)

    def compile(self, for_parallel: bool = True, for_test: bool = False, mem_opt: bool = False) -> None:
        """Prepares the graph to be run."""
        self.compiled_graph = CompiledProgram(self.program)
        if for_parallel:
            self.compiled_graph.with_data_parallel(None if for_test else self._loss())

    def _loss(self) -> str:
        for name in ("loss", "cost"):
            if name in self.out_nodes:
                return self.out_nodes[name]
        raise ValueError(f"a graph is trained by its output 'loss' or 'cost'; it has {list(self.out_nodes)}")

    def clone(self, for_test: bool = False) -> GraphWrapper:
        """A copy, with a program of its own."""
        copy = GraphWrapper(self.program.clone(for_test), self.in_nodes, self.out_nodes)
        copy.teacher_persistables = dict(self.teacher_persistables)
        return copy

    def merge(self, graph: GraphWrapper) -> None:
        """Adds the operators and variables of a teacher, whose inputs have the names of ours."""
        block = self.program.global_block()
        for variable in graph.program.list_vars():
            if variable.persistable:
                self.teacher_persistables[variable.name] = variable
            if variable.name not in block.vars:
                copy = variable.copy_to(block)
                copy.stop_gradient = True
                if isinstance(copy, Parameter):
                    copy.trainable = False
        for op in graph.program.global_block().ops:
            block.ops.append(op.copy_to(block))
        self.program.changed()

    def get_optimize_graph(
        self, optimizer: Any, place: Any, scope: Scope, no_grad_var_names: Sequence[str] = ()
    ) -> GraphWrapper:
        """A copy that is trained by ``optimizer``; what the optimizer keeps is initialized in the scope."""
        from paddle.fluid.executor import Executor
        from paddle.fluid.optimizer import Optimizer

        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"the graph is trained by an optimizer, not by a {type(optimizer).__name__}")
        graph, startup = self.clone(), Program()
        with program_guard(graph.program, startup), scope_guard(scope):
            loss = graph.program.global_block().var(graph._loss())
            optimizer.minimize(loss, no_grad_set=set(no_grad_var_names) | set(self.teacher_persistables))
            Executor(place).run(startup)
        return graph

    # Files

    def save_model(self, path: str, exe: Any) -> None:
        """Saves the program and everything that is persistable."""
        self.save_persistables(path, exe)
        with open(f"{path}/__model__", "wb") as file:
            file.write(self.program.desc.serialize_to_string())

    def save_infer_model(
        self, path: str, exe: Any, in_out: tuple[Sequence[str], Sequence[str]], program_only: bool = False
    ) -> None:
        """Saves an inference model; ``in_out`` holds the names of its inputs and of its outputs."""
        inputs, outputs = in_out
        targets = [self.program.global_block().var(name) for name in outputs]
        io.save_inference_model(
            path, list(inputs), targets, exe.exe, self.program, "__model__", "__params__", program_only=program_only
        )

    def save_persistables(self, path: str, exe: Any) -> None:
        """Saves everything that is persistable, but for what belongs to teachers."""
        own = [v for v in self.program.list_vars() if io.is_persistable(v) and v.name not in self.teacher_persistables]
        io.save_vars(exe.exe, path, self.program, vars=own)

    def load_persistables(self, path: str, exe: Any) -> None:
        """Loads what `save_persistables` saved, as far as the files are there; shapes follow the files."""
        for variable in self.program.list_vars():
            file = os.path.join(path, variable.name)
            if variable.persistable and os.path.exists(file):
                with open(file, "rb") as stream:
                    tensor = read_lod_tensor(stream)
                global_scope().var(variable.name).value = tensor
                variable.shape = tuple(tensor.shape())

    # Shapes

    def update_param_shape(self, scope: Scope) -> None:
        """Gives parameters the shapes that they have in the scope."""
        for parameter in self.all_parameters():
            held = scope.find_var(parameter.name())
            if held is not None and held.value is not None:
                parameter.set_shape(held.get_tensor().shape())

    def infer_shape(self) -> None:
        """Infers the shapes of results again, from those of parameters."""
        for op in self.program.global_block().ops:
            if not op.role & OpRole.Optimize and op.type not in ("feed", "fetch"):
                op.infer()

    def update_groups_of_conv(self) -> None:
        """Gives depthwise convolutions as many groups as they have filters."""
        for op in self.program.global_block().ops:
            if op.type in ("depthwise_conv2d", "depthwise_conv2d_grad"):
                op.set_attr("groups", self.program.global_block().var(op.input("Filter")[0]).shape[0])


def _named(nodes: Any) -> OrderedDict[str, str]:
    pairs = nodes.items() if isinstance(nodes, Mapping) else nodes or ()
    return OrderedDict((name, getattr(variable, "name", variable)) for name, variable in pairs)
