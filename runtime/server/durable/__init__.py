"""What a server keeps on disk, so that it can be killed: snapshots of its state, and a log of the updates since."""
