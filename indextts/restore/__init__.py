"""What a checkpoint allows, which one is meant, and what is said of it; no torch."""
