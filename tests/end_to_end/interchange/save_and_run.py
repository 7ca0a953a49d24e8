"""Saves the models of models.py, or loads and runs saved ones, with the `paddle` of the interpreter that runs this.

    python save_and_run.py save FOLDER      one folder per model: inference model, parameters, feeds, outputs
    python save_and_run.py run FOLDER       loads each model of FOLDER and writes what it gives into ran.npz beside it
    python save_and_run.py record FOLDER    saves, and packs each model into FOLDER/<model>.zip

The fixtures were written by real Fluid 1.8.5 with `record tests/end_to_end/fixtures`.
"""

import os
import shutil
import sys
import tempfile
import traceback
import warnings
import zipfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models

COMBINED = {"mlp", "lenet", "encoder_block", "several_inputs_and_outputs"}  # parameters in one file


def params_file(name):
    return "params" if name in COMBINED else None


def save(fluid, build, folder):
    """Builds, runs and saves one model."""
    name = build.__name__
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.core.Scope()):
        feeds, targets = build(fluid)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        models.set_parameters(fluid, main)
        fluid.io.save_inference_model(folder, sorted(feeds), targets, executor, main, params_filename=params_file(name))
        outputs = run(fluid, folder, feeds)
        state = {"output_{}".format(i): value for i, value in enumerate(outputs)}
        np.savez_compressed(os.path.join(folder, "data.npz"), **dict(state, **feeds))


def run(fluid, folder, feeds):
    """Loads one model and runs it."""
    name = os.path.basename(os.path.normpath(folder))
    with fluid.scope_guard(fluid.core.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        program, names, targets = fluid.io.load_inference_model(folder, executor, None, params_file(name))
        assert names == sorted(feeds), names
        return executor.run(program, feed=feeds, fetch_list=targets)


def read_feeds(folder):
    with np.load(os.path.join(folder, "data.npz")) as data:
        return {key: data[key] for key in data.files if not key.startswith("output_")}


def pack(folder, archive):
    """One zip with fixed dates, so that the same content is the same file."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(os.listdir(folder)):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            with open(os.path.join(folder, name), "rb") as stream:
                packed.writestr(entry, stream.read())


def main(action, folder):
    warnings.simplefilter("ignore")
    traceback.extract_stack = lambda *_, **__: []  # real Fluid saves the stack of every op, with paths of this machine
    import paddle.fluid as fluid

    if action == "run":
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            outputs = run(fluid, path, read_feeds(path))
            np.savez(os.path.join(path, "ran.npz"), **{"output_{}".format(i): value for i, value in enumerate(outputs)})
        return
    target = folder if action == "save" else tempfile.mkdtemp()
    for build in models.MODELS:
        path = os.path.join(target, build.__name__)
        save(fluid, build, path)
        if action == "record":
            pack(path, os.path.join(folder, build.__name__ + ".zip"))
    if action == "record":
        shutil.rmtree(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
