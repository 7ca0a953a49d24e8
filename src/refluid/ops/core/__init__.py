"""What an op is: registry, inference, gradients, values, checks. Registers no op."""
