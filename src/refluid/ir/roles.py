"""Op roles: the part of a training step an op belongs to. Clones, transpilers and schedulers select ops by role."""

from __future__ import annotations

from enum import IntFlag

OP_ROLE = "op_role"
OP_ROLE_VAR = "op_role_var"
OP_NAMESCOPE = "op_namescope"
OP_DEVICE = "op_device"


class OpRole(IntFlag):
    """Fluid's role bits; Loss marks the op that computes the loss, in forward or backward."""

    Forward = 0x0000
    Backward = 0x0001
    Optimize = 0x0002
    RPC = 0x0004
    Dist = 0x0008
    LRSched = 0x0010
    Loss = 0x0100
    NotSpecified = 0x1000
