"""Embedding tables whose rows live on servers: storage in flat memory, updates row by row, and their life."""
