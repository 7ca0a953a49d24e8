"""What readers deliver: batches in order, where passes end, and the programs that read. Real Fluid's are recorded by:

PYTHONPATH=tests ORACLE/bin/python tests/golden/readers.py
"""

import itertools
import json
import os

import numpy as np

SHAPES, DTYPES, LEVELS = [[-1, 3], [-1, 1], [-1, 1]], ["float32", "int64", "int64"], [0, 0, 1]


def samples(count):
    """A reader of samples: three floats, a number, a sequence of one to three words."""
    return lambda: ((np.arange(3.0) + i, i, list(range(i, i + i % 3 + 1))) for i in range(count))


def lists(count, size, last=0):
    """A reader of lists of samples; the last list may be shorter."""

    def read():
        every = samples(count * size + last)()
        while True:
            batch = list(itertools.islice(every, size))
            if not batch:
                return
            yield batch

    return read


def arrays(count):
    """A reader of batches."""

    def read():
        for i in range(count):
            yield np.full((2, 3), i, "float32"), np.full((2, 1), i), np.full((3, 1), i)

    return read


def variables(fluid):
    return [
        fluid.data("x", [None, 3]),
        fluid.layers.data("y", [1], dtype="int64"),
        fluid.layers.data("z", [1], dtype="int64", lod_level=1),
    ]


def described(fluid, value):
    """Arrays, tensors and containers of them, as JSON knows them."""
    if isinstance(value, dict):
        return {name: described(fluid, each) for name, each in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [described(fluid, each) for each in value]
    array = np.array(value)
    lod = value.lod() if isinstance(value, fluid.core.LoDTensor) else []
    return [str(array.dtype), list(array.shape), lod, array.ravel().tolist()]


# Loaders that a loop iterates over. A case has the options of the loader, the method that sets the generator, its
# arguments, and how many places there are.
LOADERS = {
    "samples": ({}, "sample_generator", (samples(7), 2), 1),
    "samples, last kept": ({}, "sample_generator", (samples(7), 2, False), 1),
    "samples, none left": ({}, "sample_generator", (samples(6), 2, False), 1),
    "fewer samples than a batch": ({}, "sample_generator", (samples(1), 2), 1),
    "lists": ({}, "sample_list_generator", (lists(3, 2),), 1),
    "lists, shorter last": ({}, "sample_list_generator", (lists(2, 3, last=1),), 1),
    "batches": ({}, "batch_generator", (arrays(3),), 1),
    "no batches": ({}, "batch_generator", (arrays(0),), 1),
    "as lists": ({"return_list": True}, "sample_list_generator", (lists(2, 2),), 1),
    "two places": ({}, "sample_list_generator", (lists(5, 2),), 2),
    "two places, last kept": ({"drop_last": False}, "sample_list_generator", (lists(5, 2),), 2),
    "two places as lists": ({"return_list": True}, "batch_generator", (arrays(4),), 2),
}


def loaded(fluid, case):
    """Two passes over a loader, and the beginning of a third."""
    options, method, arguments, places = LOADERS[case]
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loader = fluid.io.DataLoader.from_generator(variables(fluid), 2, iterable=True, **options)
        getattr(loader, "set_" + method)(*arguments, places=[fluid.CPUPlace()] * places)
        passes = [[described(fluid, data) for data in loader()] for _ in range(2)]
        assert passes[0] == passes[1]
        begun = [described(fluid, data) for data in itertools.islice(loader(), 1)]
        assert begun == passes[0][:1]
    if "drop_last" not in options and not options.get("return_list"):
        assert passes[0] == _decorated(fluid, method, arguments, places)
    return passes[0]


def _decorated(fluid, method, arguments, places):
    """The same from a PyReader."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        reader = fluid.io.PyReader(variables(fluid), 2, iterable=True)
        getattr(reader, "decorate_" + method)(*arguments, places=[fluid.CPUPlace()] * places)
        return [described(fluid, data) for data in reader()]


def from_layer(fluid, double):
    reader = fluid.layers.py_reader(2, SHAPES, DTYPES, LEVELS, use_double_buffer=double)
    return reader, fluid.layers.read_file(reader)


def from_named_layer(fluid, double):
    reader = fluid.layers.py_reader(2, SHAPES, DTYPES, LEVELS, name="train", use_double_buffer=double)
    return reader, fluid.layers.read_file(reader)


def from_data(fluid, double):
    reader = fluid.layers.create_py_reader_by_data(2, variables(fluid), use_double_buffer=double)
    return reader, fluid.layers.read_file(reader)


def from_buffered(fluid, double):
    reader = fluid.layers.py_reader(2, SHAPES, DTYPES, LEVELS, use_double_buffer=double)
    return reader, fluid.layers.read_file(fluid.layers.double_buffer(reader))


def from_py_reader(fluid, double):
    fed = variables(fluid)
    return fluid.io.PyReader(fed, 2, use_double_buffer=double, iterable=False), fed


def from_loader(fluid, double):
    fed = variables(fluid)
    return fluid.io.DataLoader.from_generator(fed, 2, use_double_buffer=double, iterable=False), fed


# Readers that are part of a program: how to make one, and the method that sets its generator.
_LISTS, _BATCHES = "decorate_sample_list_generator", "decorate_batch_generator"
PROGRAMS = {
    "py_reader": (from_layer, "decorate_paddle_reader", lists(2, 2, last=1)),
    "py_reader, named": (from_named_layer, _LISTS, lists(2, 2)),
    "py_reader of batches": (from_layer, "decorate_tensor_provider", arrays(3)),
    "py_reader by data": (from_data, _BATCHES, arrays(2)),
    "double_buffer": (from_buffered, _BATCHES, arrays(2)),
    "PyReader": (from_py_reader, _LISTS, lists(2, 2, last=1)),
    "PyReader of batches": (from_py_reader, _BATCHES, arrays(2)),
    "DataLoader": (from_loader, "set_sample_list_generator", lists(2, 2, last=1)),
    "DataLoader of batches": (from_loader, "set_batch_generator", arrays(1)),
}


def read(fluid, case):
    """What passes read, up to their ends or a reset; and the program's operators."""
    make, method, generator = PROGRAMS[case]
    found = {}
    for double in (True, False):
        main, startup = fluid.Program(), fluid.Program()
        scope = fluid.core.Scope()
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
            reader, fetched = make(fluid, double)
            getattr(reader, method)(generator)
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            passes = []
            # Real Fluid's py_reader without a double buffer does not survive a reset before the end of a pass.
            for limit in (None, 1, None) if double else (None, None):
                reader.start()
                passes.append(_until_end(fluid, exe, main, fetched, limit))
                reader.reset()
        found["double" if double else "single"] = {
            "passes": passes,
            "startup": _text(startup),
            "main": _text(main),
            "test": _text(main.clone(for_test=True)),
        }
    return found


def _until_end(fluid, exe, program, fetched, limit):
    batches = []
    while limit is None or len(batches) < limit:
        try:
            results = exe.run(program, fetch_list=list(fetched), return_numpy=False)
        except fluid.core.EOFException:
            return [*batches, "end"]
        batches.append(described(fluid, results))
    return batches


def _text(program):
    """The operators that handle readers, with numbers in the names of loaders' readers counted from the first."""
    lines, numbers = [], {}
    for op in program.global_block().ops:
        slots = [sorted((slot, op.input(slot)) for slot in op.input_names), op.output("Out")]
        ignored = ("op_", "device_", "use_data_config", "drop_last", "throw_eof_exp", "infer_out")
        attrs = {n: v for n, v in op.all_attrs().items() if not n.startswith(ignored)}
        lines.append(json.loads(json.dumps([op.type, slots, sorted(attrs.items())])))
    return [_renumbered(line, numbers) for line in lines]


def _renumbered(value, numbers):
    if isinstance(value, list):
        return [_renumbered(each, numbers) for each in value]
    kind, _, number = value.rpartition("_") if isinstance(value, str) else ("", "", "")
    if kind in ("lod_tensor_blocking_queue", "create_py_reader", "double_buffer"):
        return f"{kind}_{numbers.setdefault(number, len(numbers))}"
    return value


def everything(fluid):
    return {
        "loaders": {case: loaded(fluid, case) for case in LOADERS},
        "programs": {case: read(fluid, case) for case in PROGRAMS},
    }


RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "readers.json")

if __name__ == "__main__":
    import paddle.fluid

    with open(RECORDED, "w") as file:
        json.dump(everything(paddle.fluid), file, sort_keys=True)
        file.write("\n")
