"""Texts of rows without the marks that nobody speaks (indextts/text/transcript_marks.py)."""

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from indextts.data.importing.items import Item, Rejection, Row
from indextts.errors import UserError
from indextts.text.transcript_marks import BRACKETS, KINDS, Mark, clean_transcripts

logger = logging.getLogger(__name__)


def kinds_to_keep(written: str) -> tuple[str, ...]:
    """Return the kinds of marks in an answer such as "noise,labels"; a UserError for an unknown one."""
    keep = tuple(filter(None, map(str.strip, written.split(","))))
    if unknown := next((kind for kind in keep if kind not in KINDS), None):
        raise UserError(f"--keep {unknown}: not a kind of mark; choose from {', '.join(KINDS)}")
    return keep


def without_marks(rows: Sequence[Row], keep: Collection[str]) -> tuple[list[Item], list[Mark]]:
    """Return the rows of a source without marks, rejections of those without other words, and the marks."""
    items: list[Item] = []
    cleaned = clean_transcripts([row.text for row in rows], keep)
    for row, (text, _) in zip(rows, cleaned, strict=True):
        if row.text and not text:
            reason = (
                f"the text {row.text[:40]} contains only marks and no words; correct it, or keep the marks"
            )
            reason += " with --keep"
            items.append(Rejection(row.where, "empty_text", reason))
        elif text != row.text:
            items.append(replace(row, text=text, original_text=row.text, keep=tuple(keep)))
        else:
            items.append(replace(row, keep=tuple(keep)) if keep else row)
    return items, [mark for each in cleaned for mark in each.marks]


def log_marks(source: Path, marks: Sequence[Mark]) -> None:
    """Log the removed marks by kind, and the words in brackets that stay."""
    for kind in dict.fromkeys(mark.kind for mark in marks):
        counts = Counter(mark.text for mark in marks if mark.kind == kind)
        examples = [text for text, _ in counts.most_common(3)]
        shown = f"{counts.total():,} ({', '.join(examples)}{', ...' * (len(counts) > len(examples))})"
        if kind == BRACKETS:
            logger.warning("%s: words in brackets stay, since they may be spoken: %s", source, shown)
        else:
            logger.info("%s: removed from the texts: %s %s; --keep %s leaves them", source, kind, shown, kind)
