"""Where kernels find what they need of a segment: the words of its control block, and of a record.

A control block is an array of int64 that Python and kernels share. A record is a row of a table in memory, in words
of 4 bytes: its id (not in tables of fixed height), the step it is up to date with, a count, its weights, and the slots
of the optimizer, each as long as the weights.
"""

from __future__ import annotations

# Words of a control block: addresses, sizes and positions.
INDEX, INDEX_MASK = 0, 1  # the hash index and its size - 1; 0 for a table of fixed height
OLD_INDEX, OLD_MASK, MIGRATED = 2, 3, 4  # an index that is being replaced, and how much of it has been
RECORDS, WORDS, CAPACITY, USED = 5, 6, 7, 8  # records, the words of each, how many there may be and have been
FREE, FREED = 9, 10  # the first free record + 1, and how many are free
STALE = 11  # entries of the index whose record belongs to another id by now
HEADER, WIDTH, SLOTS = 12, 13, 14  # words before the weights; weights; slots
MARKS = 15  # a byte for each record
FIRST = 16  # the id of the first row, of a table of fixed height
PRECISION = 17  # of the weights: see below
FROZEN, COPIED = 18, 19  # how many records a snapshot that is being made has, and how many of them it has copied
SAVED, SAVED_USED, SAVED_CAPACITY = 20, 21, 22  # records as they were when the snapshot began, each with its number
WANTED = 23  # the mark of the rows that the snapshot is of; 0 for all
CHANCE, CHANCE_KEY = 24, 25  # how many of 2^32 ids may have rows, and what chooses them
MIN_COUNT = 26  # updates that an id must have been in before it gets a row
SKETCH, SKETCH_MASK, SKETCH_LEFT = 27, 28, 29  # counts of ids without rows, their number - 1, and when they are halved
CONTROL_SIZE = 30

ALL_CHANCE = 1 << 32

# Precisions of weights. Slots are as wide as the gradients: float32, or float64 with NATIVE weights.
NATIVE, BFLOAT16, FLOAT16 = 0, 1, 2

# Words of a record, from its beginning and before its weights.
ID = 0  # two words
VERSION, COUNT = -2, -1

DEAD = 0xFFFFFFFF  # the version of a record that belongs to no row

# Bits of a mark: changed since the last snapshot that a user has saved; since the last one that a server restarts from;
# saved for the snapshot that is being made.
CHANGED, UNSAVED, IS_SAVED = 1, 2, 128
CHAINS = (CHANGED, UNSAVED)  # the snapshots that deltas follow, each with its own

# An entry of the index is 0 if it is empty; otherwise it has the number of the record + 1, and bits of the hash.
MOST_ROWS = 1 << 31
