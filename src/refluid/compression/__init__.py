"""Smaller models: the arithmetic on weights behind quantisation and pruning. Rewriting programs is `transpiler`'s."""
