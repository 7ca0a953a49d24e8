"""Processes that train together without servers: each is a rank of one group of JAX devices.

`join` brings them together once; `group.Group` then watches over the others while steps run over all devices.
"""

from __future__ import annotations

from refluid.runtime.collective.joining import current, join, leave

__all__ = ["current", "join", "leave"]
