"""What scripts around Fleet commonly import."""
