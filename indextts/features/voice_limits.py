"""How long a recording may be that says how a voice sounds. No torch here."""

from pathlib import Path

from indextts.errors import UserError

MAX_REFERENCE_S = 15  # what the published model listens to
SHORT_REFERENCE_S = 3.0
MIN_REFERENCE_S = 1.0
MAX_RECORDING_S = 600.0


def require_fitting_length(path: Path, duration_s: float) -> None:
    """Raise a UserError unless a voice can be taken from a recording of this length."""
    if not MIN_REFERENCE_S <= duration_s <= MAX_RECORDING_S:
        raise UserError(
            f"{path}: lasts {duration_s:.1f} s, a reference must last {MIN_REFERENCE_S:g} to "
            f"{MAX_RECORDING_S:g} s; best are {SHORT_REFERENCE_S:g} to {MAX_REFERENCE_S} s of one voice"
        )
