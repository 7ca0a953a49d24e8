"""The operators by which trainers communicate with servers. Neighbouring ones form one exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from refluid.ir import OP_ROLE, OP_ROLE_VAR, Block, OpRole, VarType
from refluid.ir.modes import Mode
from refluid.transpiler.placement import Placed, Placement


@dataclass(frozen=True)
class Exchange:
    """Appends the operators of one trainer's exchanges.

    With ``runtime_split``, operators name whole variables and the runtime cuts and joins them.
    """

    placement: Placement
    trainer_id: int
    runtime_split: bool = False
    in_background: bool = False  # made for a communicator: trainers may go on while gradients are on their way

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of every operator of an exchange."""
        return {
            "trainer_id": self.trainer_id,
            "trainers": self.placement.trainers,
            "endpoints": list(self.placement.endpoints),
            "distributed_mode": int(self.placement.mode),
            **({"in_background": True} if self.in_background else {}),
        }

    def push(self, block: Block, sources: Mapping[str, str], linear: Set[str]) -> None:
        """Sends gradients.

        Args:
          sources: maps each parameter to the variable that holds its gradient.
          linear: the parameters whose update is linear in the gradient: that of a sum is the sum of the updates.
        """
        for placed in self.placement.params:
            marks = {"merge_add": placed.param in linear}
            self._send(block, placed, sources[placed.param], placed.grad_names, placed.sparse, **marks)
        if self.placement.mode in (Mode.SYNC, Mode.HALF_ASYNC):
            self._append(block, "send_barrier", attrs={"half_async": self.placement.mode is Mode.HALF_ASYNC})

    def offer(self, block: Block) -> None:
        """Sends the values of all parameters, for servers that have none yet; rows of tables that grow begin there."""
        for placed in (*self.placement.params, *self.placement.kept):
            if placed.grows:
                continue
            marks = {"kept": True} if placed in self.placement.kept else {}
            self._send(block, placed, placed.param, placed.names, sparse=False, offer=True, initial=True, **marks)

    def begin(self, block: Block) -> None:
        """Receives the parameters, and the other variables that all trainers must start with."""
        for kept in self.placement.kept:
            self._receive(block, kept, [kept.param], initial=True, kept=True)
        self.pull(block, initial=True)

    def pull(self, block: Block, **marks: bool) -> None:
        """Receives the parameters that trainers hold."""
        held = [placed for placed in self.placement.params if not placed.remote]
        whole = [placed for placed in held if len(placed.slices) == 1 or self.runtime_split]
        for placed in held:
            names = [placed.param] if placed in whole else placed.names
            self._declare(block, placed, names, placed.param, sparse=False)
            self._receive(block, placed, names, **marks)
        if marks or self.placement.mode is Mode.SYNC:
            self._append(block, "fetch_barrier", attrs=marks)
        for placed in held:
            if placed not in whole:
                self._append(
                    block, "concat", {"X": placed.names}, {"Out": [placed.param]}, {"axis": 0, **marks}, OpRole.Dist
                )

    def _receive(self, block: Block, placed: Placed, names: Sequence[str], **marks: bool) -> None:
        attrs = {**_where(placed, "recv_varnames", placed.names), **marks}
        self._append(block, "recv", outputs={"Out": names}, attrs=attrs)

    def _send(
        self, block: Block, placed: Placed, source: str, names: Sequence[str], sparse: bool, **marks: bool | str
    ) -> None:
        parts = [source]
        if len(placed.slices) > 1 and not self.runtime_split:
            parts = list(names)
            self._declare(block, placed, parts, source, sparse)
            sections = {"height_sections": placed.sections} if sparse else {"sections": placed.sections}
            splitting = "split_selected_rows" if sparse else "split_byref"
            self._append(block, splitting, {"X": [source]}, {"Out": parts}, {**sections, **marks}, role=OpRole.Dist)
        if sparse and placed.options.wire != "native":
            marks = {**marks, "wire": placed.options.wire}
        self._append(block, "send", {"X": parts}, attrs={**_where(placed, "send_varnames", names), **marks})

    def _declare(self, block: Block, placed: Placed, names: Sequence[str], whole: str, sparse: bool) -> None:
        """Declares variables for slices of ``whole``."""
        dtype = block.var(whole).dtype
        for name, part in zip(names, placed.slices, strict=False):
            if name not in block.vars:
                kind = VarType.SELECTED_ROWS if sparse else VarType.LOD_TENSOR
                block.create_var(name=name, shape=part.shape, dtype=dtype, type=kind)

    def _append(
        self,
        block: Block,
        type: str,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        role: OpRole = OpRole.RPC,
    ) -> None:
        attrs = {**(attrs or {}), **self.attrs, OP_ROLE: int(role)}
        block.append_op(type=type, inputs=inputs, outputs=outputs, attrs=attrs)


def _where(placed: Placed, field: str, names: Sequence[str]) -> dict[str, Any]:
    """The servers of all slices, their names there as attribute ``field``, and what they are slices of."""
    attrs = {"epmap": placed.endpoints, field: list(names), "sections": placed.sections}
    if placed.grows:
        attrs["grows"] = True
    return {**attrs, OP_ROLE_VAR: [placed.param, placed.grad]} if placed.grad else attrs
