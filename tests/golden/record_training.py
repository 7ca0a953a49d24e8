"""Records what real Fluid computes in the training cases. Run it with the oracle's interpreter:

    PYTHONPATH=tests ORACLE/bin/python tests/golden/record_training.py [small|models|books|translation|decoders|...]

Each group of train_cases.py becomes data/training_<group>.npz.
"""

import os
import sys

import numpy as np

from golden import training
from golden.train_cases import GROUPS

HERE = os.path.dirname(os.path.abspath(__file__))


def advance_beta_powers_after_adam(program):
    """Gives adam ops with sparse gradients the form they have in 1.5.

    Real 1.8.5 overwrites the beta powers before it reads them when the gradient is sparse, so that every step is
    taken with the powers of the next one. In 1.5, for which scripts were written, scale ops advance them afterwards.
    """
    block = program.global_block()
    sparse = [op for op in block.ops if op.type == "adam" and block.var(op.input("Grad")[0]).type == 8]
    for op in sparse:
        for slot, attr in (("Beta1Pow", "beta1"), ("Beta2Pow", "beta2")):
            power = block.var(op.input(slot)[0])
            scratch = block.create_var(name=power.name + "_scratch", shape=[1], dtype="float32")
            op.desc.set_output(slot + "Out", [scratch.name])
            block.append_op(type="scale", inputs={"X": power}, outputs={"Out": power}, attrs={"scale": op.attr(attr)})


def record(fluid, group):
    data = {}
    for case in GROUPS[group]:
        print(case.name)
        results = training.run(fluid, case, advance_beta_powers_after_adam)
        data.update({case.name + "|" + key: value for key, value in results.items()})
        assert np.isfinite(results["fetch/0"]).all(), case.name
    path = os.path.join(HERE, "data", f"training_{group}.npz")
    np.savez_compressed(path, **data)
    print(f"{group}: {len(GROUPS[group])} cases, {os.path.getsize(path)} bytes")


def main():
    import paddle.fluid as fluid

    for group in sys.argv[1:] or sorted(GROUPS):
        record(fluid, group)


if __name__ == "__main__":
    main()
