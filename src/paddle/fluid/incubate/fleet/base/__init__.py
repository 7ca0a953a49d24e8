"""What the kinds of Fleet share: roles, modes, the interface."""
