"""Which slice of which variable lives on which server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from refluid.ir import Program, VarType
from refluid.transpiler.placement import Placement

__all__ = ["VarDistributed", "VarStruct", "VarsDistributed"]


class VarStruct(NamedTuple):
    """What is known of a variable without its program."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    type: Any
    lod_level: int
    persistable: bool


class VarDistributed:
    """A slice of a variable, and the server that holds it.

    Fields: ``origin`` and ``slice`` describe the variable and its slice; ``block_id`` counts the slices of a variable;
    ``offset`` is where the slice begins, in elements; ``vtype`` says what it is for: Param.
    """

    def __init__(self, origin_var, slice_var, is_slice=None, block_id=None, offset=None, vtype=None, endpoint=None):
        self.origin, self.slice = _struct(origin_var), _struct(slice_var)
        self.is_slice = self.origin.shape != self.slice.shape if is_slice is None else is_slice
        self.block_id = 0 if block_id is None else block_id
        self.offset = 0 if offset is None else offset
        self.vtype, self.endpoint = vtype, endpoint

    @staticmethod
    def equal(var1: Any, var2: Any) -> bool:
        """Whether two variables are described alike."""
        return _struct(var1) == _struct(var2)

    def __str__(self) -> str:
        origin, part = (
            f"{v.name} : fluid.{v.type}.shape{v.shape}.astype({v.dtype})" for v in (self.origin, self.slice)
        )
        return (
            f"var owned: {self.vtype}, origin var: ( {origin} ), slice var: ( {part}.slice({self.is_slice})"
            f".block({self.block_id}).offset({self.offset}) ), endpoint: {self.endpoint} "
        )


class VarsDistributed:
    """All slices of a job."""

    def __init__(self):
        self.distributed_vars: list[VarDistributed] = []

    @classmethod
    def of(cls, placement: Placement, program: Program) -> VarsDistributed:
        """The slices of all parameters of a program that was transpiled."""
        overview = cls()
        for placed in placement.params:
            whole = _struct(program.global_block().var(placed.param))
            for number, part in enumerate(placed.slices):
                described = whole._replace(name=part.name, shape=part.shape)
                row = 1
                for dim in whole.shape[1:]:
                    row *= dim
                overview.add_distributed_var(
                    whole, described, described.name != whole.name, number, part.start * row, "Param", part.endpoint
                )
        return overview

    def add_distributed_var(
        self, origin_var, slice_var, is_slice=None, block_id=None, offset=None, vtype=None, endpoint=None
    ) -> None:
        """Adds a slice."""
        self.distributed_vars.append(VarDistributed(origin_var, slice_var, is_slice, block_id, offset, vtype, endpoint))

    def get_distributed_var_by_slice(self, var_name: str) -> VarDistributed | None:
        """Returns the slice of that name, or None."""
        return next((v for v in self.distributed_vars if v.slice.name == var_name), None)

    def get_distributed_var_by_origin_and_ep(self, origin_var_name: str, endpoint: str) -> VarDistributed | None:
        """Returns a slice of a variable that a server holds, or None."""
        found = (v for v in self.get_distributed_vars_by_ep(endpoint) if v.origin.name == origin_var_name)
        return next(found, None)

    def get_distributed_vars_by_ep(self, endpoint: str, vtype: str | None = None) -> list[VarDistributed]:
        """Returns the slices that a server holds."""
        return [v for v in self.distributed_vars if v.endpoint == endpoint and vtype in (None, v.vtype)]

    def get_distributed_vars_by_vtypes(self, vtypes: Sequence[str], groupby: bool = False) -> Any:
        """Returns the slices for these purposes; with ``groupby``, as a dict of the names of whole variables."""
        found = [v for v in self.distributed_vars if v.vtype in vtypes]
        if not groupby:
            return found
        return {name: [v for v in found if v.origin.name == name] for name in {v.origin.name: None for v in found}}

    def overview(self) -> str:
        """Returns a line for each slice."""
        return "\n".join(map(str, self.distributed_vars))


def _struct(variable: Any) -> VarStruct:
    if isinstance(variable, VarStruct):
        return variable
    kind = getattr(variable, "type", VarType.LOD_TENSOR)
    return VarStruct(
        variable.name, tuple(variable.shape), variable.dtype, kind, variable.lod_level, variable.persistable
    )
