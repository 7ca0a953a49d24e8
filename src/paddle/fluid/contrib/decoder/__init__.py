"""Decoders that share one definition of a step between training and beam search."""

from paddle.fluid.contrib.decoder import beam_search_decoder
from paddle.fluid.contrib.decoder.beam_search_decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "beam_search_decoder"]
