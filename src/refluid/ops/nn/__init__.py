"""Neural network ops: convolution, normalization, embeddings, losses, images, metrics."""
