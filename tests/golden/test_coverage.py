"""No op without a golden case, and no gradient without one that asks for it."""

from __future__ import annotations

import ast
import importlib
import json
from collections import defaultdict
from pathlib import Path

import jax
import pytest

import refluid.ops  # noqa: F401 - registers every op
from golden import forward_ops
from golden.case import Case, Lod
from golden.test_parity import FAMILIES, recording
from refluid.ops.core import registry

ROOT = Path(__file__).parents[2]

# Ops that real Fluid cannot answer for, and the test that runs each of them.
_FILES, _EXCHANGED = "tests/ops/host/test_files.py", "tests/transpiler/test_ops.py"
_READERS = "tests/fluid/test_reader_layers.py::test_an_op_that_makes_a_reader_is_run_once_by_the_executor"
_BACKWARD = "tests/ir/test_backward.py"
_EXCHANGE = f"{_EXCHANGED}::test_an_op_of_an_exchange_does_not_run_by_itself"
_BRIDGES, _FUSED = "tests/bridges", "tests/ops/fused/test_fused.py"
_RETRIEVAL = "tests/ops/retrieval/test_retrieval.py"
_JAX = f"{_BRIDGES}/test_jax_layer.py"
TESTED_ELSEWHERE = {
    # Real Fluid has these on GPUs only.
    "cudnn_lstm": ("tests/ops/sequence/test_recurrence.py::test_cudnn_lstm_reads_its_weights_in_the_order_of_cudnn"),
    "rank_attention": f"{_RETRIEVAL}::test_rank_attention_multiplies_by_the_matrix_of_both_ranks",
    "dgc": "tests/ops/optimizer/test_optimizer_rules.py::test_dgc_keeps_what_it_does_not_pass_on",
    "sync_batch_norm": "tests/ops/nn/test_norm.py::test_sync_batch_norm_is_batch_norm_on_one_device",
    # Files, not values.
    "load": f"{_FILES}::test_a_part_of_a_tensor_or_half_precision_can_be_loaded",
    "load_combine": f"{_FILES}::test_sequences_and_selected_rows_are_saved_and_loaded",
    "save": f"{_FILES}::test_a_program_saves_what_it_computes_and_another_loads_it",
    "save_combine": f"{_FILES}::test_sequences_and_selected_rows_are_saved_and_loaded",
    # In inference programs only; refluid's own; and one whose gradient depends on a random order.
    "conditional_block_infer": f"{_FUSED}::test_a_branch_of_an_inference_program_is_taken_or_not",
    **dict.fromkeys(("delete_var", "get_places"), f"{_FUSED}::test_ops_about_memory_and_devices_change_nothing"),
    "merge_lod_tensor_infer": "tests/ops/control/test_row_split.py::test_inference_merges_rows_as_training_does",
    "jax_call": f"{_JAX}::test_a_function_is_differentiated_by_jax",
    "random_jax_call": f"{_JAX}::test_random_numbers_follow_the_seed_and_are_the_same_in_the_gradient",
    **dict.fromkeys(
        ("optax_clock", "optax_update", "optax_row_update", "optax_joint_update"),
        f"{_BRIDGES}/test_optax_optimizer.py::test_a_transformation_trains_as_in_plain_optax",
    ),
    "recompute_barrier": f"{_BACKWARD}::test_recomputation_gives_the_same_gradients_and_real_recomputation",
    "shuffle_batch": "tests/ops/tensor/test_random.py::test_shuffle_batch_says_where_each_row_came_from",
    # Readers of files, which Fluid 1.6 has dropped.
    **dict.fromkeys(
        "create_batch_reader create_custom_reader create_random_data_generator create_shuffle_reader "
        "open_files".split(),
        "tests/reader/test_open_files.py::test_a_program_that_was_saved_reads_the_same",
    ),
    # Parts of losses whose weights live on servers.
    **dict.fromkeys(
        "nce_labels nce_of_rows path_nodes hierarchical_sigmoid_of_rows".split(),
        "tests/transpiler/test_rows_apart.py::test_a_sync_job_equals_local_training",
    ),
    # Part of an exchange with other processes.
    **dict.fromkeys(
        "checkpoint_notify distributed_lookup_table fake_init fetch_barrier listen_and_serv recv send send_barrier "
        "server_sum split_byref split_selected_rows".split(),
        _EXCHANGE,
    ),
    # refluid's own, on servers.
    "begin_rows": "tests/transpiler/test_growing_tables.py::test_servers_are_told_how_rows_begin",
    # Between replicas, of which real Fluid has several on GPUs only.
    **dict.fromkeys(
        "allreduce broadcast c_allgather c_allreduce_max c_allreduce_min c_allreduce_prod c_allreduce_sum c_broadcast "
        "c_reducescatter c_sync_calc_stream c_sync_comm_stream".split(),
        "tests/ops/test_collective.py::test_replicas_communicate",
    ),
    **dict.fromkeys(
        "c_comm_init c_comm_init_all c_gen_nccl_id gen_nccl_id".split(),
        "tests/ops/host/test_joining.py::test_a_startup_program_joins_processes",
    ),
    # Real Fluid composes them of other ops.
    **dict.fromkeys(
        ("check_finite_and_unscale", "update_loss_scaling"),
        "tests/fluid/test_mixed_precision.py::test_sparse_gradients_are_unscaled",
    ),
    # Readers, not values.
    "create_double_buffer_reader": _READERS,
    "create_py_reader": _READERS,
    "ref_by_trainer_id": f"{_EXCHANGED}::test_ref_by_trainer_id_takes_the_variable_of_that_trainer",
}

# Ops of real Fluid that have no rule here, and why.
_BOUNDARY = "the executor moves values between a program and its caller or its readers; see registry.BOUNDARY"
_PSLIB = "a driver of PSLib, a parameter server that is not public; only programs for it have the op"
WITHOUT_RULE = {
    **dict.fromkeys(("feed", "fetch", "read"), _BOUNDARY),
    "fl_listen_and_serv": "a server of federated training, which no function of Fluid's API makes",
    "lookup_sparse_table": "servers look rows of their tables up without a program",
    "prefetch": "rows of tables on servers are read by distributed_lookup_table, in one message for all of a step",
    "pull_box_sparse": "a driver of BoxPS, which is not public and needs GPUs",
    **dict.fromkeys(("pull_sparse", "pull_sparse_v2", "push_dense"), _PSLIB),
    "recv_save": "fluid.io.save_persistables reads what it saves from the servers",
    "run_program": "runs a static program from a dynamic graph; there are no dynamic graphs yet",
}


# Ops on sequences, and on what way of cutting them real Fluid does not answer, or not rightly, with the reason.
_ONE_LEVEL = {"nested": "real Fluid refuses a second level"}
# Of 8 rows cut into [[2, 1], [3, 1, 4]] these see sequences of rows 0-1 and of row 2; other rows 3-7 change nothing.
_OUTER_FOR_ROWS = {"nested": "real Fluid takes outer offsets for rows"}
_BEAMS = {"empty": "the first level always has a sentence", "long": "a step of a search holds single words"}
_READS_NEXT = {"empty": "real Fluid takes the row after it"}
_BEGINS_NEXT = {"empty": "real Fluid computes a step for it, with which the next sequence begins"}
ON_SEQUENCES = {
    "array_to_lod_tensor": {},
    "attention_lstm": _ONE_LEVEL,
    "beam_search": _BEAMS,
    "beam_search_decode": _BEAMS,
    "chunk_eval": _ONE_LEVEL,
    "conditional_block": {},
    "crf_decoding": _ONE_LEVEL,
    "ctc_align": {},
    "edit_distance": _OUTER_FOR_ROWS,
    "fused_embedding_fc_lstm": {**_BEGINS_NEXT, **_OUTER_FOR_ROWS},
    "fused_embedding_seq_pool": _ONE_LEVEL,
    "fusion_gru": {**_BEGINS_NEXT, **_OUTER_FOR_ROWS},
    "fusion_lstm": {**_BEGINS_NEXT, **_OUTER_FOR_ROWS},
    "fusion_seqconv_eltadd_relu": _ONE_LEVEL,
    "fusion_seqexpand_concat_fc": _ONE_LEVEL,
    "fusion_seqpool_concat": {**_READS_NEXT, **_ONE_LEVEL},
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
    "pyramid_hash": _ONE_LEVEL,
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


def test_every_op_of_real_fluid_has_a_rule_or_a_reason():
    types = json.loads(Path(forward_ops.PATH).read_text(encoding="utf-8"))
    assert [type for type in types if not registry.is_known(type)] == sorted(WITHOUT_RULE)


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


@pytest.mark.parametrize("type", TESTED_ELSEWHERE)
def test_an_exempt_op_is_run_by_the_test_that_is_named(type):
    path, _, test = TESTED_ELSEWHERE[type].partition("::")
    assert type in words_of((ROOT / path).read_text(encoding="utf-8"), test)


def test_every_exemption_is_needed():
    covered, differentiated = recorded_ops()
    has_gradient = {t for t in TESTED_ELSEWHERE if registry.gradient_of(registry.lookup(t))}
    not_needed = {t for t in TESTED_ELSEWHERE if t in covered and (t in differentiated or t not in has_gradient)}
    assert not_needed == set()


EXAMPLE = """
KINDS = "send recv".split()

def helper():
    '''Draws.'''
    return lookup("dgc").call()

@parametrize("type", KINDS)
def test_one(type):
    "save"
    assert helper()

def test_other():
    # load
    assert "sum"
"""


def test_the_words_of_a_test_are_its_strings_and_those_of_what_it_uses():
    assert words_of(EXAMPLE, "test_one") == {"type", "send", "recv", "dgc"}
    assert words_of(EXAMPLE, "test_other") == {"sum"}
    with pytest.raises(KeyError, match="test_third"):
        words_of(EXAMPLE, "test_third")


def words_of(source: str, name: str) -> set[str]:
    """The words in strings of a function, and of what else it uses of its module; docstrings do not count."""
    body = ast.parse(source).body
    known = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    known |= {ast.unparse(target): node for node in body if isinstance(node, ast.Assign) for target in node.targets}
    words: set[str] = set()
    waiting, seen = [name], {name}
    while waiting:
        nodes = list(ast.walk(known[waiting.pop()]))
        statements = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        strings = (n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        words.update(word for node in strings if id(node) not in statements for word in str(node.value).split())
        used = {n.id for n in nodes if isinstance(n, ast.Name)} & known.keys() - seen
        waiting += used
        seen |= used
    return words


def _is_gradient(type: str) -> bool:
    return type.endswith("_grad") and registry.is_known(type.removesuffix("_grad"))
