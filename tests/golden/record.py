"""Records what real Fluid answers to the golden cases. Run it with the oracle's interpreter:

    PYTHONPATH=tests ORACLE/bin/python tests/golden/record.py [family ...]

Each family of cases/ becomes one data/<family>.npz. A case that real Fluid cannot run stops the recording.
"""

import importlib
import os
import sys
import traceback

import numpy as np

from golden import runner
from golden.case import case_ids

HERE = os.path.dirname(os.path.abspath(__file__))


def record(fluid, family):
    cases = importlib.import_module("golden.cases." + family).CASES
    data, failed = {}, []
    for name, case in zip(case_ids(cases), cases):
        try:
            results = runner.run(fluid, case)
        except Exception as error:  # every failing case is worth seeing in one go
            traceback.print_exc()
            failed.append("%s: %s" % (name, str(error).strip().splitlines()[-1:]))
            continue
        data.update({name + "|" + key: value for key, value in results.items()})
    if failed:
        raise SystemExit(
            "real Fluid can't run %d of %d cases of %s:\n  %s" % (len(failed), len(cases), family, "\n  ".join(failed))
        )
    path = os.path.join(HERE, "data", family + ".npz")
    np.savez_compressed(path, **data)
    print("%s: %d cases, %d bytes" % (family, len(cases), os.path.getsize(path)))


def main():
    import paddle.fluid as fluid

    families = sys.argv[1:] or sorted(
        f[:-3] for f in os.listdir(os.path.join(HERE, "cases")) if f.endswith(".py") and f != "__init__.py"
    )
    for family in families:
        record(fluid, family)


if __name__ == "__main__":
    main()
