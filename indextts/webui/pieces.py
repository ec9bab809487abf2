"""A sentence cut into pieces, as coloured HTML: each piece with its id below it.

    grey    a piece of the base
    green   an appended piece
    red     unknown: the model hears nothing of it

What a user typed is escaped; nothing of it is markup.
"""

from html import escape

from indextts.text.tokenizer import Tokenizer
from indextts.webui.language import t

_MOST_SHOWN = 400
_COLOURS = {
    "base": "rgba(128, 128, 128, 0.28)",
    "appended": "rgba(46, 160, 67, 0.40)",
    "unknown": "rgba(248, 81, 73, 0.55)",
}
WORDS = {"base": "of the base", "appended": "appended", "unknown": "unknown, not heard"}
COUNT = "{count} pieces"
COUNT_UNKNOWN = "{count} pieces, {unknown} unknown"
MORE = "and {count} more"
_PIECE = (
    "display:inline-flex;flex-direction:column;align-items:center;border-radius:4px;padding:1px 6px;"
    "margin:2px;line-height:1.35"
)


def pieces_html(title: str, tokenizer: Tokenizer, sentence: str, base_size: int) -> str:
    """Return the pieces of `sentence` under a title with their number.

    Args:
        base_size: ids from this on are appended pieces.
    """
    spoken = tokenizer.normalize(sentence)
    ids, pieces = tokenizer.encode_spoken(spoken), tokenizer.spoken_pieces(spoken)
    num_unknown = ids.count(tokenizer.unknown_id)
    kinds = [
        "unknown" if token == tokenizer.unknown_id else "appended" if token >= base_size else "base"
        for token in ids
    ]
    shown = list(zip(kinds, pieces, ids, strict=True))[:_MOST_SHOWN]
    count = t(COUNT_UNKNOWN, count=len(ids), unknown=num_unknown) if num_unknown else t(COUNT, count=len(ids))
    more = f" {t(MORE, count=len(ids) - _MOST_SHOWN)}" if len(ids) > _MOST_SHOWN else ""
    spans = "".join(_span(kind, piece, token) for kind, piece, token in shown)
    return f"<p style='margin-top:8px'><b>{escape(title)}</b>: {count}</p><div>{spans}{more}</div>"


def legend_html() -> str:
    """Return what the colours mean."""
    return "".join(
        f'<span style="{_PIECE};background:{_COLOURS[kind]}">{escape(t(word))}</span>'
        for kind, word in WORDS.items()
    )


def _span(kind: str, piece: str, token: int) -> str:
    style = f"{_PIECE};background:{_COLOURS[kind]}"
    return f'<span class="{kind}" style="{style}"><span>{escape(piece)}</span><small>{token}</small></span>'
