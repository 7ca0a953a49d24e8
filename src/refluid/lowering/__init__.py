"""From blocks to XLA: which ops run where, the interpreter that traces them, and the compiled steps."""
