"""Neural network layers: linear, convolution, pooling, normalization, embedding, sequences and sampled losses."""
