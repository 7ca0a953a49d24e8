"""Saved models at work: opening, predicting, exporting, inspecting, comparing their forms."""
