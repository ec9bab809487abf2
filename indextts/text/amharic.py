"""Tables of the Amharic rules, from amharic.toml: a written form and what is said for it."""

import tomllib
from pathlib import Path

TABLES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
