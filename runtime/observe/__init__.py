"""Observability: logs, metrics, status."""
