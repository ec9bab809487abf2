"""Which code runs."""

import subprocess
from pathlib import Path


def git_commit() -> str | None:
    """Return the commit of this code, None where it is no checkout."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True)
    except FileNotFoundError:  # no git on this machine
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
