"""Loops: recognizing the forms that can be compiled, and compiling them."""
