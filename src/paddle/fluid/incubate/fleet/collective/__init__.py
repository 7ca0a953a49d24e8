"""Fleet with collectives, which is not supported yet: ``fleet`` can be imported, but using it raises an error."""

from __future__ import annotations

from typing import Any

__all__ = ["fleet"]


class Collective:
    """Placeholder for collective Fleet."""

    def __getattr__(self, name: str) -> Any:
        raise _not_yet(f"fleet.{name}", name)


fleet = Collective()


def _not_yet(what: str, name: str) -> Exception:
    if name.startswith("_"):
        return AttributeError(name)
    return NotImplementedError(
        f"{what}: refluid does not support collective training yet; use parameter servers instead: "
        "from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet"
    )


def __getattr__(name: str) -> Any:
    raise _not_yet(f"paddle.fluid.incubate.fleet.collective.{name}", name)
