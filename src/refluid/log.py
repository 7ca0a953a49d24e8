"""Log messages of servers, trainers and launchers: ``key=value`` pairs, through Python's `logging`.

    time=2024-05-01T12:03:04.512 level=info role=server endpoint=127.0.0.1:6174 msg="trainer joined" trainer=1 round=12

The loggers are ``refluid.server``, ``refluid.trainer`` and so on, children of ``refluid``. As with any library, a
script's own logging configuration decides where messages go and which: `logging.basicConfig`, handlers or levels of
these loggers. Without one, they are written to the error stream. A record has the pairs as a dict, ``record.fields``.
REFLUID_LOG=debug|info|warning|error|off chooses the level; without it GLOG_v=1 or more means debug.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import datetime
from typing import TextIO

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


class Log:
    """Writes messages that begin with who writes them, as in ``Log("server", endpoint="127.0.0.1:6174")``."""

    def __init__(self, role: str, **who: object) -> None:
        self._who = {"role": role, **who}
        self._logger = logging.getLogger(f"refluid.{role}")
        _set_up(logging.getLogger("refluid"))

    def debug(self, message: str, **fields: object) -> None:
        """Logs what happens every step."""
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: object) -> None:
        """Logs what happens a few times in a job."""
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, **fields: object) -> None:
        """Logs what may need attention."""
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, **fields: object) -> None:
        """Logs what ends the job, or a part of it."""
        self._write(logging.ERROR, message, fields)

    def _write(self, level: int, message: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            pairs = {
                name: value for name, value in {**self._who, "msg": message, **fields}.items() if value is not None
            }
            self._logger.log(level, "%s", _text(pairs), extra={"fields": pairs}, stacklevel=3)


def level_from_environment() -> int | None:
    """The level that REFLUID_LOG names, else the one that GLOG_v stands for; None without either."""
    name = os.environ.get("REFLUID_LOG", "").lower()
    if name:
        if name not in _LEVELS:
            raise ValueError(f"REFLUID_LOG is {name!r}; expected one of {', '.join(_LEVELS)}")
        return _LEVELS[name]
    verbose = os.environ.get("GLOG_v", "0")  # noqa: SIM112 - as Fluid's library spells it
    return logging.DEBUG if verbose.isdigit() and int(verbose) > 0 else None


def _text(pairs: dict[str, object]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in pairs.items())


def _value(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if text and text.isprintable() and not any(sign in ' "=' for sign in text):
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(sign: str) -> str:
    """A sign between quotes; one that could steer a terminal, or begin a line of its own, becomes a code."""
    if sign in '\\"':
        return "\\" + sign
    return sign if sign.isprintable() else sign.encode("unicode_escape").decode()


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).isoformat(timespec="milliseconds")
        return f"time={time} level={record.levelname.lower()} {record.getMessage()}"


class _LastResort(logging.StreamHandler[TextIO]):
    """Writes to what ``sys.stderr`` is by then, unless the script has handlers that get the record as well."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_Formatter())

    @property
    def stream(self) -> TextIO:  # pyright: ignore[reportIncompatibleVariableOverride] - looked up for every record
        return sys.stderr

    def filter(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return bool(super().filter(record))


def _set_up(logger: logging.Logger) -> None:
    """Gives the logger ``refluid`` a level and a handler of last resort, once; a script's own level is kept."""
    if any(isinstance(handler, _LastResort) for handler in logger.handlers):
        return
    logger.addHandler(_LastResort())
    if logger.level == logging.NOTSET:
        level = level_from_environment()
        # A script that has configured logging has chosen a level for everything; otherwise what happens is shown.
        configured = logger.parent is not None and logger.parent.hasHandlers()
        logger.setLevel(level if level is not None else logging.NOTSET if configured else logging.INFO)
