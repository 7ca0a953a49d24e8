"""Samples on their way into a program: readers in threads and processes, batches, made-up data."""
