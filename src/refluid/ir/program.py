"""Programs: blocks as data. Building one touches no arrays; the executor runs it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from refluid.ir.block import Block
from refluid.ir.roles import OP_NAMESCOPE, OP_ROLE, OP_ROLE_VAR, OpRole
from refluid.ir.variable import Parameter, Variable, name_of

if TYPE_CHECKING:
    from refluid.ir.desc import ProgramView

_uids = itertools.count()


class Program:
    """A program: block 0 is the main block; the others belong to control-flow operators."""

    def __init__(self):
        self.blocks: list[Block] = [Block(self, 0)]
        self.current_block_idx = 0
        self.uid = next(_uids)
        self._version = 0
        self._seed = 0
        self._op_role: int = OpRole.Forward
        self._op_role_var: list[str] = []
        self._is_distributed = False
        self._is_chief = False
        self._trainers_endpoints: list[str] = []  # of a collective job: where its processes are ...
        self._trainer_id = 0  # ... and which of them this is
        self._parameters_on_pservers: Any = None
        self._is_test = False
        self.target: Any = None  # the devices that run it, if not the executor's (refluid.meshes); never copied
        self.partitions: dict[str, tuple[Any, ...]] = {}  # how devices share out state (refluid.sharding)
        self.lowered: Any = None  # what the lowering keeps of this program (refluid.lowering.lowered); never copied

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "target": None, "lowered": None}

    # Identity: what compiled code depends on

    def changed(self) -> None:
        """Increments the version; called by every modification, because compiled steps belong to one version."""
        self._version += 1

    @property
    def version(self) -> int:
        return self._version

    @property
    def random_seed(self) -> int:
        """The random seed; 0 draws new random numbers in every run."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int):
            raise ValueError(f"random_seed must be an integer, not {seed!r}")
        if seed != self._seed:
            self._seed = seed
            self.changed()

    # Blocks

    def global_block(self) -> Block:
        return self.blocks[0]

    def block(self, index: int) -> Block:
        return self.blocks[index]

    def current_block(self) -> Block:
        return self.blocks[self.current_block_idx]

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    def _create_block(self, parent_idx: int | None = None) -> Block:
        parent = self.current_block_idx if parent_idx is None else parent_idx
        self.blocks.append(Block(self, len(self.blocks), parent))
        self.current_block_idx = len(self.blocks) - 1
        self.changed()
        return self.current_block()

    def _rollback(self) -> None:
        self.current_block_idx = self.current_block().parent_idx

    def list_vars(self) -> Iterator[Variable]:
        """Yields every variable of every block."""
        for block in self.blocks:
            yield from block.vars.values()

    def all_parameters(self) -> list[Parameter]:
        return [p for block in self.blocks for p in block.all_parameters()]

    # Roles: attributes that newly appended ops receive

    def current_op_attrs(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {OP_ROLE: int(self._op_role)}
        if self._op_role_var:
            attrs[OP_ROLE_VAR] = list(self._op_role_var)
        scope = _name_scope.full_name()
        if scope != "/":
            attrs[OP_NAMESCOPE] = scope
        return attrs

    @property
    def op_role(self) -> int:
        return self._op_role

    @op_role.setter
    def op_role(self, role: int) -> None:
        self._op_role = role

    _current_role = op_role

    @property
    def op_role_var(self) -> list[str]:
        return self._op_role_var

    @op_role_var.setter
    def op_role_var(self, names: Sequence[str]) -> None:
        self._op_role_var = list(names)

    def set_op_role_var(self, name: str) -> None:
        self._op_role_var = [name]

    @contextmanager
    def _role_guard(self, role: int, names: Sequence[Any] = ()) -> Iterator[None]:
        before = self._op_role, self._op_role_var
        self._op_role, self._op_role_var = role, [name_of(v) for v in names if v is not None]
        try:
            yield
        finally:
            self._op_role, self._op_role_var = before

    def _optimized_guard(self, param_and_grads: Sequence[Any]):
        """Marks ops appended inside as optimizer ops that update these variables."""
        return self._role_guard(OpRole.Optimize, param_and_grads)

    optimized_guard = _optimized_guard

    def _backward_role_guard(self):
        """Marks ops appended inside as backward ops."""
        return self._role_guard(OpRole.Backward)

    def _lr_schedule_guard(self, is_with_opt: bool = False):
        """Marks ops appended inside as learning rate ops."""
        return self._role_guard(OpRole.LRSched | OpRole.Optimize if is_with_opt else OpRole.LRSched)

    # Copies

    def clone(self, for_test: bool = False) -> Program:
        """Returns a copy; ``for_test`` drops backward and optimizer ops and sets is_test on ops that have it."""
        copy = self._copy()
        if for_test:
            from refluid.ir.prune import drop_training_ops, set_test_mode

            drop_training_ops(copy)
            set_test_mode(copy)
        return copy

    def _copy(self) -> Program:
        copy = Program()
        copy.blocks = [Block(copy, block.idx, block.parent_idx) for block in self.blocks]
        for source, target in zip(self.blocks, copy.blocks, strict=True):
            target.forward_block_idx = source.forward_block_idx
            for variable in source.vars.values():
                variable.copy_to(target)
            target.ops = [op.copy_to(target) for op in source.ops]
        for block in copy.blocks:
            for op in block.ops:
                op.attrs = {name: _rebind(value, copy) for name, value in op.attrs.items()}
                for name in op.output_arg_names:
                    variable = block.find_var_recursive(name)
                    if variable is not None:
                        variable.op = op
        copy.current_block_idx = self.current_block_idx
        for field in ("_seed", "_op_role", "_is_distributed", "_is_chief", "_parameters_on_pservers", "_is_test"):
            setattr(copy, field, getattr(self, field))
        copy.partitions = dict(self.partitions)
        copy._op_role_var = list(self._op_role_var)
        copy._trainers_endpoints, copy._trainer_id = list(self._trainers_endpoints), self._trainer_id
        copy.changed()
        return copy

    def become(self, other: Program) -> None:
        """Replaces the contents of this program by another's; references to it and its variables stay valid."""
        blocks = [Block(self, block.idx, block.parent_idx) for block in other.blocks]
        self.blocks = [*self.blocks, *blocks[len(self.blocks) :]][: len(blocks)]
        for source, target in zip(other.blocks, self.blocks, strict=True):
            known, target.vars = target.vars, {}
            for variable in source.vars.values():
                if variable.name in known:
                    target.vars[variable.name] = known[variable.name]
                else:
                    variable.copy_to(target)
            target.ops = [op.copy_to(target) for op in source.ops]
        for op in (op for block in self.blocks for op in block.ops):
            op.attrs = {name: _rebind(value, self) for name, value in op.attrs.items()}
        self._is_distributed, self._parameters_on_pservers = other._is_distributed, other._parameters_on_pservers
        self.changed()

    def _prune(self, targets: Sequence[Any] | Any) -> Program:
        """Returns a copy with only the ops that the targets need."""
        from refluid.ir.prune import prune

        return prune(self, targets)

    def _prune_with_input(self, feeded_var_names: Sequence[str], targets: Sequence[Any]) -> Program:
        from refluid.ir.prune import prune

        return prune(self, targets, feeded_var_names)

    def _inference_optimize(self, prune_read_op: bool = True) -> Program:
        """Returns a copy for inference: sets is_test and removes readers."""
        from refluid.ir.prune import drop_readers, set_test_mode

        copy = self._copy()
        set_test_mode(copy)
        if prune_read_op:
            drop_readers(copy)
        return copy

    def _copy_param_info_from(self, other: Program) -> None:
        """Turns variables that are parameters in ``other`` into parameters here."""
        mine = self.global_block()
        for parameter in other.global_block().all_parameters():
            if parameter.name in mine.vars:
                copy = parameter.copy_to(mine)
                copy.op = None
        self.changed()

    def _copy_data_info_from(self, other: Program) -> None:
        mine = self.global_block().vars
        for variable in other.global_block().vars.values():
            if variable.name in mine:
                mine[variable.name].is_data = variable.is_data
                mine[variable.name].need_check_feed = variable.need_check_feed

    # Serialized and text forms

    @property
    def desc(self) -> ProgramView:
        from refluid.ir.desc import ProgramView

        return ProgramView(self)

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """Parses a ProgramDesc message."""
        from refluid.ir.protobuf import program_from_bytes

        return program_from_bytes(binary_str)

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Returns readable text, or with ``throw_on_error`` the text of the ProgramDesc message, as Fluid does."""
        from refluid.ir.text import message_text, program_text

        return message_text(self, with_details) if throw_on_error else program_text(self, with_details)

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from refluid.ir.html import program_html

        return program_html(self)


def _rebind(value: Any, program: Program) -> Any:
    if isinstance(value, Block):
        return program.block(value.idx)
    if isinstance(value, list):
        return [_rebind(item, program) for item in value]
    return value


class _NameScope:
    """A hierarchy of names attached to ops, for drawing graphs."""

    def __init__(self):
        self._path: list[str] = []
        self._counts: dict[str, int] = {}

    def full_name(self) -> str:
        return "/" + "".join(part + "/" for part in self._path)

    def enter(self, prefix: str) -> None:
        parent = self.full_name()
        count = self._counts.get(parent + prefix, 0)
        self._counts[parent + prefix] = count + 1
        self._path.append(prefix if count == 0 else f"{prefix}_{count}")

    def leave(self) -> None:
        self._path.pop()


_name_scope = _NameScope()
_main_program = Program()
_startup_program = Program()


@contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Adds ``prefix`` to the name scope of ops appended inside."""
    if not prefix:
        raise ValueError("name_scope requires a prefix")
    _name_scope.enter(prefix)
    try:
        yield
    finally:
        _name_scope.leave()


def default_main_program() -> Program:
    """Returns the program that layers append to."""
    return _main_program


def default_startup_program() -> Program:
    """Returns the program that initializers append to."""
    return _startup_program


def switch_main_program(program: Program) -> Program:
    """Makes ``program`` the default main program and returns the previous one."""
    global _main_program
    before, _main_program = _main_program, program
    return before


def switch_startup_program(program: Program) -> Program:
    """Makes ``program`` the default startup program and returns the previous one."""
    global _startup_program
    before, _startup_program = _startup_program, program
    return before


@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Makes layers inside append to ``main_program`` and initializers to ``startup_program``."""
    for role, program in (("main", main_program), ("startup", startup_program)):
        if not (isinstance(program, Program) or (role == "startup" and program is None)):
            raise TypeError(f"the {role} program of program_guard must be a Program, not {type(program).__name__}")
    main = switch_main_program(main_program)
    startup = switch_startup_program(startup_program) if startup_program is not None else None
    try:
        yield
    finally:
        switch_main_program(main)
        if startup is not None:
            switch_startup_program(startup)
