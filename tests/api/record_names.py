"""Writes names_1_8_5.txt: the modules of real Fluid 1.8.5 and the names they export. Runs on Python 3.7.

ORACLE/bin/python tests/api/record_names.py
"""

import importlib
import os
import pkgutil
import warnings

import paddle

# Protocol buffers, compiled libraries, and the tests that the wheel contains.
LEFT_OUT = (".tests", ".proto.", ".libs", "_pb2", "test_data_generator", "core_avx", "core_noavx")


def modules():
    yield "paddle"
    for found in pkgutil.walk_packages(paddle.__path__, "paddle."):
        if not any(part in found.name for part in LEFT_OUT):
            yield found.name


def record():
    warnings.simplefilter("ignore")
    lines = []
    for name in modules():
        try:
            module = importlib.import_module(name)
        except Exception:  # noqa: BLE001 - needs a package that is not installed, or a GPU
            continue
        names = sorted(n for n in getattr(module, "__all__", ()) if n.isidentifier())
        lines.append(" ".join([name, *names]))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "names_1_8_5.txt"), "w") as file:
        file.write("# The modules of Fluid 1.8.5, each with the names it exports. Written by record_names.py.\n")
        file.write("\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    record()
