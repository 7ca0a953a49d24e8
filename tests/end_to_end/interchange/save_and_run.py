"""Saves the models of models.py, or loads and runs saved ones, with the `paddle` of the interpreter that runs this.

    python save_and_run.py save FOLDER      one folder per model: inference model, parameters, feeds, outputs
    python save_and_run.py run FOLDER       loads each model of FOLDER and writes what it gives into ran.npz beside it
    python save_and_run.py record FOLDER    saves, and packs each model into FOLDER/<model>.zip

With names of models behind FOLDER only these are saved.

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

COMBINED = {"mlp", "lenet", "encoder_block", "several_inputs_and_outputs", "tagger", "loop"}  # parameters in one file
LENGTHS = "lengths_of_"  # what the lengths of sequences are called beside their rows


def params_file(name):
    return "params" if name in COMBINED or name.startswith("optimized_") else None


def save(fluid, build, folder):
    """Builds, runs and saves one model."""
    name = build.__name__
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.core.Scope()):
        feeds, targets = build(fluid)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        models.set_parameters(fluid, main)
        if hasattr(build, "finish"):  # what needs parameters
            build.finish(fluid, main)
        fluid.io.save_inference_model(folder, sorted(feeds), targets, executor, main, params_filename=params_file(name))
        outputs = run(fluid, folder, feeds)
        arrays = as_arrays(dict(feeds, **{"output_{}".format(i): value for i, value in enumerate(outputs)}))
        np.savez_compressed(os.path.join(folder, "data.npz"), **arrays)


def run(fluid, folder, feeds):
    """Loads one model and runs it; an output that is a sequence is (rows, lengths)."""
    name = os.path.basename(os.path.normpath(folder))
    with fluid.scope_guard(fluid.core.Scope()):
        place = fluid.CPUPlace()
        executor = fluid.Executor(place)
        program, names, targets = fluid.io.load_inference_model(folder, executor, None, params_file(name))
        assert names == sorted(feeds), names
        fed = {
            key: fluid.create_lod_tensor(*value, place=place) if isinstance(value, tuple) else value
            for key, value in feeds.items()
        }
        tensors = executor.run(program, feed=fed, fetch_list=targets, return_numpy=False)
        return [(np.array(t), t.recursive_sequence_lengths()) if t.lod() else np.array(t) for t in tensors]


def as_arrays(values):
    """Arrays by name; a sequence becomes its rows and, for each level, its lengths."""
    arrays = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            value, lengths = value
            arrays.update({"{}{}_{}".format(LENGTHS, i, name): np.array(level) for i, level in enumerate(lengths)})
        arrays[name] = value
    return arrays


def from_arrays(arrays):
    """What `as_arrays` was given."""
    values = {}
    for name in arrays:
        if not name.startswith(LENGTHS):
            keys = ["{}{}_{}".format(LENGTHS, i, name) for i in range(9)]
            lengths = [arrays[key].tolist() for key in keys if key in arrays]
            values[name] = (arrays[name], lengths) if lengths else arrays[name]
    return values


def read_values(path):
    with np.load(path) as data:
        return from_arrays(dict(data))


def read_feeds(folder):
    values = read_values(os.path.join(folder, "data.npz"))
    return {name: value for name, value in values.items() if not name.startswith("output_")}


def pack(folder, archive):
    """One zip with fixed dates, so that the same content is the same file."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(os.listdir(folder)):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            with open(os.path.join(folder, name), "rb") as stream:
                packed.writestr(entry, stream.read())


def main(action, folder, *only):
    warnings.simplefilter("ignore")
    traceback.extract_stack = lambda *_, **__: []  # real Fluid saves the stack of every op, with paths of this machine
    import paddle.fluid as fluid

    if action == "run":
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            outputs = run(fluid, path, read_feeds(path))
            arrays = as_arrays({"output_{}".format(i): value for i, value in enumerate(outputs)})
            np.savez(os.path.join(path, "ran.npz"), **arrays)
        return
    target = folder if action == "save" else tempfile.mkdtemp()
    for build in models.MODELS:
        if only and build.__name__ not in only:
            continue
        path = os.path.join(target, build.__name__)
        save(fluid, build, path)
        if action == "record":
            pack(path, os.path.join(folder, build.__name__ + ".zip"))
    if action == "record":
        shutil.rmtree(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
