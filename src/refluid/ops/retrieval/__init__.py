"""Ops of search and recommendation: matching of texts, trees of items, tags and ranks of samples."""
