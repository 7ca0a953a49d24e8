"""Passes that rewrite one program into many: trainer and server programs, collective programs."""
