"""Points at which a test may kill the process, to see what a crash there leaves behind.

With ``REFLUID_KILL_AT=N`` in the environment the process ends itself at the Nth fault point it passes, with SIGKILL, so
that nothing is flushed, closed or removed on the way out. Without it a fault point does nothing. A test tries
N = 1, 2, 3, … until the process survives: then every point has been tried.
"""

from __future__ import annotations

import itertools
import os
import signal

_passed = itertools.count(1)


def fault_point() -> None:
    """Stands between two writes; kills the process if the environment says that this is the one."""
    kill_at = os.environ.get("REFLUID_KILL_AT")
    if kill_at and next(_passed) == int(kill_at):
        os.kill(os.getpid(), signal.SIGKILL)
