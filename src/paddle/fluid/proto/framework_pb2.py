"""The messages that describe programs, with Fluid's names and field numbers."""

from refluid.ir.framework_pb2 import *  # noqa: F403
from refluid.ir.framework_pb2 import DESCRIPTOR  # noqa: F401
