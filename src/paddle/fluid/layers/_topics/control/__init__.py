"""Control flow, tensor arrays and host calls."""
