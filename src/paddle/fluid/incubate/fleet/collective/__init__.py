"""Fleet without servers, by collectives: not there yet. ``fleet`` can be imported; using it says so."""

from __future__ import annotations

from typing import Any

__all__ = ["fleet"]


class Collective:
    """Stands where collective Fleet will be."""

    def __getattr__(self, name: str) -> Any:
        raise _not_yet(f"fleet.{name}", name)


fleet = Collective()


def _not_yet(what: str, name: str) -> Exception:
    if name.startswith("_"):
        return AttributeError(name)
    return NotImplementedError(
        f"{what}: refluid does not train by collectives yet; with parameter servers it does: "
        "from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet"
    )


def __getattr__(name: str) -> Any:
    raise _not_yet(f"paddle.fluid.incubate.fleet.collective.{name}", name)
