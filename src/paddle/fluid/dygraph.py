"""Dynamic graphs, which refluid does not have yet: importing this module says so."""

from paddle._missing import find

raise ImportError(
    f"paddle.fluid.dygraph is in Fluid, but not in refluid: {find('paddle.fluid', 'dygraph')}", name=__name__
)
