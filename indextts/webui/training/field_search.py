"""Search box of a form: it hides the fields whose name and help do not contain the typed words.

The search runs in the browser. A style sheet hides fields by id, so it also applies to fields that are
rendered later, such as those of a closed accordion.
"""

import json
from collections.abc import Sequence

import gradio as gr

from indextts.commands.base import Command
from indextts.webui.language import LANGUAGES, field_texts, t, translations


def field_search(command: type[Command], names: Sequence[str], opened: gr.Accordion) -> gr.Textbox:
    """Build the box for the fields `names` of `command`; a search opens the accordion `opened`."""
    prefix = command.__name__.lower()
    box = gr.Textbox(
        label=t("training.find_a_setting"),
        placeholder=t("training.find_a_setting_help"),
        elem_id=f"{prefix}-search",
        lines=1,
    )
    count = gr.HTML(elem_id=f"{prefix}-search-count", padding=False)
    # change instead of input: Gradio reports no input event for an emptied box; and every key counts
    box.change(None, [box], [opened, count], js=search_js(command, names), trigger_mode="multiple")
    return box


def search_js(command: type[Command], names: Sequence[str]) -> str:
    """Return the JavaScript that hides other fields; it returns values for the accordion and the count."""
    texts = {f"{command.__name__}-{name}": _words(command, name) for name in names}
    return f"""(typed) => {{
  const texts = {json.dumps(texts, ensure_ascii=False)};
  const words = typed.toLowerCase().split(/[\\s_-]+/).filter(Boolean);
  const ids = Object.keys(texts);
  const hidden = ids.filter(id => !words.every(word => texts[id].includes(word)));
  const id = "{command.__name__}-search-style";
  let sheet = document.getElementById(id);
  if (!sheet) {{
    sheet = document.createElement("style");
    sheet.id = id;
    document.head.append(sheet);
  }}
  const selector = hidden.map(id => "#" + id).join(",");
  sheet.textContent = selector && selector + "{{display:none!important}}";
  const number = `${{ids.length - hidden.length}} / ${{ids.length}}`;
  const count = words.length ? `<p aria-live="polite">${{number}}</p>` : "";
  return [{{__type__: "update", ...(words.length ? {{open: true}} : {{}})}}, count];
}}"""


def _words(command: type[Command], name: str) -> str:
    """Return the searched text: name, title and help in every language."""
    texts = [name.replace("_", " "), *field_texts(command, name).values()]
    for language in LANGUAGES:
        texts += [other for text in tuple(texts) if (other := translations(language).get(text))]
    return " ".join(texts).lower().replace("-", " ")
