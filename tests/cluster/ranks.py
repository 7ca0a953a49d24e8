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
    from refluid.runtime.collective import joining
    from refluid.runtime.collective.roster import Patience

    group = collective.join(endpoints.split(","), rank)
    step = make_step(group)
    group.agree("program", ["mul", "add"])
    print("sum", step(), "devices", len(jax.devices()), flush=True)
    if early is not None:
        print("early", float((early + 1).sum()), flush=True)
    if f"kill{rank}" in actions:
        os.kill(os.getpid(), signal.SIGKILL)
    if "impatient" in actions and rank == 0:
        joining._joined.hub._roster.patience = Patience(idle=1)  # only now: a busy machine may be slow to begin
    if f"stay{rank}" in actions:
        time.sleep(60)  # meets the others no more
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
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("all",))
    total = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.psum(x, "all"), mesh=mesh, in_specs=PartitionSpec("all"), out_specs=PartitionSpec()
        )
    )
    ones = np.ones(len(jax.local_devices()), np.float32)
    fed = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("all")), ones)

    def step():
        with group.step():
            return float(total(fed).addressable_shards[0].data[0])

    return step


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
