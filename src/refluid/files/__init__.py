"""Everything about files: atomic writes, Fluid's formats, pickles without code, checkpoints."""
