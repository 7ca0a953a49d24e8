"""Programs that compute with few bits: trained with rounded values, then frozen for inference."""
