"""Gradio's scripts as the page serves them: five habits of theirs keep a browser busy, one is about words.

    status    of every input of each call that ever ended, kept for good and updated five times a call
    search    of the whole page for each component that is read or updated; only gr.render changes the page
    matching  of each component with the triggers of all handlers, twice at the start
    clock     of the first loading, removed while it waits: it redraws the page 60 times a second for good
    styles    of each kind of component are a file, of which this page needs 30: they are served as one
    uploads   have English texts only, and for a screen reader another than on the screen

front_end.json lists what is replaced, by the beginnings of the scripts' names: [[before, after], ...]. A
script of another Gradio, in which the words are absent, is served as it is.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path

import gradio as gr

FOLDER = Path(gr.__file__).parent / "templates/frontend/assets"
REPLACED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


STYLES = "components.css"
# of components, and the files that each needs
KINDS = re.compile(r"\b(\w+):\{([^{}]*__vite__mapDeps[^{}]*)\}")
PLACES = re.compile(r"__vite__mapDeps\(\[([\d,]+)\]")  # in the list of FILES
FILES = re.compile(r"m\.f=(\[[^\]]*\])")


def served_assets(kinds: Collection[str]) -> dict[str, str]:
    """Return the changed scripts, and the styles of these kinds of components, by their names."""
    found = {}
    for beginning, replaced in REPLACED.items():
        for path in FOLDER.glob(f"{beginning}*.js"):
            found[path.name] = path.read_text(encoding="utf-8")
            for before, after in replaced:
                found[path.name] = found[path.name].replace(before, after)
            if styles := _styles(found[path.name], kinds):
                found[STYLES] = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in styles)
                for name in styles:
                    found[path.name] = found[path.name].replace(f'"./{name}"', f'"./{STYLES}"')
    return found


def _styles(script: str, kinds: Collection[str]) -> list[str]:
    """Return the style files that a script loads with components, without those that every page has."""
    files = json.loads(found[1]) if (found := FILES.search(script)) else []
    loads = "".join(needs for kind, needs in KINDS.findall(script) if kind in kinds)
    places = {int(place) for few in PLACES.findall(loads) for place in few.split(",")}
    first = "".join(path.read_text(encoding="utf-8") for path in FOLDER.parent.glob("index.html"))
    first += "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("index-*.js"))
    names = sorted(Path(files[place]).name for place in places)
    return [name for name in names if name.endswith(".css") and name not in first]
