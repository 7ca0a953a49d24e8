"""Cells and `rnn` on dense tensors, and decoding step by step."""

import numpy as np

from golden.case import Case, LayerCase, Lod, f32, ints, layer_case

CASES = [
    Case("gather_tree", {"Ids": ints(4, 2, 3, high=9), "Parents": ints(4, 2, 3, high=3, salt=1)}),
    Case("gather_tree", {"Ids": ints(1, 1, 2, high=9), "Parents": ints(1, 1, 2, high=2, salt=1)}, name="one-step"),
]

LENGTHS = np.array([2, 4, 1], "int32")


@layer_case(CASES, x=f32(3, 4, 2))
def rnn_of_gru_cells(fluid, x):
    outputs, state = fluid.layers.rnn(fluid.layers.GRUCell(3), x)
    return [outputs, state]


@layer_case(CASES, x=f32(3, 4, 2), lengths=LENGTHS, first=f32(3, 3, salt=1))
def rnn_of_gru_cells_backwards_with_lengths(fluid, x, lengths, first):
    cell = fluid.layers.GRUCell(3, name="backwards")
    outputs, state = fluid.layers.rnn(cell, x, initial_states=first, sequence_length=lengths, is_reverse=True)
    return [outputs, state]


@layer_case(CASES, x=f32(3, 4, 2), lengths=LENGTHS)
def rnn_of_lstm_cells(fluid, x, lengths):
    cell = fluid.layers.LSTMCell(3, forget_bias=0.5, activation=fluid.layers.relu)
    outputs, (hidden, memory) = fluid.layers.rnn(cell, x, sequence_length=lengths)
    return [outputs, hidden, memory]


@layer_case(CASES, x=f32(4, 3, 2))
def rnn_with_time_first_and_named_parameters(fluid, x):
    weight, bias = fluid.ParamAttr(name="weight"), fluid.ParamAttr(name="bias")
    cell = fluid.layers.GRUCell(3, param_attr=weight, bias_attr=bias)
    outputs, state = fluid.layers.rnn(cell, x, time_major=True)
    return [outputs, state]


@layer_case(CASES, x=f32(3, 4, 2), y=f32(3, 4, 2, salt=1))
def rnn_of_a_cell_of_ones_own(fluid, x, y):
    layers = fluid.layers

    class Sums(layers.RNNCell):
        def call(self, inputs, states, factor=1.0):
            total = inputs[0] + inputs[1] + layers.scale(states, factor)
            return {"total": total, "doubled": layers.scale(total, 2.0)}, total

        @property
        def state_shape(self):
            return [2]

    cell = Sums()
    outputs, state = layers.rnn(cell, [x, y], initial_states=cell.get_initial_states(x), factor=0.5)
    return [outputs["total"], outputs["doubled"], state]


def decoded(fluid, first, kind, beam_size, **options):
    layers = fluid.layers
    first = layers.sequence_first_step(first)
    cell = layers.GRUCell(4) if kind == "gru" else layers.LSTMCell(4)
    inits = layers.fc(first, 4, act="tanh") if kind == "gru" else cell.get_initial_states(first, init_value=0.5)
    decoder = layers.BeamSearchDecoder(
        cell,
        start_token=2,
        end_token=1,
        beam_size=beam_size,
        embedding_fn=lambda ids: fluid.embedding(ids, [6, 3], param_attr=fluid.ParamAttr(name="words")),
        output_fn=lambda x: layers.fc(
            x, 6, num_flatten_dims=2, param_attr=fluid.ParamAttr(name="scores"), bias_attr=False
        ),
    )
    ids, states, lengths = layers.dynamic_decode(decoder, inits=inits, return_length=True, **options)
    return [ids, lengths, states.log_probs, states.finished, states.lengths]


for _name, _kind, _beam, _options in (
    ("beam_search_decoder_with_gru_cell", "gru", 2, {"max_step_num": 5}),
    ("beam_search_decoder_with_lstm_cell", "lstm", 3, {"max_step_num": 4, "output_time_major": True}),
    ("beam_search_decoder_that_keeps_finished_states", "gru", 3, {"max_step_num": 5, "impute_finished": True}),
):

    def _build(fluid, first, kind=_kind, beam=_beam, options=_options):
        return decoded(fluid, first, kind, beam, **options)

    CASES.append(LayerCase(_name, _build, {"first": Lod(f32(2, 3, salt=_name), [[1, 1]])}, grads=False))
