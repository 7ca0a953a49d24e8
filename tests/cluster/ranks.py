"""A rank of a collective job for tests: joins, adds up ones over all devices, and does what its arguments say.

Called as ``ranks.py RANK ENDPOINTS ACTION...``.
"""

import os
import signal
import sys
import time


def main(rank, endpoints, *actions):
    import jax
    import jax.numpy as jnp

    early = jnp.ones(2) if "late" in actions else None  # JAX is in use before the processes join

    from refluid.runtime import collective
    from refluid.runtime.collective import group as groups
    from refluid.runtime.collective import joining
    from refluid.runtime.collective.roster import Patience

    group = collective.join(endpoints.split(","), rank)
    step = make_step(group)
    group.agree("program", ["mul", "sub" if f"differ{rank}" in actions else "add"])
    print("sum", step(), "devices", len(jax.devices()), flush=True)
    if early is not None:
        print("early", float((early + 1).sum()), flush=True)
    if f"kill{rank}" in actions:
        os.kill(os.getpid(), signal.SIGKILL)
    if "impatient" in actions:  # only now: a busy machine may be slow to begin
        groups.GRACE = 0.5
    if "impatient" in actions and rank == 0:
        joining._joined.hub._roster.patience = Patience(silence=2) if "stop1" in actions else Patience(idle=1)
    if f"sleep{rank}" in actions:
        time.sleep(60)
    while f"loop{rank}" in actions:
        pass
    if f"stop{rank}" in actions:
        os.kill(os.getpid(), signal.SIGSTOP)
    if any(action[-1].isdigit() for action in actions):
        step()
    if "again" in actions:
        collective.leave()
        print("alone", len(jax.devices()), float(jnp.ones(3).sum()), flush=True)
        group = collective.join(endpoints.split(","), rank)
        print("sum", make_step(group)(), flush=True)


def make_step(group):
    import jax
    import numpy as np

    from refluid.runtime.collective.arrays import gather

    return lambda: float(gather(group, np.ones(len(jax.local_devices()))).sum())


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
