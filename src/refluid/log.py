"""Log lines of servers and trainers: ``key=value`` pairs that people can read and tools can cut apart.

    time=2024-05-01T12:03:04.512 level=info role=server endpoint=127.0.0.1:6174 msg="trainer joined" trainer=1 round=12

They go through the standard library's logger ``refluid.runtime``, to the error stream unless the script has set up
logging itself. REFLUID_LOG=debug|info|warning|error|off chooses how much; without it GLOG_v=1 or more means debug.
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
    "off": logging.CRITICAL,
}
_logger = logging.getLogger("refluid.runtime")


class Log:
    """Writes lines that begin with who writes them, as in ``Log(role="server", endpoint="127.0.0.1:6174")``."""

    def __init__(self, **who: object) -> None:
        self._who = who
        _set_up()

    def bind(self, **more: object) -> Log:
        """A log whose lines say more about the writer."""
        return Log(**{**self._who, **more})

    def debug(self, message: str, **fields: object) -> None:
        """What happens every step."""
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: object) -> None:
        """What happens a few times in a job."""
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, **fields: object) -> None:
        """What someone may have to look after."""
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, **fields: object) -> None:
        """What ends the job, or a part of it."""
        self._write(logging.ERROR, message, fields)

    def _write(self, level: int, message: str, fields: dict[str, object]) -> None:
        if _logger.isEnabledFor(level):
            _logger.log(level, "%s", _pairs({**self._who, "msg": message, **fields}))


def level_from_environment() -> int:
    """The level that REFLUID_LOG names, else the one GLOG_v stands for."""
    name = os.environ.get("REFLUID_LOG", "").lower()
    if name:
        if name not in _LEVELS:
            raise ValueError(f"REFLUID_LOG is {name!r}; expected one of {', '.join(_LEVELS)}")
        return _LEVELS[name]
    verbose = os.environ.get("GLOG_v", "0")  # noqa: SIM112 - as Fluid's library spells it
    return logging.DEBUG if verbose.isdigit() and int(verbose) > 0 else logging.INFO


def _pairs(fields: dict[str, object]) -> str:
    return " ".join(f"{key}={_value(value)}" for key, value in fields.items() if value is not None)


def _value(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if text and not any(sign.isspace() or sign in '"=' for sign in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).isoformat(timespec="milliseconds")
        return f"time={time} level={record.levelname.lower()} {record.getMessage()}"


class _ErrorStream(logging.StreamHandler[TextIO]):
    """Writes to whatever ``sys.stderr`` is by then."""

    @property
    def stream(self) -> TextIO:  # pyright: ignore[reportIncompatibleVariableOverride] - looked up for every record
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        pass


def _set_up() -> None:
    if _logger.level == logging.NOTSET:
        _logger.setLevel(level_from_environment())
    if not _logger.hasHandlers():
        handler = _ErrorStream()
        handler.setFormatter(_Formatter())
        _logger.addHandler(handler)
        _logger.propagate = False
