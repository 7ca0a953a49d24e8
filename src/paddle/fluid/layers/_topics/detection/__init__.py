"""Layers for detection: boxes, priors, regions of interest and losses."""
