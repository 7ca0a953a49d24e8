from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
