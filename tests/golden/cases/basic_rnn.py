"""basic_gru and basic_lstm of contrib: names of parameters, results and gradients."""

import numpy as np

from golden.case import f32, layer_case

CASES = []
LENGTHS = np.array([3, 5], "int32")


@layer_case(CASES, x=f32(2, 5, 3))
def basic_gru(fluid, x):
    return fluid.contrib.layers.basic_gru(x, None, 4)


@layer_case(CASES, x=f32(5, 2, 3), start=f32(4, 2, 4))
def basic_gru_of_two_layers_and_directions(fluid, x, start):
    weight, bias = fluid.ParamAttr(name="weight"), fluid.ParamAttr(name="bias")
    return fluid.contrib.layers.basic_gru(
        x, start, 4, num_layers=2, bidirectional=True, batch_first=False, param_attr=weight, bias_attr=bias
    )


@layer_case(CASES, x=f32(2, 5, 3), lengths=LENGTHS)
def basic_gru_of_different_lengths(fluid, x, lengths):
    layers = fluid.layers
    return fluid.contrib.layers.basic_gru(
        x,
        None,
        4,
        num_layers=2,
        sequence_length=lengths,
        bidirectional=True,
        gate_activation=layers.relu,
        activation=layers.sigmoid,
        name="other",
    )


@layer_case(CASES, x=f32(2, 5, 3))
def basic_lstm(fluid, x):
    return fluid.contrib.layers.basic_lstm(x, None, None, 4, forget_bias=0.5)


@layer_case(CASES, x=f32(5, 2, 3), hidden=f32(4, 2, 4), cell=f32(4, 2, 4, salt=1))
def basic_lstm_of_two_layers_and_directions(fluid, x, hidden, cell):
    weight, bias = fluid.ParamAttr(name="weight"), fluid.ParamAttr(name="bias")
    return fluid.contrib.layers.basic_lstm(
        x, hidden, cell, 4, num_layers=2, bidirectional=True, batch_first=False, param_attr=weight, bias_attr=bias
    )


@layer_case(CASES, x=f32(2, 5, 3), lengths=LENGTHS)
def basic_lstm_of_different_lengths(fluid, x, lengths):
    return fluid.contrib.layers.basic_lstm(
        x, None, None, 4, num_layers=2, sequence_length=lengths, bidirectional=True, name="other"
    )


@layer_case(CASES, x=f32(2, 3), hidden=f32(2, 4), cell=f32(2, 4, salt=1))
def basic_units(fluid, x, hidden, cell):
    contrib = fluid.contrib.layers
    gru = contrib.BasicGRUUnit("gru", 4)(x, hidden)
    return [gru] + list(contrib.BasicLSTMUnit("lstm", 4, forget_bias=0.3)(x, gru, cell))


@layer_case(CASES, check="shapes", grads=False, x=f32(2, 5, 3))
def basic_rnns_with_dropout(fluid, x):
    contrib = fluid.contrib.layers
    gru, _ = contrib.basic_gru(x, None, 4, num_layers=2, dropout_prob=0.3)
    lstm, _, _ = contrib.basic_lstm(gru, None, None, 3, num_layers=2, dropout_prob=0.3)
    return [gru, lstm]
