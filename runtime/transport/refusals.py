"""What was turned away and why: counted for /metrics, and logged once per reason and caller, not once per message."""

from __future__ import annotations

import threading
import time
from collections import Counter

from refluid.log import Log

TOKEN = "token"  # the call has no token of the job
FOREIGN = "foreign"  # nothing here has such a method
MALFORMED = "malformed"  # the bytes are no message
OVERSIZED = "oversized"  # larger than its form, or what the caller has declared, allows
TOO_MANY = "too_many_calls"  # of one connection, or of all
BUSY = "busy"  # there is no room for the message now; the caller tries again
REASONS = (TOKEN, FOREIGN, MALFORMED, OVERSIZED, TOO_MANY, BUSY)

LONGEST_TEXT = 6000  # bytes of what a caller is told; with more than 8 kB, gRPC may drop the status as well
_AGAIN_AFTER = 60.0  # seconds until the same line may be logged again
_MOST = 256  # lines that are remembered


class Refusals:
    """The refusals of one listener."""

    def __init__(self, log: Log):
        self.counts: Counter[str] = Counter()
        self._log = log
        self._changing = threading.Lock()
        self._logged: dict[tuple[str, str], float] = {}

    def add(self, reason: str, peer: str, **fields: object) -> None:
        """Counts a refusal, and logs it unless it was just logged for this host."""
        key, now = (reason, peer.rpartition(":")[0]), time.monotonic()
        with self._changing:
            self.counts[reason] += 1
            if now - self._logged.get(key, -_AGAIN_AFTER) < _AGAIN_AFTER:
                return
            self._logged[key] = now
            for old in list(self._logged)[:-_MOST]:
                del self._logged[old]
            count = self.counts[reason]
        self._log.warning("refused a message", reason=reason, peer=peer, count=count, **fields)


def told(text: str) -> str:
    """What a caller is told of an error, as much as travels: gRPC writes a byte beyond printable ASCII as three."""
    sent = text.encode("utf-8", "replace")
    size = 0
    for place, byte in enumerate(sent):
        size += 1 if 0x20 <= byte < 0x7F and byte != ord("%") else 3
        if size > LONGEST_TEXT:
            return sent[:place].decode("utf-8", "ignore") + " ..."
    return text
