"""Do tokenizer, config, base checkpoint and texts fit together? A report of all problems of the text side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from indextts.text.ethiopic import amharic_letters
from indextts.text.tokenizer import Tokenizer, first_difference, measure

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
        summary = "No problems found." if not count else f"{count} problem{'s' if count > 1 else ''} found."
        return "\n".join([*map(str, self.findings), summary])


def verify(
    tokenizer: Tokenizer,
    base: Tokenizer | None,
    base_text_rows: int | None,
    config_text_tokens: int,
    texts: Sequence[str],
    max_unknown_percent: float,
) -> VerifyReport:
    """Return what fits and what does not; nothing is raised for a problem.

    Args:
        tokenizer: the extended one.
        base: the tokenizer of the base checkpoint; None if it is not at hand.
        base_text_rows: rows of the base checkpoint's text embedding, one more than its pieces; None if the
            checkpoint is not at hand.
        config_text_tokens: `number_text_tokens` of the config, which describes the base.
        texts: the project's texts, as they stand in its manifests.
        max_unknown_percent: share of unknown tokens that is not yet a problem.
    """
    base_size = _base_size(base, base_text_rows, config_text_tokens)
    findings = [
        _size(tokenizer),
        _extends(tokenizer, base, base_size),
        _rows(base, base_text_rows),
        _config(config_text_tokens, base_size, tokenizer.size),
        _letters(tokenizer),
        *_texts(tokenizer, base_size, texts, max_unknown_percent),
    ]
    return VerifyReport(tuple(findings))


def _base_size(base: Tokenizer | None, base_text_rows: int | None, config_text_tokens: int) -> int:
    """Return the pieces of the base, from the best source at hand."""
    if base is not None:
        return base.size
    return base_text_rows - 1 if base_text_rows is not None else config_text_tokens


def _size(tokenizer: Tokenizer) -> Finding:
    fingerprint = tokenizer.vocabulary.fingerprint
    return Finding("tokenizer", f"{tokenizer.path}, {tokenizer.size} pieces, fingerprint {fingerprint[:16]}")


def _extends(tokenizer: Tokenizer, base: Tokenizer | None, base_size: int) -> Finding:
    what = "base pieces"
    rebuild = "extend the base's bpe.model with tools/extend_bpe.py"
    if base is not None:
        difference = first_difference(base, tokenizer)
        if difference is None:
            return Finding(what, f"all {base.size} of {base.path} in their places")
        return Finding(what, difference, "problem", f"the base's rows would be misread: {rebuild}")
    if tokenizer.size < base_size:
        value = f"{tokenizer.size} pieces are fewer than the base's {base_size}"
        return Finding(what, value, "problem", rebuild)
    value = f"only sizes could be compared, {tokenizer.size} with the base's {base_size}"
    return Finding(what, value, "warning", "put the base's bpe.model beside the base checkpoint")


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
    """Return how the tokenizer does on the texts: unknown tokens, and the use of the appended pieces."""
    if not texts:
        return [Finding("texts", "none given, unknown pieces were not counted", "warning", "add --manifest")]
    found = measure(tokenizer, texts)
    unknown = f"{found.unknown_percent:.3f} % of {found.num_tokens} tokens"
    if found.unknown_characters:
        counted = [f"{char!r} ({count})" for char, count in found.unknown_characters]
        unknown += f", in them {_listed(counted)}"
    appended_percent = found.percent_from(base_size)
    appended = f"{appended_percent:.1f} % of the tokens, {found.tokens_per_word:.2f} tokens per word"
    return [
        Finding("unknown pieces", unknown)
        if found.unknown_percent <= max_unknown_percent
        else Finding(
            "unknown pieces",
            unknown,
            "problem",
            f"at most {max_unknown_percent:g} % are allowed: correct the texts, or extend the base with them",
        ),
        Finding("appended pieces", appended)
        if appended_percent > 0
        else Finding(
            "appended pieces",
            appended,
            "problem",
            "the texts use none of them: is this the extended tokenizer, and are these the Amharic texts?",
        ),
    ]


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
