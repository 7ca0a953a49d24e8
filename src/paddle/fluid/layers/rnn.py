"""Fluid's module path for cells, `rnn` and decoders on dense tensors."""

from paddle.fluid.layers._topics import find_layer as __getattr__  # noqa: F401
from paddle.fluid.layers._topics.rnn.cells import GRUCell, LSTMCell, RNNCell, rnn
from paddle.fluid.layers._topics.rnn.decoding import BeamSearchDecoder, Decoder, dynamic_decode, gather_tree

__all__ = ["BeamSearchDecoder", "Decoder", "GRUCell", "LSTMCell", "RNNCell", "dynamic_decode", "gather_tree", "rnn"]
