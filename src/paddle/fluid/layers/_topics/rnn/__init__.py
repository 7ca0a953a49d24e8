"""Recurrent layers, cells, decoders and beam search."""
