"""pyramid_hash: embeddings of all short pieces of a sequence, put together of parts of one vector by hashing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from refluid.ops.core.infer import Described, ShapeDtype
from refluid.ops.core.registry import op
from refluid.ops.core.values import Ragged
from refluid.ops.sequence.packing import offsets_of, require_single_level
from refluid.ops.tensor.hashing import xxhash32


def _infer_pieces(inputs: Described, attrs: dict[str, Any]) -> Described:
    return {"Out": [ShapeDtype((-1, attrs["num_emb"]), inputs["W"][0].dtype, lod_level=1)]}


@op(
    "pyramid_hash",
    inputs="X W WhiteList? BlackList?",
    outputs="Out DropPos? X_Temp_Out?",
    grad=None,  # real Fluid's layer stops it as well
    random=True,
    lod="aware",
    infer=_infer_pieces,
    finds_rows=True,
)
def pyramid_hash(
    x,
    w,
    white_list=None,
    black_list=None,
    *,
    key,
    num_emb,
    space_len,
    rand_len,
    pyramid_layer=2,
    drop_out_percent=0.0,
    is_training=0,
    use_filter=True,
    white_list_len=0,
    black_list_len=0,
):
    """A row for each piece of 2, then 3, ... up to ``pyramid_layer`` ids of a sequence; zeros for one without pieces.

    While training, pieces are dropped at random; otherwise, as in real Fluid, all rows are multiplied by
    ``drop_out_percent``.
    """
    if use_filter:
        raise ValueError("use_filter is not supported: lists of wanted and unwanted pieces are Bloom filters of Fluid")
    x = require_single_level(x, "X")
    words = jax.lax.bitcast_convert_type(x.data.reshape(-1).astype(jnp.float32), jnp.uint32)
    owners, positions = x.owners(), x.positions()
    room = x.lengths[jnp.minimum(owners, max(x.sequences - 1, 0))] - positions  # ids from here to the end
    layers = []
    for size in range(2, pyramid_layer + 1):
        piece = [jnp.roll(words, -i) for i in range(size)]
        rows = _embedding(piece, w.reshape(-1), num_emb, space_len, rand_len)
        layers.append((rows, x.real() & (room >= size)))
    rows = jnp.stack([rows for rows, _ in layers])  # [layer, row, num_emb]
    kept = jnp.stack([fits for _, fits in layers])
    if is_training:
        kept &= jax.random.uniform(key, kept.shape) >= drop_out_percent
    else:
        rows = rows * jnp.asarray(drop_out_percent, rows.dtype)
    return _packed(x, rows, kept, owners), None, None


def _embedding(piece: list[Any], table: Any, num_emb: int, space_len: int, rand_len: int) -> Any:
    """Parts of ``rand_len`` numbers side by side; a hash of the piece says where each begins in the table."""
    seeds = [0, rand_len, *(start + 2 * rand_len for start in range(0, num_emb, rand_len))]
    digests = [xxhash32(piece, seed) for seed in seeds[: num_emb // rand_len]]
    starts = [(digest % jnp.uint32(space_len)).astype(jnp.int32)[:, None] for digest in digests]
    parts = [table[start + jnp.arange(rand_len, dtype=jnp.int32)] for start in starts]
    return jnp.concatenate(parts, 1)


def _packed(x: Ragged, rows: Any, kept: Any, owners: Any) -> Ragged:
    """The rows that are kept, by sequence, layer and position, and a row of zeros for each sequence without any."""
    layers, count, width = rows.shape
    own = jnp.zeros(x.sequences, jnp.int32).at[jnp.broadcast_to(owners, kept.shape)].add(kept, mode="drop")
    layer, place = (grid.reshape(-1) for grid in jnp.meshgrid(jnp.arange(layers), jnp.arange(count), indexing="ij"))
    last = x.sequences * layers * count
    order = jnp.where(kept.reshape(-1), (owners[place] * layers + layer) * count + place, last)
    of_zeros = jnp.where(own == 0, jnp.arange(x.sequences) * layers * count, last)
    chosen = jnp.argsort(jnp.concatenate([order, of_zeros]), stable=True)
    everything = jnp.concatenate([rows.reshape(-1, width), jnp.zeros((x.sequences, width), rows.dtype)])
    bound = layers * x.longest
    return Ragged(everything[chosen], (*x.offsets[:-1], offsets_of(jnp.maximum(own, 1))), max(bound, 1), x.hidden)
