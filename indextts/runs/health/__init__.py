"""Health of a run: what is wrong with it, in words that need no expert; pure functions of its directory."""
