"""Points at which a test may kill the process, to see what a crash there leaves behind.

With ``REFLUID_KILL_AT=N`` in the environment the process ends itself at the Nth fault point it passes, with SIGKILL, so
that nothing is flushed, closed or removed on the way out; with ``REFLUID_KILL_AT=NAME:N``, at the Nth point of that
name. Without it a fault point does nothing. A test tries N = 1, 2, 3, … until the process survives: then every point
has been tried.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_passed: Counter[str] = Counter()


def fault_point(name: str) -> None:
    """Stands between two writes; kills the process if the environment says that this is the one.

    Args:
      name: what comes next, or has just been done: write, written, synced, rename, renamed, upload, uploaded, remove.
    """
    kill_at = os.environ.get("REFLUID_KILL_AT")
    if not kill_at:
        return
    kind, _, number = kill_at.rpartition(":")
    _passed[name] += 1
    passed = _passed[kind] if kind else _passed.total()
    if passed == int(number) and kind in ("", name):
        os.kill(os.getpid(), signal.SIGKILL)
