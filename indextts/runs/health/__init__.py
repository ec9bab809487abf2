"""Health checks of a run: pure functions of its directory, with findings in plain words."""
