"""Control flow: branches, loops, tensor arrays of loops."""
