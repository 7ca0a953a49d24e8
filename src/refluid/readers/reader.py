"""What a reader of a program is: an object in the scope from which `read` operators take batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakSet

Batch = Sequence[Any]  # one array or LoDTensor for each variable that a `read` operator writes


class Reader(ABC):
    """A source of batches, one pass after the other. The executor sets its attributes."""

    name: str = "a reader"  # of the variable that holds it
    origin: Any = None  # the operator that made it, as `refluid.reading` compares it
    scope: Any = None  # a weak reference to the scope that it was made for
    seed = 0  # of the program that made it; 0 draws other random numbers in every run
    wrappers: Iterable[WrappingReader] = ()  # they read from this one

    def start(self) -> None:  # noqa: B027 - readers of files begin by themselves, at the first batch
        """Begins a pass."""

    @abstractmethod
    def reset(self) -> None:
        """Ends a pass, at its end or before; stops threads, closes files. The next pass starts from the beginning."""

    @abstractmethod
    def next(self) -> Batch | None:
        """The next batch, or None at the end of a pass, and then again until `reset`."""

    def peek(self) -> Batch | None:
        """The batch that `next` will return, if that is known without waiting or reading."""
        return None

    def eof(self) -> bool:
        """Whether the pass has no further batch; waits for one."""
        raise RuntimeError(f"{self.name} cannot look ahead; read until fluid.core.EOFException is raised")

    def forget_wrapped(self) -> None:
        """Makes all readers around this one forget what they have read; part of a `reset` that begins here."""
        for wrapper in list(self.wrappers):
            wrapper.forget_wrapped()
            wrapper.forget()


class WrappingReader(Reader):
    """A reader that changes what another one reads; a pass begins and ends with that of the other."""

    def __init__(self, wrapped: Reader):
        self.wrapped = wrapped
        vars(wrapped).setdefault("wrappers", WeakSet()).add(self)

    def start(self) -> None:
        self.wrapped.start()

    def reset(self) -> None:
        self.forget()
        self.wrapped.reset()

    def passes_through(self) -> bool:
        """Whether this reader takes a batch of the other one only when one is taken from it, and does not change it."""
        return False

    def forget(self) -> None:
        """Drops what was read from the other reader, which is reset afterwards."""
