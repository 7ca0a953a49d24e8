"""Records with real Fluid the batches that a dataset of one thread feeds: ORACLE tests/datasets/record_batches.py"""

import json
import os
import tempfile

import numpy as np
import paddle.fluid as fluid
from batch_cases import CASES

HERE = os.path.dirname(os.path.abspath(__file__))


def record(case):

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        variables = [
            fluid.layers.data(name, shape, dtype=dtype, lod_level=lod_level, append_batch_size=False)
            for name, (dtype, lod_level, shape) in sorted(case["slots"].items())
        ]
        order = list(case["slots"])
        variables.sort(key=lambda variable: order.index(variable.name))
        fetched = {variable.name: [] for variable in variables}

        def keep(name):
            def function(tensor):
                array = np.array(tensor)
                lod = tensor.lod()[0] if case["slots"][name][1] else None
                fetched[name].append([lod, list(array.shape), array.ravel().tolist()])

            return function

        for variable in variables:
            fluid.layers.py_func(func=keep(variable.name), x=variable, out=None)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
    files = []
    for number, text in enumerate(case["files"]):
        files.append(os.path.abspath("part-%d" % number))
        with open(files[-1], "w", newline="") as file:
            file.write(text)
    dataset = fluid.DatasetFactory().create_dataset(case["kind"])
    dataset.set_batch_size(case["batch_size"])
    dataset.set_use_var(variables)
    dataset.set_filelist(files)
    if case["kind"] == "InMemoryDataset":
        dataset.load_into_memory()
    exe.infer_from_dataset(main, dataset)
    count = len(fetched[order[0]])
    batches = [{name: fetched[name][batch] for name in order} for batch in range(count)]
    return {"desc": dataset.desc(), "batches": batches}


def main():
    os.chdir(tempfile.mkdtemp())  # real Fluid writes descriptions of trainers to the current folder
    recorded = {name: record(case) for name, case in CASES.items()}
    with open(os.path.join(HERE, "batches.json"), "w") as file:
        json.dump(recorded, file, indent=None, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
