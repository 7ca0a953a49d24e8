"""Ops of parameter-server programs.

Most have no rule of their own: neighbouring ones form one exchange with other processes, which the runtime plans and
runs as a whole. The computations of trainers and servers use ops of the other families.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from refluid.ops.core import noise
from refluid.ops.core.dtypes import numpy_dtype
from refluid.ops.core.growing import ROW_INITIALIZERS
from refluid.ops.core.infer import described_elsewhere
from refluid.ops.core.registry import OpDef, Slot, add, op


def _runs_inside_an_exchange(type: str) -> Callable[..., Any]:
    def rule(*values: Any, **attrs: Any) -> Any:
        raise RuntimeError(
            f"{type} is not run by itself: it runs inside an exchange between the processes of a job, "
            "in a program that DistributeTranspiler has made"
        )

    return rule


def _exchanged(type: str, inputs: str = "", outputs: str = "", **attrs: Any) -> None:
    """Registers an op that is part of an exchange; ``attrs`` are its own attributes with their defaults."""
    add(
        OpDef(
            type=type,
            rule=_runs_inside_an_exchange(type),
            inputs=tuple(map(Slot.parse, inputs.split())),
            outputs=tuple(map(Slot.parse, outputs.split())),
            attrs={**attrs, "trainer_id": 0, "trainers": 1, "endpoints": (), "distributed_mode": 0},
            has_grad=False,
            infer=described_elsewhere,
            host=True,
            lod=None,
        )
    )


# On trainers. Each moves one variable, in one slice per name.
_exchanged(
    "distributed_lookup_table",
    "Ids* W?",
    "Outputs*",
    table_name="",
    table_names=(),
    epmap=(),
    height_sections=(),
    padding_idx=-1,
    dtype=5,
    emb_dim=0,
    lookup_version=1,
    grows=False,
)
_exchanged("split_byref", "X", "Out*", sections=(), num=0)
_exchanged("split_selected_rows", "X", "Out*", height_sections=())
_exchanged("send", "X*", "Out*", epmap=(), send_varnames=(), sections=(), is_sparse=False, offer=False, initial=False)
_exchanged("send_barrier", "X*?", "Out*", half_async=False, initial=False)
_exchanged("recv", "X*?", "Out*", epmap=(), recv_varnames=(), sections=(), initial=False)
_exchanged("fetch_barrier", "X*?", "Out*", initial=False)
_exchanged("fake_init", "", "Out", shape=(), initial=False)
_exchanged("checkpoint_notify", epmap=(), dir="", lookup_table="")

# On servers.
_exchanged(
    "listen_and_serv",
    "X*?",
    "",
    endpoint="",
    pserver_id=0,
    Fanin=1,
    optimize_blocks=(),
    lr_decay_block_id=-1,
    grad_to_block_id=(),
    sparse_grad_to_param=(),
    dc_asgd=False,
    slices=(),
    table_options=(),
)
_exchanged("server_sum", "X", "Out", key="")


@op("ref_by_trainer_id", inputs="X* TrainerId", outputs="Out", grad=None)
def ref_by_trainer_id(xs, trainer_id):
    """The x of that trainer."""
    return jax.lax.switch(trainer_id.reshape(()), [lambda x=x: x for x in xs])


@op("begin_rows", inputs="", outputs="Out", grad=None, random=True, lod=None, infer=described_elsewhere)
def begin_rows(*, initializer="fill_constant", first=0.0, second=0.0, dtype=5, drawn_for="", key):
    """How rows of a table that grows begin, as numbers: the initialiser, its two arguments, whether it draws float64,
    and the words of two random keys. ``drawn_for`` names the whole table, so that all servers draw alike."""
    kind, double = list(ROW_INITIALIZERS).index(initializer), numpy_dtype(dtype) == np.float64
    words = [*noise.words(key), *noise.words(noise.fold_in(key, 1))]
    return jnp.stack([jnp.asarray(number, jnp.float64) for number in (kind, first, second, double, *words)])
