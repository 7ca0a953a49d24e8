"""Tables in files: snapshots, whole or as deltas, written by servers and read by any number of them; exports."""
