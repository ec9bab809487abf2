"""Gradio's scripts as the page serves them: four habits of theirs keep a browser busy.

    status    of every input of each call that ever ended, kept for good and updated five times a call
    search    of the whole page for each component that is read or updated; only gr.render changes the page
    matching  of each component with the triggers of all handlers, twice at the start
    clock     of the first loading, removed while it waits: it redraws the page 60 times a second for good

front_end.json lists what is replaced, by the beginnings of the scripts' names: [[before, after], ...]. A
script of another Gradio, in which the words are absent, is served as it is.
"""

import json
from pathlib import Path

import gradio as gr

FOLDER = Path(gr.__file__).parent / "templates/frontend/assets"
REPLACED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def served_scripts() -> dict[str, str]:
    """Return the texts of the changed scripts by their names."""
    found = {}
    for beginning, replaced in REPLACED.items():
        for path in FOLDER.glob(f"{beginning}-*.js"):
            found[path.name] = path.read_text(encoding="utf-8")
            for before, after in replaced:
                found[path.name] = found[path.name].replace(before, after)
    return found
