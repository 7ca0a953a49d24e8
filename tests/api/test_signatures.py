"""The public names and signatures of Fluid 1.5.2, against ours. What differs is listed in gaps.txt, with the reason.

The list is strict both ways: a difference that is not listed fails, and so does a listed one that is gone. After a
change, write it anew with

    python tests/api/test_signatures.py --write

which keeps the group of a gap that is known and sorts new ones by the words below.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
UNSORTED = "Not sorted yet"

# Heading of a group in gaps.txt, and words in the names that belong to it. The first group that fits takes a name.
GROUPS = {
    "Dynamic graphs, which come later": r"dygraph | BackwardStrategy",
    "Distributed training": r"""
        Distribut | HashName | RoundRobin | HDFS | multi_(down|up)load | for_increment | for_inference | dist_to_sparse
        | PipelineOptimizer""",
    "Readers inside the program": r"""
        dataset | DataFeedDesc | [Pp]y_?[Rr]eader | reader | recordio | double_buffer | layers\.open_files
        | layers\.(shuffle|batch|Preprocessor|random_data_generator)$ | read_file""",
    "Detection": r"""
        roi | anchor | box | proposal | yolo | ssd | detection | multiclass_nms | bipartite | target_assign | iou_
        | polygon | focal | mask_labels""",
    "Beam search": r"beam | Beam | InitState | StateCell | TrainingDecoder",
    "Control flow": r"""
        layers\.(While|Switch|IfElse|StaticRNN|DynamicRNN|increment|less_|is_empty|py_func|Print) | array""",
    "Sequences and recurrent layers": r"""
        sequence | dynamic_ | lod_ | lstm | gru | LSTM | GRU | row_conv | crf | ctc | edit_distance | chunk_eval""",
    "Saving and loading": r"fluid\.io\. | layers\.load$",
    "Quantisation, compression, mixed precision": r"Quantize | Calibrator | Compressor | mixed_precision | decoupled",
    "Seldom used layers": r"tree_conv | deformable | fused_elemwise",
    "As Fluid 1.6 and later have it": r"layers\.argsort",
}


class Signature(NamedTuple):
    """Argument names without self, defaults by name, and whether any positional or keyword arguments are taken."""

    names: list[str]
    defaults: dict[str, Any]
    varargs: bool
    keywords: bool


def read_reference() -> dict[str, Signature | None]:
    """Fluid's names; None stands for a signature that is not given."""
    lines = (HERE / "api_1_5_2.txt").read_text(encoding="utf-8").splitlines()
    return dict(_parse(line) for line in lines if line and not line.startswith("#"))


def _parse(line: str) -> tuple[str, Signature | None]:
    name, _, rest = line.partition(" ")
    if rest.startswith("ArgSpec"):
        call = ast.parse(re.sub(r"\b(VarType|Compressor)\.(\w+)", r"'\1.\2'", rest), mode="eval").body
        spec = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        names, defaults = spec["args"], spec["defaults"] or ()
        return name, _signature(names, dict(zip(names[::-1], defaults[::-1], strict=False)), False, False)
    if "(" not in name:
        return name, None
    name, _, arguments = line.partition("(")
    parsed = ast.parse(f"def f({arguments}: pass").body[0].args
    names = [argument.arg for argument in parsed.args]
    values = [ast.literal_eval(default) for default in parsed.defaults]
    defaults = dict(zip(names[::-1], values[::-1], strict=False))
    return name, _signature(names, defaults, parsed.vararg is not None, parsed.kwarg is not None)


def _signature(names, defaults, varargs, keywords) -> Signature:
    return Signature([name for name in names if name != "self"], defaults, varargs, keywords)


def find_gap(name: str, expected: Signature | None) -> tuple[str, str] | None:
    """The shortest name that is missing or differs, and a description of the difference."""
    found, parts = importlib.import_module("paddle"), name.split(".")
    for depth, part in enumerate(parts[1:], 2):
        prefix = ".".join(parts[:depth])
        if part == "__init__":
            break
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(prefix)
            except ImportError:
                return prefix, "missing"
    problem = None if expected is None else _difference(_signature_of(found), expected)
    return None if problem is None else (name, problem)


def _signature_of(found: Any) -> Signature:
    parameters = list(inspect.signature(found).parameters.values())
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return _signature(
        [p.name for p in plain],
        {p.name: p.default for p in plain if p.default is not p.empty},
        any(p.kind is p.VAR_POSITIONAL for p in parameters),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _difference(ours: Signature, fluid: Signature) -> str | None:
    for position, name in enumerate(fluid.names):
        if position >= len(ours.names):
            return f"has no argument {name}"
        if ours.names[position] != name:
            return f"argument {position + 1} is {ours.names[position]}, in Fluid {name}"
        if name in fluid.defaults and not _same_default(ours.defaults.get(name, ...), fluid.defaults[name]):
            return f"{name} is {_shown(ours, name)}, in Fluid {_shown(fluid, name)}"
    for name in ours.names[len(fluid.names) :]:
        if name not in ours.defaults:
            return f"needs an argument {name}, which Fluid does not have"
    if fluid.varargs and not ours.varargs:
        return "takes no further positional arguments"
    if fluid.keywords and not ours.keywords:
        return "takes no further keyword arguments"
    return None


def _same_default(ours: Any, fluid: Any) -> bool:
    if isinstance(fluid, str) and fluid.startswith(("VarType.", "Compressor.")):
        return str(ours) == fluid
    if isinstance(fluid, tuple | list) and isinstance(ours, tuple | list):
        return list(ours) == list(fluid)
    return ours is fluid or (ours is not ... and ours == fluid)


def _shown(signature: Signature, name: str) -> str:
    return repr(signature.defaults[name]) if name in signature.defaults else "required"


def find_gaps() -> dict[str, str]:
    """Every gap, name -> problem, in Fluid's order."""
    gaps = (find_gap(name, signature) for name, signature in read_reference().items())
    return dict(gap for gap in gaps if gap is not None)


def read_listed() -> dict[str, dict[str, str]]:
    """gaps.txt: group -> name -> problem."""
    groups: dict[str, dict[str, str]] = {}
    path = HERE / "gaps.txt"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith("## "):
            group = groups.setdefault(line[3:], {})
        elif line and not line.startswith("#"):
            name, _, problem = line.partition("  ")
            group[name] = problem
    return groups


def write_listed() -> None:
    """Writes gaps.txt anew; a known gap stays in its group."""
    known = {name: heading for heading, group in read_listed().items() for name in group}
    groups: dict[str, list[str]] = {heading: [] for heading in [*GROUPS, *known.values(), UNSORTED]}
    for name, problem in find_gaps().items():
        groups[known.get(name) or _group_of(name)].append(f"{name}  {problem}")
    lines = ["# Where paddle.fluid differs from Fluid 1.5.2, and why. Written by test_signatures.py --write."]
    for heading, gaps in groups.items():
        lines += ["", f"## {heading}", *gaps] if gaps else []
    (HERE / "gaps.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _group_of(name: str) -> str:
    return next((heading for heading, words in GROUPS.items() if re.search(words, name, re.VERBOSE)), UNSORTED)


def test_differences_from_fluid_are_exactly_those_listed():
    listed = {name: problem for group in read_listed().values() for name, problem in group.items()}
    found = find_gaps()
    new = [f"{name}  {problem}" for name, problem in found.items() if listed.get(name) != problem]
    gone = [f"{name}  {problem}" for name, problem in listed.items() if name not in found]
    assert (new, gone) == ([], []), "run: python tests/api/test_signatures.py --write"


def test_every_gap_has_a_reason():
    assert UNSORTED not in read_listed()


def test_a_different_signature_is_noticed():
    def ours(input, size, act="relu", name=None): ...

    reference = Signature(["input", "size", "act"], {"act": None}, False, False)
    assert _difference(_signature_of(ours), reference) == "act is 'relu', in Fluid None"
    assert _difference(_signature_of(ours), reference._replace(names=["input", "dim"])) == (
        "argument 2 is size, in Fluid dim"
    )
    assert _difference(_signature_of(ours), Signature(["input"], {}, False, False)) == (
        "needs an argument size, which Fluid does not have"
    )
    same = Signature(["input", "size", "act"], {"act": "relu"}, False, False)
    assert _difference(_signature_of(ours), same) is None


def test_dir_of_layers_lists_layers_and_fluid_modules_only():
    from paddle.fluid import layers

    modules = {
        "collective",
        "control_flow",
        "detection",
        "device",
        "distributions",
        "io",
        "layer_function_generator",
        "learning_rate_scheduler",
        "loss",
        "math_op_patch",
        "metric_op",
        "nn",
        "ops",
        "sequence_lod",
        "utils",
    }
    assert set(dir(layers)) == {*layers.__all__, *modules, "rnn", "tensor"}
    assert layers.nn.fc is layers.fc


def test_a_missing_class_is_one_gap_not_one_for_each_method():
    assert find_gap("paddle.reader.Nothing.method", None) == ("paddle.reader.Nothing", "missing")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    write_listed()
