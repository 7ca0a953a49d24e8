"""Loggers of scripts."""

import logging

__all__ = ["get_logger"]


def get_logger(name, level, fmt=None):
    """Returns a logger of its own: with that level, and a handler that writes ``fmt``."""
    logger = logging.getLogger(name)
    logger.setLevel(level)
    handler = logging.StreamHandler()
    if fmt:
        handler.setFormatter(logging.Formatter(fmt=fmt))
    logger.addHandler(handler)
    logger.propagate = False
    return logger
