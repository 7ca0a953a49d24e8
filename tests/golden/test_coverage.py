"""No op without a golden case, and no gradient without one that asks for it."""

from __future__ import annotations

import importlib
from pathlib import Path

import refluid.ops  # noqa: F401 - registers every op
from golden.case import Case
from golden.test_parity import FAMILIES, recording
from refluid.ops import registry

# Ops that real Fluid cannot answer for, and the test that does.
TESTED_ELSEWHERE = {
    "cudnn_lstm": "tests/ops/test_recurrence.py",  # real Fluid has it on GPUs only
    "dgc": "tests/ops/test_optimizer_rules.py",  # real Fluid has it on GPUs only
    "load": "tests/ops/test_files.py",  # files, not values
    "load_combine": "tests/ops/test_files.py",
    "merge_lod_tensor_infer": "tests/ops/test_row_split.py",  # real Fluid writes it into inference programs only
    "recompute_barrier": "tests/ir/test_backward.py",  # refluid's own
    "save": "tests/ops/test_files.py",
    "save_combine": "tests/ops/test_files.py",
    "shuffle_batch": "tests/ops/test_random.py",  # its gradient: the order is random
    "sync_batch_norm": "tests/ops/test_norm.py",  # real Fluid has it on GPUs only
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


def test_exemptions_are_real():
    for type, where in TESTED_ELSEWHERE.items():
        assert registry.is_known(type)
        assert (Path(__file__).parents[2] / where).exists()


def _is_gradient(type: str) -> bool:
    return type.endswith("_grad") and registry.is_known(type.removesuffix("_grad"))
