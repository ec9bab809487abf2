"""Parts of the page as HTML: tiles, facts, tables, links, empty parts and progress bars. No Gradio here.

Arguments are escaped. A link is "#TAB" or "#TAB/ELEMENT" (page_files/page.js). Styles: page_files/page.css.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, repeat
from typing import Literal

Level = Literal["", "warn", "bad"]
UNKNOWN = "-"  # in a tile


@dataclass(frozen=True)
class Tile:
    """A number with its name above it and a remark below it; `link` makes the number a link."""

    name: str
    value: str
    remark: str = ""
    level: Level = ""
    link: str = ""


def tiles_html(tiles: Iterable[Tile]) -> str:
    cells = (
        f'<div class="tile {tile.level}"><dt>{escape(tile.name)}</dt>'
        f"<dd>{link_html(tile.link, tile.value) if tile.link else escape(tile.value)}"
        f"{f'<small>{escape(tile.remark)}</small>' if tile.remark else ''}</dd></div>"
        for tile in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def facts_html(facts: Iterable[tuple[str, str]]) -> str:
    cells = (f"<dt>{escape(name)}</dt><dd>{wrapping(value)}</dd>" for name, value in facts)
    return f'<dl class="facts">{"".join(cells)}</dl>'


def wrapping(text: str) -> str:
    """Return a text in which a path wraps after its slashes, not inside a name."""
    return escape(text).replace("/", "/<wbr>")


def table_html(
    heads: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[str]],
    css: str = "",
    attributes: Iterable[str] = (),
) -> str:
    """Return a table: titles with the class of their column, rows of HTML, `attributes` of the first rows."""
    kinds = [kind for _, kind in heads]
    head = _cells("th", kinds, [escape(title) for title, _ in heads])
    shown = zip(chain(attributes, repeat("")), rows, strict=False)
    body = "".join(f"<tr{' ' * bool(more)}{more}>{_cells('td', kinds, row)}</tr>" for more, row in shown)
    name = f"list {css}".strip()
    return f'<table class="{name}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cells(tag: str, kinds: Sequence[str], contents: Sequence[str]) -> str:
    css = (f' class="{kind}"' if kind else "" for kind in kinds)
    return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(css, contents, strict=True))


def link_html(link: str, text: str, css: str = "", more: str = "") -> str:
    """Return a link to a tab or to an element of a tab; `more` are further attributes."""
    return f'<a {more}href="{escape(link)}" class="{css}">{escape(text)}</a>'


def sent(*values: str) -> str:
    """Return the attribute with which SEND_CLICKS sends these values: `event.row_value` of `select`."""
    return f'data-send="{escape(json.dumps(values, ensure_ascii=False))}"'


def sound_html(address: str, preload: str = "none", id: str = "") -> str:
    """Return a player with a waveform (page_files/player.js); a script fills one without an address."""
    name, source = f' id="{id}"' * bool(id), f' src="{address}"' * bool(address)
    return f'<sound-player><audio{name} controls preload="{preload}"{source}></audio></sound-player>'


def empty_html(text: str, link: str = "", link_text: str = "", css: str = "") -> str:
    """Return the sentence in place of an empty part, and a link, of the class `css`, that leads on."""
    onward = f" {link_html(link, link_text, css)}" if link else ""
    return f'<p class="empty">{escape(text)}{onward}</p>'


def remark_html(text: str) -> str:
    """Return a remark below a part; "" for an empty one."""
    return f'<p class="remark">{escape(text)}</p>' if text else ""


def meter_html(share: float, text: str) -> str:
    """Return a progress bar above its text; `share` is from 0 to 1."""
    percent = min(100, max(0, int(100 * share)))
    return (
        f'<div class="meter" role="progressbar" aria-valuenow="{percent}" aria-valuemin="0" '
        f'aria-valuemax="100" aria-label="{escape(text)}"><i style="width:{percent}%"></i></div>'
        f'<p class="lead">{escape(text)}</p>'
    )
