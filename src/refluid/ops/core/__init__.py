"""The definition of ops: registry, inference, gradients, values, checks. Registers no ops."""
