"""Gradio's scripts as the page serves them: with 1,200 components, three habits keep a browser busy.

    status    of every input of each call that ever ended, kept for good and updated five times a call
    search    of the whole page for each component that is read or updated
    matching  of each component with the triggers of all handlers, twice at the start

A script of another Gradio, in which the words to replace are absent, is served as it is.
"""

from pathlib import Path

import gradio as gr

FOLDER = Path(gr.__file__).parent / "templates/frontend/assets"

# by the beginning of the script's name
REPLACED = {
    "Blocks": [
        ("n=`closed`,a.forEach", "n=null,a.forEach"),  # only streams need this status, and the page has none
    ],
    "core": [
        (
            "function Z(e,t){if(e.id===t)return e;if(e.children)for(let n of e.children){"
            "let e=Z(n,t);if(e)return e}return null}",
            # an index of each tree that is searched; a tree changes with gr.render only
            "function Z(e,t){let r=(Z.of??=new WeakMap).get(e);"
            "if(!r){let n=e=>{r.set(e.id,e),e.children?.forEach(n)};r=new Map,Z.of.set(e,r),n(e)}"
            "return r.get(t)??null}",
        ),
        (
            "t.filter(t=>t.targets.find(([t])=>t===e.id))"
            ".map(t=>{let n=t.targets.find(([t])=>t===e.id);return n?n[1]:null}).filter(Boolean)",
            "(this.of?.t===t||(this.of={t},t.forEach(t=>t.targets.forEach(([t,n])=>(this.of[t]??=[]).push(n)))),"
            "this.of[e.id]??[])",
        ),
    ],
}


def served_scripts() -> dict[str, str]:
    """Return the texts of the changed scripts by their names."""
    found = {}
    for beginning, replaced in REPLACED.items():
        for path in FOLDER.glob(f"{beginning}-*.js"):
            text = path.read_text(encoding="utf-8")
            for before, after in replaced:
                text = text.replace(before, after)
            found[path.name] = text
    return found
