"""Waiting for servers."""

__all__ = ["wait_server_ready"]


def wait_server_ready(endpoints):
    """Returns when a server listens at each of ``endpoints``; logs meanwhile which do not."""
    from refluid.runtime.transport.port_wait import wait_for_ports

    wait_for_ports(0, tuple(endpoints))
