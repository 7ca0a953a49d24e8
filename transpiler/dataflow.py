"""What operators read and write, including sub-blocks, and which operators a value depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from refluid.ir import Operator


def reads(op: Operator) -> set[str]:
    """The names that an operator, including its sub-blocks, reads."""
    return {name for inner in op.within() for name in inner.input_arg_names}


def writes(op: Operator) -> set[str]:
    """The names that an operator, including its sub-blocks, writes."""
    return {name for inner in op.within() for name in inner.output_arg_names}


class Flow:
    """Operators in order, with their reads and writes computed once: programs have thousands of operators."""

    def __init__(self, ops: Iterable[Operator]):
        self.ops: Sequence[Operator] = tuple(ops)
        self._places = {id(op): place for place, op in enumerate(self.ops)}
        self._reads = [reads(op) for op in self.ops]
        self._writes = [writes(op) for op in self.ops]
        self._writers: dict[str, list[int]] = {}
        for place, names in enumerate(self._writes):
            for name in names:
                self._writers.setdefault(name, []).append(place)

    def reads(self, op: Operator) -> set[str]:
        return self._reads[self._places[id(op)]]

    def writes(self, op: Operator) -> set[str]:
        return self._writes[self._places[id(op)]]

    def writers(self, name: str) -> list[Operator]:
        return [self.ops[place] for place in self._writers.get(name, ())]

    def place(self, op: Operator) -> int:
        return self._places[id(op)]

    def behind(self, wanted: Iterable[str], among: Collection[Operator] | None = None) -> list[Operator]:
        """The operators that write ``wanted`` names, those that write what these read, and so on, in order.

        Their position does not matter: a later operator may write state that the next step reads.
        """
        allowed = None if among is None else {self._places[id(op)] for op in among}
        found, names, seen = set[int](), list(wanted), set(wanted)
        while names:
            for place in self._writers.get(names.pop(), ()):
                if place not in found and (allowed is None or place in allowed):
                    found.add(place)
                    names += self._reads[place] - seen
                    seen |= self._reads[place]
        return [self.ops[place] for place in sorted(found)]

    def before(self, op: Operator) -> list[Operator]:
        """The operators before ``op`` that its inputs depend on, in order."""
        end = self._places[id(op)]
        found, names = set[int](), [(name, end) for name in self._reads[end]]
        while names:
            name, limit = names.pop()
            for place in self._writers.get(name, ()):
                if place < limit and place not in found:
                    found.add(place)
                    names += [(each, place) for each in self._reads[place]]
        return [self.ops[place] for place in sorted(found)]
