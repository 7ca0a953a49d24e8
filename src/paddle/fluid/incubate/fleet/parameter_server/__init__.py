"""Fleet with parameter servers; import ``distribute_transpiler.fleet``."""
