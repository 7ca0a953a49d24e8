"""Ops on packed sequences (LoD): recurrences, structured losses, beam search."""
