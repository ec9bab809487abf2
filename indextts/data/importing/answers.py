"""What somebody said of a source, so that the next import need not ask again.

answers.json    {"uploads/talks.zip": {"layout": "auto", "speaker": "almaz", "speaker_from": "data"}, ...}
"""

import json
from pathlib import Path

from indextts.commands.data import ImportDataset
from indextts.runs.directory import write_json

ANSWERS_NAME = "answers.json"
FIELDS = ("layout", "speaker", "speaker_from")


def read_answers(output_dir: Path) -> dict[str, dict[str, str]]:
    """Return the answers by the source's name; none where nothing was imported or the file is damaged."""
    try:
        answers = json.loads((output_dir / ANSWERS_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return answers if isinstance(answers, dict) else {}


def write_answers(output_dir: Path, answers: dict[str, dict[str, str]]) -> None:
    """Write the answers, aside and renamed; nothing changes if they are the same.

    Raises:
        OSError: they cannot be written.
    """
    if answers != read_answers(output_dir):
        write_json(output_dir / ANSWERS_NAME, dict(answers))


def answered(command: ImportDataset, before: dict[str, str]) -> dict[str, str]:
    """Return what holds of a source: what the command says, else what was said before."""
    said = {name: str(getattr(command, name)).strip() for name in FIELDS}
    silent = {name: str(ImportDataset.model_fields[name].default) for name in FIELDS}
    if (said["speaker"], said["speaker_from"]) != (silent["speaker"], silent["speaker_from"]):
        return (
            said if said["layout"] != silent["layout"] else {**said, "layout": before.get("layout", "auto")}
        )
    return {
        name: before.get(name, said[name]) if said[name] == silent[name] else said[name] for name in FIELDS
    }
