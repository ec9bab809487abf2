"""A command as a person can type it. The standard library only: see indextts/projects/jobs/runner.py."""

import shlex
from collections.abc import Mapping, Sequence


def shell_text(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a command behind what it finds in its environment besides the usual."""
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), shlex.join(words)]
    )
