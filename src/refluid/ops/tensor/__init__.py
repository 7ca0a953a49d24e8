"""General tensor ops: arithmetic, shapes, indexing, reductions, random numbers."""
