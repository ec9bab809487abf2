"""Do tokenizer, config, base checkpoint and texts fit together? A report of all problems of the text side.

Does a tokenizer extend the one that its base checkpoint was trained with? No torch here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from indextts.errors import UserError
from indextts.text.ethiopic import amharic_letters, is_ethiopic
from indextts.text.tokenizer import TextMeasure, Tokenizer, first_difference, measure
from indextts.text.vocabulary import SizeAdvice

RARE = 20  # a piece that is seen less often is hardly learned
SAMPLES = ("ሰላም ለሁላችሁም።", "ኢትዮጵያ ብዙ ወንዞች አሏት፣ ትልቁ ዓባይ ነው።", "በ2017 ዓ.ም ስንት ትምህርት ቤቶች ተከፈቱ?")
_SHOWN = 10  # characters listed by name before "and N more"


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, what was found, and what to do about it."""

    what: str
    value: str
    verdict: Literal["ok", "warning", "problem"] = "ok"
    advice: str = ""

    def __str__(self) -> str:
        line = f"{self.verdict:<8} {self.what}: {self.value}"
        return f"{line}; {self.advice}" if self.advice else line


@dataclass(frozen=True)
class VerifyReport:
    """All findings, in the order in which they were looked at."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "problem")

    def __str__(self) -> str:
        count = len(self.problems)
        summary = "All checks passed" if not count else f"{count} problem{'s' if count > 1 else ''} found."
        return "\n".join([*map(str, self.findings), summary])


def verify(
    tokenizer: Tokenizer,
    base: Tokenizer | None,
    base_text_rows: int | None,
    config_text_tokens: int,
    texts: Sequence[str],
    max_unknown_percent: float,
    advice: SizeAdvice | None = None,
) -> VerifyReport:
    """Return what fits and what does not; nothing is raised for a problem.

    Args:
        tokenizer: the extended one.
        base: the tokenizer of the base checkpoint; None if it is not at hand.
        base_text_rows: rows of the base checkpoint's text embedding, one more than its pieces; None if the
            checkpoint is not at hand.
        config_text_tokens: `number_text_tokens` of the config, which describes the base.
        texts: the project's texts, as they stand in its manifests.
        max_unknown_percent: share of unknown tokens that is not yet a problem; of Ethiopic none may be.
        advice: how many pieces the hours of speech are good for; None if nobody knows.
    """
    base_size = _base_size(base, base_text_rows, config_text_tokens)
    findings = [
        Finding("tokenizer", f"{tokenizer.path}, fingerprint {tokenizer.vocabulary.fingerprint}"),
        Finding("Vocabulary size", str(tokenizer.size)),
        _normalizer(tokenizer),
        _extends(tokenizer, base, base_size),
        _rows(base, base_text_rows),
        _config(config_text_tokens, base_size, tokenizer.size),
        _letters(tokenizer),
        *_texts(tokenizer, base_size, texts, max_unknown_percent),
        *_advised(tokenizer.size - base_size, advice),
    ]
    return VerifyReport(tuple(findings))


def _base_size(base: Tokenizer | None, base_text_rows: int | None, config_text_tokens: int) -> int:
    """Return the pieces of the base, from the best source at hand."""
    if base is not None:
        return base.size
    return base_text_rows - 1 if base_text_rows is not None else config_text_tokens


def _normalizer(tokenizer: Tokenizer) -> Finding:
    what = "normaliser"
    if tokenizer.normalizer_warning:
        advice = "make the tokenizer anew with tools/extend_bpe.py to be sure"
        return Finding(what, tokenizer.normalizer_warning, "warning", advice)
    return Finding(what, f"{tokenizer.options.summary} ({tokenizer.options.fingerprint})")


def _extends(tokenizer: Tokenizer, base: Tokenizer | None, base_size: int) -> Finding:
    what = "base pieces"
    rebuild = "extend the base's bpe.model with tools/extend_bpe.py"
    if base is not None:
        difference = first_difference(base, tokenizer)
        if difference is None and (otherwise := _cut_otherwise(base, tokenizer)):
            return Finding(
                what, otherwise, "problem", f"the base's own texts would be cut otherwise: {rebuild}"
            )
        if difference is None:
            return Finding(what, f"all {base.size} of {base.path} in their places")
        return Finding(what, difference, "problem", f"the base's rows would be misread: {rebuild}")
    if tokenizer.size < base_size:
        value = f"{tokenizer.size} pieces are fewer than the base's {base_size}"
        return Finding(what, value, "problem", rebuild)
    value = f"only sizes could be compared, {tokenizer.size} with the base's {base_size}"
    return Finding(what, value, "warning", "put the base's bpe.model beside the base checkpoint")


def _cut_otherwise(base: Tokenizer, tokenizer: Tokenizer) -> str:
    """Return why a tokenizer with the base's pieces cuts the base's texts otherwise; empty if it does not."""
    before, after = base.proto, tokenizer.proto
    pairs = zip(before.pieces, after.pieces, strict=False)
    num_scores = sum(old.score != new.score for old, new in pairs)
    if num_scores:
        return f"{num_scores} of the base's {base.size} pieces have other scores"
    if before.normalizer_spec != after.normalizer_spec:
        return f"the settings of its own normaliser are not those of {base.path}"
    return ""


def _rows(base: Tokenizer | None, base_text_rows: int | None) -> Finding:
    what = "base checkpoint"
    if base_text_rows is None:
        return Finding(what, "not at hand, so its text rows were not compared", "warning")
    value = f"{base_text_rows} text rows"
    if base is None or base_text_rows == base.size + 1:
        return Finding(what, f"{value}, one more than pieces")
    expected = f"{value}, but the {base.size} pieces of {base.path} need {base.size + 1}"
    return Finding(what, expected, "problem", "take checkpoint and bpe.model from one download")


def _config(config_text_tokens: int, base_size: int, extended_size: int) -> Finding:
    what = "config number_text_tokens"
    if config_text_tokens == base_size:
        return Finding(what, f"{config_text_tokens}, as many as the base has pieces")
    if config_text_tokens == extended_size:
        return Finding(what, f"{config_text_tokens}, as many as the extended tokenizer has pieces")
    value = f"{config_text_tokens} is neither the base's {base_size} nor the extended {extended_size}"
    return Finding(what, value, "problem", "use the config.yaml that was published with the checkpoint")


def _letters(tokenizer: Tokenizer) -> Finding:
    what = "Amharic letters"
    known = tokenizer.text_pieces
    missing = [letter for letter in amharic_letters() if letter not in known]
    if not missing:
        return Finding(what, f"all {len(amharic_letters())} are pieces")
    value = f"{len(missing)} of {len(amharic_letters())} are no piece: {_listed(missing)}"
    return Finding(
        what, value, "problem", "extend the base again with tools/extend_bpe.py, which puts all in"
    )


def _texts(
    tokenizer: Tokenizer, base_size: int, texts: Sequence[str], max_unknown_percent: float
) -> list[Finding]:
    """Return how the tokenizer does on the texts, or on a few sentences where there are none."""
    if not texts:
        return [
            Finding("texts", "none given, so only sample sentences were cut", "warning", "add --manifest"),
            _uses_appended(measure(tokenizer, SAMPLES), base_size),
        ]
    found = measure(tokenizer, texts)
    return [
        unknown_pieces(found, max_unknown_percent),
        _uses_appended(found, base_size),
        Finding("fertility", f"{found.tokens_per_word:.2f} tokens per word over {found.num_words} words"),
        _rare(found, base_size, tokenizer.size),
        _round_trip(found),
    ]


def unknown_pieces(found: TextMeasure, max_percent: float) -> Finding:
    """Return how many tokens of the texts are unknown; a problem past `max_percent`, or if Ethiopic is."""
    what, value = "unknown pieces", f"{found.unknown_percent:.3f} % of {found.num_tokens} tokens"
    if found.unknown_characters:
        counted = [f"{char!r} ({count})" for char, count in found.unknown_characters]
        value += f", in them {_listed(counted)}"
    ethiopic = [char for char, _ in found.unknown_characters if is_ethiopic(char)]
    if ethiopic:
        advice = f"no Ethiopic may be unknown ({_listed(ethiopic)}): extend the base with these texts"
        return Finding(what, value, "problem", advice)
    if found.unknown_percent > max_percent:
        advice = f"at most {max_percent:g} % are allowed: correct the texts, or extend the base with them"
        return Finding(what, value, "problem", advice)
    return Finding(what, value)


def _uses_appended(found: TextMeasure, base_size: int) -> Finding:
    percent = found.percent_from(base_size)
    if percent > 0:
        return Finding(f"Uses extended vocabulary (ID >= {base_size})", f"{percent:.1f} % of the tokens")
    return Finding(
        f"Does not use extended vocabulary (ID >= {base_size})",
        "the texts have none of the appended pieces",
        "problem",
        "is this the extended tokenizer, and are these the Amharic texts?",
    )


def _rare(found: TextMeasure, base_size: int, size: int) -> Finding:
    """Return how many of the appended pieces the texts hardly teach: no problem, but slow to learn."""
    num_appended = max(size - base_size, 0)
    num_rare = sum(found.tokens[token] < RARE for token in range(base_size, size))
    value = f"{num_rare} of {num_appended} appended pieces occur fewer than {RARE} times in the texts"
    return Finding("rare pieces", value)


def _round_trip(found: TextMeasure) -> Finding:
    what = "round trip"
    if not found.changed:
        return Finding(what, "the ids of every text without unknown pieces spell it again")
    value = (
        f"{len(found.changed)} of {found.num_texts} texts come back changed, the first: {found.changed[0]!r}"
    )
    return Finding(what, value, "problem", "the tokenizer loses text: make it anew with tools/extend_bpe.py")


def _advised(num_appended: int, advice: SizeAdvice | None) -> list[Finding]:
    if advice is None or num_appended <= 0:
        return []
    objection = advice.objection(num_appended)
    if objection:
        return [Finding("size", objection, "warning", "tools/extend_bpe.py without --target-size chooses")]
    return [Finding("size", f"{num_appended} appended pieces, about as advised {advice.reason}")]


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def base_tokenizer(base_checkpoint: Path) -> Path:
    """Return where the tokenizer of a base checkpoint lies, if it is at hand: beside it."""
    return base_checkpoint.parent / "bpe.model"


def require_extension(tokenizer: Tokenizer, base: Tokenizer) -> None:
    """Raise a UserError unless `tokenizer` begins with the pieces of `base`."""
    difference = first_difference(base, tokenizer)
    if difference is not None:
        raise UserError(
            f"--tokenizer {tokenizer.path} does not extend {base.path}: {difference}; make it with "
            "tools/extend_bpe.py from that file"
        )
