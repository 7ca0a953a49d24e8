"""Fleet with parameter servers; ``distribute_transpiler.fleet`` is the one to import."""
