"""Loops over steps give the same numbers compiled and on the host, and few compilations serve many lengths."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.fluid as fluid
from refluid.errors import OpError, PaddingWarning
from refluid.executor import Executor
from refluid.ir.protobuf import program_to_bytes
from refluid.lowering.plan import Where, make_plan

layers = fluid.layers


def attentive():
    """A recurrence that looks at all of another sequence in every step: the programs, and what to fetch."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.data("x", [3], lod_level=1)
        y = layers.data("y", [4], lod_level=1)
        x.stop_gradient = y.stop_gradient = False
        first = layers.fc(layers.sequence_pool(y, "average"), 5, act="tanh")
        rnn = layers.DynamicRNN()
        with rnn.block():
            word, beside = rnn.step_input(x), rnn.static_input(y)
            before = rnn.memory(init=first, need_reorder=True)
            weights = layers.sequence_softmax(
                layers.fc(layers.concat([beside, layers.sequence_expand(before, beside)], 1), 1)
            )
            looked = layers.sequence_pool(layers.elementwise_mul(beside, layers.reshape(weights, [-1]), axis=0), "sum")
            after = layers.fc([word, looked, before], 5, act="tanh")
            rnn.update_memory(before, after)
            rnn.output(layers.fc(after, 2, act="softmax"), before)
        results = rnn()
        loss = layers.mean(layers.square(results[0])) + layers.mean(layers.square(results[1]))
        fluid.optimizer.SGD(0.5).minimize(loss)
    return main, startup, [*results, loss.name, "x@GRAD", "y@GRAD"]


def feed_of(lengths, seed=0):
    rng = np.random.default_rng(seed)

    def sequences(lengths, width):
        rows = rng.standard_normal((sum(lengths), width)).astype("float32")
        return fluid.create_lod_tensor(rows, [list(lengths)], fluid.CPUPlace())

    return {"x": sequences(lengths, 3), "y": sequences([length % 3 + 1 for length in lengths], 4)}


def run(program, batches, on_host=False):
    """What every batch gives, and all parameters at the end."""
    main, startup, fetches = program
    scope, executor = fluid.Scope(), Executor()
    names = [fetch if isinstance(fetch, str) else fetch.name for fetch in fetches]
    loops = frozenset(op.attrs["sub_block"].idx for op in main.global_block().ops if op.type == "while" and on_host)
    assert (Where.HOST in pieces(main, names, loops)) == on_host
    executor._eager_loops[main] = loops
    with fluid.scope_guard(scope):
        executor.run(startup)
        found = [executor.run(main, feed=feed, fetch_list=fetches, return_numpy=False) for feed in batches]
        names = sorted(p.name for p in main.all_parameters())
        return found, [np.array(scope.find_var(name).get_tensor()) for name in names]


PROGRAM = attentive()


@pytest.mark.filterwarnings("ignore::refluid.errors.RecompileWarning")
def test_compiled_loops_and_loops_on_the_host_agree():
    batches = [feed_of([3, 0, 6, 1], 1), feed_of([1, 6, 0, 3], 2)]
    (compiled, learned), (exact, also_learned) = run(PROGRAM, batches), run(PROGRAM, batches, on_host=True)
    for ours, theirs in zip([*compiled, learned], [*exact, also_learned], strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.array(mine), np.array(other), rtol=2e-5, atol=1e-6)


def pieces(program, fetches, eager_loops=frozenset()):
    plan = make_plan(program.global_block(), [str(f) for f in fetches], eager_loops=eager_loops)
    return [piece.where for piece in plan.pieces]


def test_a_dynamic_rnn_is_one_compiled_piece_with_its_gradient():
    main, _, fetches = PROGRAM
    names = [fetch if isinstance(fetch, str) else fetch.name for fetch in fetches]
    assert pieces(main, names) == [Where.COMPILED]


def test_a_loop_that_cannot_be_compiled_is_a_fact_of_the_plan_and_not_of_the_program():
    main, _, fetches = simple(lambda rnn, word: rnn.output(layers.softmax(word, axis=0)))
    (loop,) = [op for op in main.global_block().ops if op.type == "while"]
    before, attributes = program_to_bytes(main), dict(vars(loop))
    feed = {"x": fluid.create_lod_tensor(np.ones((6, 3), "float32"), [[2, 1, 3]], fluid.CPUPlace())}
    with pytest.warns(PaddingWarning):
        Executor().run(main, feed=feed, fetch_list=fetches, return_numpy=False)
    assert (program_to_bytes(main), vars(loop)) == (before, attributes)
    names = [str(getattr(fetch, "name", fetch)) for fetch in fetches]
    assert pieces(main, names) == [Where.COMPILED]
    plan = make_plan(main.global_block(), names, eager_loops=frozenset([loop.attrs["sub_block"].idx]))
    assert Where.HOST in [piece.where for piece in plan.pieces]


def simple(body, width=3):
    """A recurrence over x, described by ``body(rnn, word)``: the program and its results."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.data("x", [width], lod_level=1)
        x.stop_gradient = False
        rnn = layers.DynamicRNN()
        with rnn.block():
            body(rnn, rnn.step_input(x))
        result = rnn()
        fluid.backward.append_backward(layers.reduce_sum(layers.square(result)))
    return main, startup, [result, "x@GRAD"]


def sums(rnn, word):
    before = rnn.memory(shape=[3])
    after = word + before
    rnn.update_memory(before, after)
    rnn.output(after)


def test_batches_of_many_lengths_settle_to_few_compilations():
    main, _, fetches = simple(sums)
    rng = np.random.default_rng(0)
    executor = Executor()
    for i in range(40):
        lengths = rng.integers(5, 81, 8).tolist()
        rows = rng.standard_normal((sum(lengths), 3)).astype("float32")
        feed = {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}
        result, _ = executor.run(main, feed=feed, fetch_list=fetches, return_numpy=False)
        expected = np.concatenate([np.cumsum(each, 0) for each in np.split(rows, np.cumsum(lengths)[:-1])])
        np.testing.assert_allclose(np.array(result), expected, rtol=1e-4, atol=1e-5, err_msg=str(i))
    assert executor.compilations <= 8


def test_a_loop_with_an_op_that_mixes_rows_runs_on_the_host_and_says_so():
    def body(rnn, word):
        rnn.output(layers.softmax(word, axis=0))

    main, _, fetches = simple(body)
    rows = np.arange(18, dtype="float32").reshape(6, 3)
    feed = {"x": fluid.create_lod_tensor(rows, [[2, 1, 3]], fluid.CPUPlace())}
    with pytest.warns(PaddingWarning, match="softmax mixes rows .* iteration by iteration"):
        result, gradient = Executor().run(main, feed=feed, fetch_list=fetches, return_numpy=False)
    for step in ([0, 2, 3], [1, 4], [5]):
        chances = np.exp(rows[step]) / np.exp(rows[step]).sum(0)
        np.testing.assert_allclose(np.array(result)[step], chances, rtol=1e-5)
    assert np.array(gradient).shape == rows.shape


def test_programs_of_real_fluid_do_not_name_what_the_loop_overwrites():
    main, _, (result, _) = simple(sums)
    feed = {"x": fluid.create_lod_tensor(np.ones((5, 3), "float32"), [[2, 3]], fluid.CPUPlace())}
    for op in (op for block in main.blocks for op in block.ops):
        op.inputs.pop("Array", None)
        if op.type == "while":
            op.inputs["X"] = [name for name in op.inputs["X"] if "output_array" not in name]
    loaded = fluid.Program.parse_from_string(program_to_bytes(main.clone(for_test=True)))
    assert pieces(loaded, [result.name]) == [Where.COMPILED]
    (found,) = Executor().run(loaded, feed=feed, fetch_list=[result.name], return_numpy=False)
    assert np.array(found)[:, 0].tolist() == [1, 2, 1, 2, 3]


def nested():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = layers.data("x", [2], lod_level=2)
        x.stop_gradient = False
        outer = layers.DynamicRNN()
        with outer.block():
            sentences, document = outer.step_input(x), outer.memory(shape=[3])
            inner = layers.DynamicRNN()
            with inner.block():
                word, before = inner.step_input(sentences), inner.memory(shape=[3])
                hidden = layers.fc([word, before], 3, act="tanh")
                inner.update_memory(before, hidden)
                inner.output(hidden)
            after = layers.fc([layers.sequence_last_step(inner()), document], 3, act="tanh")
            outer.update_memory(document, after)
            outer.output(after)
        result = outer()
        loss = layers.reduce_sum(layers.square(result))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup, [result, "x@GRAD"]


@pytest.mark.filterwarnings("ignore::refluid.errors.RecompileWarning")
def test_a_recurrence_in_a_recurrence_differentiates_compiled_and_on_the_host():
    program = nested()
    assert pieces(program[0], [program[2][0].name, "x@GRAD"]) == [Where.COMPILED]
    rows = np.random.default_rng(1).standard_normal((12, 2)).astype("float32")
    feed = {"x": fluid.create_lod_tensor(rows, [[1, 3, 2], [2, 1, 2, 3, 1, 3]], fluid.CPUPlace())}
    (compiled, learned), (exact, also_learned) = run(program, [feed]), run(program, [feed], on_host=True)
    for mine, other in zip([*compiled[0], *learned], [*exact[0], *also_learned], strict=True):
        np.testing.assert_allclose(np.array(mine), np.array(other), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda rnn, word: rnn.update_memory(word, word), "is not a memory"),
        (lambda rnn, word: rnn.memory(), "needs init or shape"),
        (lambda rnn, word: rnn(), "after its block"),
    ],
)
def test_a_recurrence_says_what_is_missing(body, message):
    with pytest.raises(ValueError, match=message):
        simple(body)


def test_a_recurrence_begins_with_a_step_input():
    rnn = layers.DynamicRNN()
    with pytest.raises(RuntimeError, match="after the first step_input"), rnn.block():
        rnn.static_input(layers.data("y", [2]))
    with pytest.raises(ValueError, match="at least one step_input"), layers.DynamicRNN().block():
        pass
    with pytest.raises(ValueError, match="must be called inside"):
        layers.DynamicRNN().step_input(layers.data("z", [2], lod_level=1))


def test_a_step_input_must_be_sequences():
    main, _, fetches = simple(sums)
    with pytest.raises(OpError, match="must hold sequences"):
        Executor().run(main, feed={"x": np.ones((4, 3), "float32")}, fetch_list=fetches)
