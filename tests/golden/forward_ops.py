"""Records the types of all forward ops of real Fluid. Run it with its interpreter:

PYTHONPATH=tests ORACLE/bin/python tests/golden/forward_ops.py
"""

import json
import os

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "forward_ops.json")


def forward_ops(fluid):
    """Every type that can be appended, without gradients and what is made of gradients."""
    types = [proto.type for proto in fluid.framework.get_all_op_protos()]
    return sorted(type for type in types if not type.endswith(("_grad", "_grad2", "_grad_grad")))


if __name__ == "__main__":
    import paddle.fluid

    with open(PATH, "w") as file:
        json.dump(forward_ops(paddle.fluid), file, indent=0)
        file.write("\n")
