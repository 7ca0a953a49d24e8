"""Small synthetic datasets in the format of the real ones, for machines without a network.

The environment variable REFLUID_SYNTHETIC_DATA=1 makes every dataset of `paddle.dataset` read these bytes instead of
downloaded files; the same parser reads both. The content is the same in every run, and a model can learn it. There is a
module for each kind of data.
"""

from __future__ import annotations

import os

SWITCH = "REFLUID_SYNTHETIC_DATA"


def wanted() -> bool:
    """Whether the user asked for synthetic data."""
    return os.environ.get(SWITCH, "") not in ("", "0", "false", "False")
