"""The guide about failures quotes what is printed: every line that it quotes is in the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs/guides/failures.md"
SOURCES = [path for folder in ("runtime", "src/refluid") for path in sorted((ROOT / folder).rglob("*.py"))]
SHORTEST = 6  # letters; what is between two gaps and shorter could be anywhere


def texts(path):
    """The strings of a module, docstrings apart; a gap in a formatted one is a character of its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def quoted():
    """What the second column of the tables quotes."""
    rows = re.findall(r"^\| (?!failure|---)(.*?) \| (.*?) \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    return sorted({quote for _, printed in rows for quote in re.findall(r"`([^`]+)`", printed)})


@pytest.fixture(scope="module")
def code():
    return "\n".join(text for path in SOURCES for text in texts(path))


@pytest.mark.parametrize("quote", quoted())
def test_what_the_guide_quotes_is_printed_by_the_code(quote, code):
    pieces = [piece.strip(" ,;:().") for piece in re.split("…|[a-z_]+=", quote)]
    pieces = [piece for piece in pieces if len(piece) >= SHORTEST] or [max(pieces, key=len)]
    assert [piece for piece in pieces if piece not in code and piece.removeprefix("waiting for ") not in code] == []


def test_the_guide_quotes_a_lot():
    assert len(quoted()) > 40
