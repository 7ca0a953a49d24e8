"""Shared parts of Fleet: roles, modes and the base classes."""
