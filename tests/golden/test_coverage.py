"""No op without a golden case, and no gradient without one that asks for it."""

from __future__ import annotations

import importlib
from collections import defaultdict
from pathlib import Path

import jax

import refluid.ops  # noqa: F401 - registers every op
from golden.case import Case, Lod
from golden.test_parity import FAMILIES, recording
from refluid.ops.core import registry

# Ops that real Fluid cannot answer for, and the test that does.
TESTED_ELSEWHERE = {
    "cudnn_lstm": "tests/ops/sequence/test_recurrence.py",  # real Fluid has it on GPUs only
    "dgc": "tests/ops/optimizer/test_optimizer_rules.py",  # real Fluid has it on GPUs only
    "load": "tests/ops/host/test_files.py",  # files, not values
    "load_combine": "tests/ops/host/test_files.py",
    "merge_lod_tensor_infer": "tests/ops/control/test_row_split.py",  # in inference programs only
    "recompute_barrier": "tests/ir/test_backward.py",  # refluid's own
    "save": "tests/ops/host/test_files.py",
    "save_combine": "tests/ops/host/test_files.py",
    "shuffle_batch": "tests/ops/tensor/test_random.py",  # its gradient: the order is random
    "sync_batch_norm": "tests/ops/nn/test_norm.py",  # real Fluid has it on GPUs only
    # Part of an exchange with other processes.
    "checkpoint_notify": "tests/transpiler/test_ops.py",
    "distributed_lookup_table": "tests/transpiler/test_ops.py",
    "fake_init": "tests/transpiler/test_ops.py",
    "fetch_barrier": "tests/transpiler/test_ops.py",
    "listen_and_serv": "tests/transpiler/test_ops.py",
    "recv": "tests/transpiler/test_ops.py",
    "ref_by_trainer_id": "tests/transpiler/test_ops.py",
    "send": "tests/transpiler/test_ops.py",
    "send_barrier": "tests/transpiler/test_ops.py",
    "server_sum": "tests/transpiler/test_ops.py",
    "split_byref": "tests/transpiler/test_ops.py",
    "split_selected_rows": "tests/transpiler/test_ops.py",
}


# Ops on sequences, and on what way of cutting them real Fluid does not answer, or not rightly, with the reason.
_ONE_LEVEL = {"nested": "real Fluid refuses a second level"}
# Of 8 rows cut into [[2, 1], [3, 1, 4]] these see sequences of rows 0-1 and of row 2; other rows 3-7 change nothing.
_OUTER_FOR_ROWS = {"nested": "real Fluid takes outer offsets for rows"}
_BEAMS = {"empty": "the first level always has a sentence", "long": "a step of a search holds single words"}
ON_SEQUENCES = {
    "array_to_lod_tensor": {},
    "beam_search": _BEAMS,
    "beam_search_decode": _BEAMS,
    "chunk_eval": _ONE_LEVEL,
    "conditional_block": {},
    "crf_decoding": _ONE_LEVEL,
    "ctc_align": {},
    "edit_distance": _OUTER_FOR_ROWS,
    "gru": _ONE_LEVEL,
    "gru_unit": {},
    "linear_chain_crf": _OUTER_FOR_ROWS,
    "lod_rank_table": {},
    "lod_reset": {},
    "lod_tensor_to_array": {},
    "lstm": _ONE_LEVEL,
    "lstm_unit": {},
    "lstmp": _ONE_LEVEL,
    "max_sequence_len": {},
    "merge_lod_tensor": {"empty": "real Fluid loses the rows after an empty sequence"},
    "read_from_array": {},
    "recurrent": {},
    "reorder_lod_tensor_by_rank": {},
    "row_conv": {"empty": "real Fluid fails", **_OUTER_FOR_ROWS},
    "sequence_concat": _OUTER_FOR_ROWS,
    "sequence_conv": _ONE_LEVEL,
    "sequence_enumerate": _ONE_LEVEL,
    "sequence_erase": {},
    "sequence_expand": {},
    "sequence_expand_as": _ONE_LEVEL,
    "sequence_pad": _ONE_LEVEL,
    "sequence_pool": {},
    "sequence_reshape": _ONE_LEVEL,
    "sequence_reverse": _ONE_LEVEL,
    "sequence_scatter": _ONE_LEVEL,
    "sequence_slice": _ONE_LEVEL,
    "sequence_softmax": {},
    "shrink_rnn_memory": {},
    "split_lod_tensor": {"empty": "real Fluid loses the rows after an empty sequence"},
    "tensor_array_to_tensor": {},
    "warpctc": {
        "empty": "real Fluid writes beyond its memory",
        "nested": "real Fluid weights the gradients of outer sequences wrongly",
    },
    "while": {},
    "write_to_array": {},
}


def recorded_ops() -> tuple[set[str], set[str]]:
    """Op types with a case, and those of them with a case that compares gradients."""
    covered, differentiated = set(), set()
    for family in FAMILIES:
        module = importlib.import_module(f"golden.cases.{family}")
        for case in module.CASES:
            if isinstance(case, Case):
                covered.add(case.op)
                if case.grads:
                    differentiated.add(case.op)
            else:
                types = {str(op) for op in recording(family, case.name).get("ops", ())}
                covered |= types
                if case.grads:
                    differentiated |= types
    return covered, differentiated


def test_every_op_has_a_golden_case():
    covered, _ = recorded_ops()
    types = [t for t in registry.all_types() if not _is_gradient(t)]
    missing = sorted(set(types) - covered - set(TESTED_ELSEWHERE))
    assert not missing, f"ops without a golden case: {', '.join(missing)}"


def test_every_gradient_has_a_golden_case():
    _, differentiated = recorded_ops()
    types = [t for t in registry.all_types() if not _is_gradient(t) and registry.gradient_of(registry.lookup(t))]
    missing = sorted(set(types) - differentiated - set(TESTED_ELSEWHERE))
    assert not missing, f"gradients without a golden case: {', '.join(missing)}"


def test_ops_on_sequences_have_a_case_for_every_way_of_cutting_rows():
    recorded = ways_recorded()
    for type, exceptions in ON_SEQUENCES.items():
        differentiable = registry.gradient_of(registry.lookup(type)) is not None
        missing = {"empty", "one", "long", "nested"} - recorded[type, differentiable]
        assert missing == set(exceptions), f"{type}: {sorted(missing)} not recorded, {sorted(exceptions)} excused"


def ways_recorded() -> dict[tuple[str, bool], set[str]]:
    """For each op, and whether with gradients: on what kinds of sequences it was recorded."""
    found: dict[tuple[str, bool], set[str]] = defaultdict(set)
    for family in FAMILIES:
        for case in importlib.import_module(f"golden.cases.{family}").CASES:
            is_op = isinstance(case, Case)
            feeds = case.inputs if is_op else case.feeds
            ways = {way for value in jax.tree.leaves(feeds) if isinstance(value, Lod) for way in ways_of(value)}
            types = [case.op] if is_op else [str(type) for type in recording(family, case.name).get("ops", ())]
            for type in types if ways else ():
                found[type, False] |= ways
                if case.grads:
                    found[type, True] |= ways
    return found


def ways_of(value: Lod) -> set[str]:
    last = value.lengths[-1]
    holds = {"empty": 0 in last, "one": 1 in last, "long": max(last) >= 20, "nested": len(value.lengths) > 1}
    return {way for way, is_so in holds.items() if is_so}


def test_exemptions_are_real():
    for type, where in TESTED_ELSEWHERE.items():
        assert registry.is_known(type)
        assert (Path(__file__).parents[2] / where).exists()


def _is_gradient(type: str) -> bool:
    return type.endswith("_grad") and registry.is_known(type.removesuffix("_grad"))
