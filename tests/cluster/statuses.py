"""What servers say of themselves, made up."""

import json

from refluid.runtime.observe.waits import as_json


def trainer(number, **changes):
    known = {"trainer": number, "host": f"node{number}:1", "joined": True, "left": False, "last_seen": 1.0, "idle": 2.0}
    return {**known, "doing": "", **changes}


def status(endpoint, waits=(), trainers=None, **changes):
    found = {
        "endpoint": endpoint,
        "mode": "sync",
        "round": 16,
        "waits": as_json(waits),
        "queues": {"inflight_bytes": 0, "inflight_budget": 100 << 20},
        "recovery": None,
        "problem": "",
        "trainers": [trainer(0), trainer(1)] if trainers is None else trainers,
    }
    return json.loads(json.dumps({**found, **changes}))
