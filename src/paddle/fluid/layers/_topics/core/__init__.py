"""Building blocks for writing layers; defines no layers itself."""
