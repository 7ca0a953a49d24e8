"""What layers share; no layers."""
