"""Records files of single tensors and of a training state, as real Fluid writes them. Run it with real Fluid:

    python record_files.py tests/end_to_end/fixtures

tensors.zip: a tensor of each dtype that can be saved, one as float16, one with two levels of sequences, selected rows.
state.zip: what fluid.save writes after three steps of Adam, and the loss of three more. Runs under Python 3.7.
"""

import os
import sys
import tempfile

import numpy as np
import save_and_run

DTYPES = ["int8", "int16", "int32", "int64", "float32", "float64"]  # those that real Fluid's save op knows


def value_of(dtype):
    """Six numbers, -2 to 3, as far as the dtype has them."""
    return np.arange(-2, 4).astype(dtype).reshape(2, 3)


def save_variable(fluid, executor, variable, folder, **attrs):
    program = fluid.Program()
    block = program.global_block()
    block.append_op(
        type="save",
        inputs={"X": [block.create_var(name=variable.name, type=variable.type, persistable=True)]},
        attrs=dict(attrs, file_path=os.path.join(folder, variable.name)),
    )
    executor.run(program)


def record_tensors(fluid, folder):
    place, block = fluid.CPUPlace(), fluid.Program().global_block()
    executor, scope = fluid.Executor(place), fluid.global_scope()
    for dtype in DTYPES:
        scope.var(dtype).get_tensor().set(value_of(dtype), place)
        save_variable(fluid, executor, block.create_var(name=dtype, dtype=dtype), folder)
    scope.var("float16").get_tensor().set(value_of("float32"), place)
    half = block.create_var(name="float16", dtype="float32")
    save_variable(fluid, executor, half, folder, save_as_fp16=True)
    sequences = scope.var("sequences").get_tensor()
    sequences.set(value_of("float32").reshape(6, 1), place)
    sequences.set_lod([[0, 2, 3], [0, 1, 4, 6]])
    save_variable(fluid, executor, block.create_var(name="sequences", dtype="float32"), folder)
    rows = scope.var("rows").get_selected_rows()
    rows.set_rows([4, 0])
    rows.set_height(9)
    rows.get_tensor().set(value_of("float32"), place)
    kind = fluid.core.VarDesc.VarType.SELECTED_ROWS
    save_variable(fluid, executor, block.create_var(name="rows", type=kind), folder)


def build_training(fluid):
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    predicted = fluid.layers.fc(fluid.layers.fc(x, 5, act="tanh"), 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))
    rate = fluid.layers.exponential_decay(0.1, decay_steps=2, decay_rate=0.5)
    fluid.optimizer.Adam(rate).minimize(loss)
    return loss


def feed_of(step):
    random = np.random.RandomState(step)
    return {"x": random.rand(8, 4).astype("float32"), "y": random.rand(8, 1).astype("float32")}


def record_state(fluid, folder):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build_training(fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    for step in range(3):
        executor.run(main, feed=feed_of(step), fetch_list=[loss])
    fluid.save(main, os.path.join(folder, "model"))
    losses = [executor.run(main, feed=feed_of(step), fetch_list=[loss])[0] for step in range(3, 6)]
    np.savez(os.path.join(folder, "losses.npz"), losses=np.concatenate(losses))


def main(folder):
    import paddle.fluid as fluid

    save_and_run.traceback.extract_stack = lambda *_, **__: []  # see save_and_run
    for name, record in (("tensors", record_tensors), ("state", record_state)):
        path = tempfile.mkdtemp()
        record(fluid, path)
        save_and_run.pack(path, os.path.join(folder, name + ".zip"))


if __name__ == "__main__":
    main(sys.argv[1])
