"""pslib is a library that was never published; importing this module names the alternative."""

raise ImportError(
    "paddle.fluid.incubate.fleet.parameter_server.pslib requires a library that was never published; "
    "import fleet from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler instead"
)
