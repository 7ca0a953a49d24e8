"""What runs in a trainer: its session and the exchanges of each training mode."""
