"""Pieces of a typed sentence as HTML, for tabs 3 and 8: the id below each, and how often it is trained.

    base       grey
    appended   green
    unknown    red: the model reads it as silence
    untrained  a dashed frame and "never": in no training text, the usual cause of mixed-up words

The typed text is escaped.
"""

from collections.abc import Sequence
from functools import lru_cache
from html import escape
from pathlib import Path

from indextts.data.pair_index import find_index, index_path
from indextts.projects.project import Project
from indextts.text.bases import load_tokenizer
from indextts.text.tokenizer import Tokenizer
from indextts.webui.language import t
from indextts.webui.markup import remark_html
from indextts.webui.view_versions import files_version

_MAX_SHOWN = 400

Counts = Sequence[int] | None  # by token, 0 beyond the end; None if they are not known


def piece_counts(project: Project) -> Counts:
    """Return the occurrences of each piece in the project's training pairs; None without their index."""
    pairs, tokenizer = project.pairs("train"), project.tokenizer
    return _counts(pairs, tokenizer, files_version(pairs, index_path(pairs), tokenizer))


@lru_cache(maxsize=4)  # an index takes a second for 400,000 pairs
def _counts(pairs: Path, tokenizer: Path, _version: str) -> Counts:
    index = find_index(pairs, load_tokenizer(tokenizer))
    return None if index is None else index.pairs.piece_counts().tolist()


def pieces_html(
    title: str, tokenizer: Tokenizer, sentence: str, base_size: int, counts: Counts = None
) -> str:
    """Return the pieces of a sentence, new from the id `base_size` on, with their counts in the training."""
    spoken = tokenizer.normalize(sentence)
    ids, pieces = tokenizer.encode_normalized(spoken), tokenizer.normalized_pieces(spoken)
    appended = tokenizer.appended_ids(base_size)
    times = [None if counts is None else counts[id] if id < len(counts) else 0 for id in ids]
    spans = []
    for token, piece, num in list(zip(ids, pieces, times, strict=True))[:_MAX_SHOWN]:
        kind = "appended" if token in appended else "base"
        spans.append(_span("unknown" if token == tokenizer.unknown_id else kind, piece, token, num))
    count = t("tokenizer.count_unknown", count=len(ids), unknown=ids.count(tokenizer.unknown_id))
    if counts is not None:
        count += t("tokenizer.count_untrained", count=times.count(0))
    more = f" {t('tokenizer.more', count=len(ids) - _MAX_SHOWN)}" if len(ids) > _MAX_SHOWN else ""
    return f"<p><b>{escape(title)}</b>: {count}</p><div>{''.join(spans)}{more}</div>"


def legend_html(counts: Counts) -> str:
    """Return the legend of the colours, and what the counts are or why there are none."""
    kinds = ("base", "appended", "unknown", *(["untrained"] if counts is not None else []))
    spans = "".join(
        f'<span class="piece {kind}">{escape(t(f"tokenizer.kinds.{kind}"))}</span>' for kind in kinds
    )
    about = t("tokenizer.no_counts" if counts is None else "tokenizer.counts")
    return spans + remark_html(about)


def _span(kind: str, piece: str, token: int, times: int | None) -> str:
    never, note = " untrained" * (times == 0), ""
    if times is not None:
        shown = f"{times:,}\u00d7" if times else escape(t("tokenizer.never"))
        note = f"<small>{shown}</small>"
    return (
        f'<span class="piece {kind}{never}"><span>{escape(piece)}</span><small>{token}</small>{note}</span>'
    )
