"""What runs in a parameter server: membership, rounds, the shard and its updates."""
