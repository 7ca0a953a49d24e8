"""Fluid's module path of cells, `rnn` and decoders on dense tensors."""

from paddle.fluid.layers._topics.control.decoding import BeamSearchDecoder, Decoder, dynamic_decode, gather_tree
from paddle.fluid.layers._topics.nn.rnn_cells import GRUCell, LSTMCell, RNNCell, rnn

__all__ = [
    "BeamSearchDecoder",
    "Decoder",
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "dynamic_decode",
    "gather_tree",
    "rnn",
]
