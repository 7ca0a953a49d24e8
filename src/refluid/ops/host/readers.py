"""Ops that make or wrap the readers of a program.

They have no rule: the executor runs them before a step, so that a step with readers is still one compiled function.
What object each makes is registered in `refluid.readers.making`.
"""

from __future__ import annotations

from typing import Any

from refluid.ops.core.infer import described_elsewhere
from refluid.ops.core.registry import OpDef, Slot, add


def makes_reader(type: str, inputs: str = "", **attrs: Any) -> None:
    """Registers an op that puts a reader into the variable in its slot ``Out``."""

    def rule(*values: Any, **attrs: Any) -> Any:
        raise RuntimeError(f"{type} makes a reader: Executor.run runs it, in the global block of a program")

    add(
        OpDef(
            type=type,
            rule=rule,
            inputs=tuple(map(Slot.parse, inputs.split())),
            outputs=(Slot("Out"),),
            attrs=attrs,
            has_grad=False,
            infer=described_elsewhere,
            host=True,
            lod=None,
            makes_reader=True,
        )
    )


makes_reader(
    "create_py_reader",
    "blocking_queue",
    shape_concat=(),
    lod_levels=(),
    dtypes=(),
    need_check_feed=(),
    ranks=(),
    use_data_config=True,
    device_index=0,
    device_count=1,
)
makes_reader("create_double_buffer_reader", "UnderlyingReader", place="AUTO")
