"""Detection: boxes, priors, regions of interest and losses."""
