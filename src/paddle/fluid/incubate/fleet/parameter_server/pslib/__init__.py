"""pslib was a library of its own that was never published; importing it says what to use instead."""

raise ImportError(
    "paddle.fluid.incubate.fleet.parameter_server.pslib stands on a library that was never published; "
    "import fleet from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler instead"
)
