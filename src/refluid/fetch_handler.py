"""Fetch handlers: functions of users, called every few seconds of a pass over a dataset on a thread of their own."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refluid.ir.variable import Variable, name_of
from refluid.log import Log


class FetchHandler:
    """Watches values of a program while it trains; overwrite `handler`.

    Args:
      var_dict: what `handler` receives: a dict of any key to a variable or its name. A list of names, as in Fluid 1.6,
        lets it receive a list of values.
      period_secs: seconds between two calls.
      return_np: whether values are NumPy arrays rather than LoDTensors.
      fetch_target_names: Fluid 1.6's name for a list of names.
    """

    def __init__(
        self,
        var_dict: Mapping[Any, Any] | Sequence[Any] | None = None,
        period_secs: float = 60,
        return_np: bool = True,
        fetch_target_names: Sequence[Any] | None = None,
    ):
        wanted = var_dict if fetch_target_names is None else fetch_target_names
        if not isinstance(wanted, Mapping | list | tuple):
            raise TypeError(f"a FetchHandler takes a dict of variables or a list of names, not {wanted!r}")
        if period_secs <= 0:
            raise ValueError(f"period_secs must be positive, not {period_secs}")
        self.var_dict = wanted
        self.period_secs, self.return_np = period_secs, return_np

    def handler(self, res_dict: Any) -> None:
        """Receives the values: a dict with the keys of ``var_dict``, or a list. A variable without a value is None."""

    def names(self) -> dict[Any, str]:
        """The names of the variables, by the keys of ``var_dict`` or by position."""
        wanted = self.var_dict if isinstance(self.var_dict, Mapping) else dict(enumerate(self.var_dict))
        return {key: name_of(each) if isinstance(each, Variable) else str(each) for key, each in wanted.items()}

    @staticmethod
    def help() -> None:
        """Prints an example."""
        print(
            "class PrintLoss(fluid.executor.FetchHandler):\n"
            "    def handler(self, res_dict):\n"
            "        print(res_dict['loss'])\n\n"
            "exe.train_from_dataset(program, dataset, fetch_handler=PrintLoss({'loss': loss}, period_secs=10))"
        )


class Watch:
    """Calls a handler every period until it is closed.

    An exception of the handler is logged at once and ends the calls; `close` returns it.

    Args:
      read: the value of a variable by name, or None.
    """

    def __init__(self, handler: FetchHandler, read: Callable[[str], Any], log: Log):
        self._handler, self._read, self._log = handler, read, log
        self._names = handler.names()
        self._missing: set[str] = set()
        self._closing = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="refluid: fetch handler", daemon=True)
        self._thread.start()

    def close(self) -> Exception | None:
        """Waits for a call under way; returns what a call raised."""
        self._closing.set()
        self._thread.join()
        return self._error

    def _run(self) -> None:
        while not self._closing.wait(self._handler.period_secs):
            try:
                self._call()
            except Exception as error:  # noqa: BLE001 - raised when the pass ends
                self._log.error("the fetch handler failed and is not called again", reason=traceback.format_exc())
                self._error = error
                return

    def _call(self) -> None:
        values = {key: self._value(name) for key, name in self._names.items()}
        self._handler.handler(values if isinstance(self._handler.var_dict, Mapping) else list(values.values()))

    def _value(self, name: str) -> Any:
        value = self._read(name)
        if value is None and name not in self._missing:
            self._missing.add(name)
            self._log.warning("the fetch handler's variable has no value yet", variable=name)
        return value
