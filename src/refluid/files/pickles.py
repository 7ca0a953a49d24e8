"""Pickles of plain data, read without running anything.

A pickle is a program for a small stack machine, and Python's own machine can call any function. This one cannot: it
only has the instructions that build numbers, strings, containers and NumPy arrays. Reading takes at most sixteen times
the size of the pickle plus 16 MB.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from refluid.files.pickled_values import (
    CALLABLES,
    PickleError,
    Raw,
    Unfinished,
    check_plain,
    checked_key,
    finished,
    with_bytes,
)
from refluid.files.raw import left, read_aligned

__all__ = ["PickleError", "read_pickle"]

_MARK = object()
_MAX_LINE = 4096  # only names and short numbers are stored as lines
_LARGE = 1 << 16  # runs of this many bytes and more are read straight into the memory of an array


def read_pickle(source: bytes | BinaryIO) -> Any:
    """The value of a pickle of plain data: None, numbers, strings, containers, NumPy arrays and scalars.

    Args:
      source: the pickle, or a stream that holds it and nothing more.

    Raises:
      PickleError: the bytes are not a pickle, or not one of plain data.
    """
    machine = _Machine(io.BytesIO(source) if isinstance(source, bytes) else source)
    try:
        value = machine.run()
    except PickleError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        EOFError,
        struct.error,
    ) as error:
        raise PickleError(f"the pickle is damaged near byte {machine.position}: {error!r}") from error
    check_plain(value)
    return with_bytes(value) if not all(raw.is_taken for raw in machine.raws) else value


class _Machine:
    """Executes instructions; the table below maps each to a function."""

    def __init__(self, stream: BinaryIO):
        self.stream, self.position, self.size = stream, 0, left(stream)
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.raws: list[Raw] = []
        self.budget = 15 * self.size + (15 << 20)  # bytes; stops a string that is used often from becoming many arrays

    def run(self) -> Any:
        while True:
            code = self.take(1)[0]
            if code == ord("."):
                break
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise PickleError(
                    f"byte {self.position - 1} of the pickle: instruction {code:#x} is not supported for plain data"
                )
            instruction(self)
        if len(self.stack) != 1:
            raise PickleError(f"the pickle ends with {len(self.stack)} values")
        return self.stack[0]

    def take(self, size: int) -> bytes:
        self.advance(size)
        return self.stream.read(size)

    def advance(self, size: int) -> None:
        if not 0 <= size <= self.size - self.position:
            raise PickleError(f"the pickle ends too early: {size} bytes are missing at byte {self.position}")
        self.position += size

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        text = self.stream.readline(_MAX_LINE)
        if not text.endswith(b"\n"):
            raise PickleError(f"the pickle is damaged: no end of line after byte {self.position}")
        self.position += len(text)
        return text[:-1].decode("ascii")

    def push(self, value: Any) -> None:
        self.spend(100)  # the size of a small object and the references to it
        self.stack.append(value)

    def spend(self, size: int) -> None:
        self.budget -= size
        if self.budget < 0:
            raise PickleError("the pickle expands to something much larger than its file")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise PickleError(f"the pickle is damaged near byte {self.position}: a value is missing")
        return value

    def pop_to_mark(self) -> list[Any]:
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def top(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise PickleError(f"the pickle is damaged near byte {self.position}: no {kind.__name__} to fill")
        return self.stack[-1]

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise PickleError(f"the pickle is damaged near byte {self.position}: a key without value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[checked_key(key)] = value

    def find(self, module: str, name: str) -> None:
        if (module, name) not in CALLABLES:
            raise PickleError(f"the pickle refers to {module}.{name}, which is not plain data; nothing was loaded")
        self.push(CALLABLES[module, name])


def _integer_line(machine: _Machine) -> None:
    text = machine.line().removesuffix("L")
    machine.push({"00": False, "01": True}.get(text) if text in ("00", "01") else int(text))


def _long(form: str) -> Callable[[_Machine], None]:
    return lambda m: m.push(int.from_bytes(_limited(m, form, 1024), "little", signed=True))


def _limited(machine: _Machine, form: str, limit: int) -> bytes:
    size = machine.number(form)
    if size > limit:
        raise PickleError(f"the pickle holds an integer of {size} bytes")
    return machine.take(size)


def _text(form: str) -> Callable[[_Machine], None]:
    return lambda m: m.push(str(m.take(m.number(form)), "utf-8", "surrogatepass"))


def _old_text(form: str) -> Callable[[_Machine], None]:
    """A Python 2 string, which may be text or bytes; latin-1 represents both."""
    return lambda m: m.push(str(m.take(m.number(form)), "latin-1"))


def _bytes(form: str) -> Callable[[_Machine], None]:
    return lambda m: m.push(_raw(m, m.number(form)))


def _raw(machine: _Machine, size: int) -> bytes | Raw:
    if size < _LARGE:
        return machine.take(size)
    machine.advance(size)
    machine.raws.append(Raw(read_aligned(machine.stream, size)))
    return machine.raws[-1]


def _put(form: str) -> Callable[[_Machine], None]:
    return lambda m: m.memo.__setitem__(m.number(form), m.stack[-1])


def _tuple(size: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(tuple([m.pop() for _ in range(size)][::-1]))


def _reduce(machine: _Machine) -> None:
    arguments, function = machine.pop(), machine.pop()
    if function not in CALLABLES.values() or not isinstance(arguments, tuple):
        raise PickleError("the pickle calls something that is not a function")
    machine.spend(sum(len(a) for a in arguments if isinstance(a, str | bytes | tuple | list)))
    machine.push(function(*arguments))


def _build(machine: _Machine) -> None:
    state, target = machine.pop(), machine.pop()
    if not isinstance(target, Unfinished) or target.value is not None or not isinstance(state, tuple):
        raise PickleError("the pickle fills something that is not an array")
    machine.spend(2 * sum(len(part) for part in state if isinstance(part, str | bytes | Raw)))
    target.value = target.finish(state)
    machine.push(target.value)


def _append(machine: _Machine) -> None:
    value = machine.pop()
    machine.top(list).append(value)


def _appends(machine: _Machine) -> None:
    values = machine.pop_to_mark()
    machine.top(list).extend(values)


def _set_item(machine: _Machine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


def _dict(machine: _Machine) -> None:
    items = machine.pop_to_mark()
    machine.push({})
    machine.set_items(items)


def _stack_global(machine: _Machine) -> None:
    name, module = machine.pop(), machine.pop()
    machine.find(module, name)


_INSTRUCTIONS: dict[int, Callable[[_Machine], Any]] = {
    ord(code): instruction
    for code, instruction in {
        "\x80": lambda m: m.take(1),  # the protocol
        "\x95": lambda m: m.take(8),  # the length of the next frame
        "(": lambda m: m.push(_MARK),
        "0": lambda m: m.stack.pop(),
        "1": lambda m: m.pop_to_mark(),
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "K": lambda m: m.push(m.number("<B")),
        "M": lambda m: m.push(m.number("<H")),
        "J": lambda m: m.push(m.number("<i")),
        "I": _integer_line,
        "L": _integer_line,
        "\x8a": _long("<B"),
        "\x8b": _long("<i"),
        "F": lambda m: m.push(float(m.line())),
        "G": lambda m: m.push(m.number(">d")),
        "X": _text("<I"),
        "\x8c": _text("<B"),
        "\x8d": _text("<Q"),
        "T": _old_text("<i"),
        "U": _old_text("<B"),
        "B": _bytes("<I"),
        "C": _bytes("<B"),
        "\x8e": _bytes("<Q"),
        ")": lambda m: m.push(()),
        "t": lambda m: m.push(tuple(m.pop_to_mark())),
        "\x85": _tuple(1),
        "\x86": _tuple(2),
        "\x87": _tuple(3),
        "]": lambda m: m.push([]),
        "l": lambda m: m.push(m.pop_to_mark()),
        "a": _append,
        "e": _appends,
        "}": lambda m: m.push({}),
        "d": _dict,
        "s": _set_item,
        "u": lambda m: m.set_items(m.pop_to_mark()),
        "q": _put("<B"),
        "r": _put("<I"),
        "\x94": lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),
        "h": lambda m: m.push(finished(m.memo[m.number("<B")])),
        "j": lambda m: m.push(finished(m.memo[m.number("<I")])),
        "c": lambda m: m.find(m.line(), m.line()),
        "\x93": _stack_global,
        "R": _reduce,
        "b": _build,
    }.items()
}
