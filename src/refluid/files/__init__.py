"""Files: atomic writes, Fluid's formats, pickles that run no code, checkpoints."""
