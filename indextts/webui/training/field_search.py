"""Search box of a form: it hides the fields whose name and help do not contain the typed words.

The search runs in the browser. A style sheet hides fields and empty groups by id, and a search opens a fold.
"""

import json
from collections.abc import Mapping, Sequence

import gradio as gr

from indextts.commands.base import Command
from indextts.webui.language import LANGUAGES, field_texts, t, translations


def field_search(
    command: type[Command], names: Sequence[str], groups: Mapping[str, Sequence[str]], fold: str
) -> None:
    """Build the box for the fields `names` of `command`.

    Args:
        groups: fields by the id of their group, which is hidden with all of them.
        fold: id of the section that a search opens.
    """
    prefix = command.__name__.lower()
    box = gr.Textbox(
        label=t("training.find_a_setting"),
        show_label=False,
        placeholder=t("training.find_a_setting"),
        container=False,
        elem_id=f"{prefix}-search",
        lines=1,
    )
    count = gr.HTML(elem_id=f"{prefix}-search-count", padding=False)
    # change instead of input: Gradio reports no input event for an emptied box; and every key counts
    box.change(None, [box], [count], js=search_js(command, names, groups, fold), trigger_mode="multiple")


def search_js(
    command: type[Command],
    names: Sequence[str],
    groups: Mapping[str, Sequence[str]] | None = None,
    fold: str = "",
) -> str:
    """Return the JavaScript that hides other fields; it returns the number of those that are left."""
    texts = {f"{command.__name__}-{name}": _words(command, name) for name in names}
    members = {
        group: [f"{command.__name__}-{name}" for name in fields] for group, fields in (groups or {}).items()
    }
    return f"""(typed) => {{
  const texts = {json.dumps(texts, ensure_ascii=False)};
  const groups = {json.dumps(members)};
  const words = typed.toLowerCase().split(/[\\s_-]+/).filter(Boolean);
  const ids = Object.keys(texts);
  const hidden = ids.filter(id => !words.every(word => texts[id].includes(word)));
  const empty = Object.keys(groups).filter(group => groups[group].every(id => hidden.includes(id)));
  const id = "{command.__name__}-search-style";
  let sheet = document.getElementById(id);
  if (!sheet) {{
    sheet = document.createElement("style");
    sheet.id = id;
    document.head.append(sheet);
  }}
  const selector = [...hidden, ...empty].map(id => "#" + id).join(",");
  sheet.textContent = selector && selector + "{{display:none!important}}";
  const fold = words.length && document.getElementById("{fold}");
  if (fold && fold.classList.contains("folded")) document.getElementById("{fold}-button").click();
  const number = `${{ids.length - hidden.length}} / ${{ids.length}}`;
  return words.length ? `<p aria-live="polite">${{number}}</p>` : "";
}}"""


def _words(command: type[Command], name: str) -> str:
    """Return the searched text: name, title and help in every language."""
    texts = [name.replace("_", " "), *field_texts(command, name).values()]
    for language in LANGUAGES:
        texts += [other for text in tuple(texts) if (other := translations(language).get(text))]
    return " ".join(texts).lower().replace("-", " ")
