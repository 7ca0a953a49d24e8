"""Ops of networks: convolution, normalization, embeddings, losses, images, metrics."""
