"""Check that tokenizer, config, base checkpoint and texts match, and report all problems. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from indextts.errors import UserError
from indextts.system.amounts import counted, listed
from indextts.text.general_rules import reads_numbers
from indextts.text.languages import AMHARIC, Language, find_language
from indextts.text.tokenizer import TextMeasure, Tokenizer, first_difference, measure
from indextts.text.vocabulary import SizeAdvice

MIN_COUNT = 20  # a rarer piece is learned poorly
_SHOWN = 10  # characters listed by name before "and N more"


@dataclass(frozen=True)
class Finding:
    """A line of the report: subject, value, verdict, and advice."""

    subject: str
    value: str
    verdict: Literal["ok", "warning", "problem"] = "ok"
    advice: str = ""

    def __str__(self) -> str:
        line = f"{self.verdict:<8} {self.subject}: {self.value}"
        return f"{line}; {self.advice}" if self.advice else line


@dataclass(frozen=True)
class VerifyReport:
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "problem")

    def __str__(self) -> str:
        count = len(self.problems)
        summary = "All checks passed" if not count else f"{counted(count, 'problem')} found."
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
    """Return the report; problems are findings, not exceptions.

    Args:
        base: the tokenizer of the base checkpoint; None if unavailable.
        base_text_rows: rows of the text embedding of the base checkpoint, one more than its pieces; None if
            the checkpoint is unavailable.
        config_text_tokens: `number_text_tokens` of the config, which describes the base.
        texts: of the manifests, not normalised.
        max_unknown_percent: the allowed percentage of unknown tokens; unknown Ethiopic is always a problem.
        advice: the advised number of pieces; None if the hours of speech are unknown.
    """
    base_size = _base_size(base, base_text_rows, config_text_tokens)
    language = find_language(tokenizer.options.language)
    findings = [
        Finding("tokenizer", f"{tokenizer.path}, fingerprint {tokenizer.vocabulary.fingerprint}"),
        Finding("Vocabulary size", str(tokenizer.size)),
        _normalizer(tokenizer),
        _extends(tokenizer, base, base_size),
        _rows(base, base_text_rows),
        _config(config_text_tokens, base_size, tokenizer.size),
        *_letters(tokenizer, language),
        *_numbers(language, texts),
        *_texts(tokenizer, base_size, texts, max_unknown_percent),
        *_advised(tokenizer.size - base_size, advice),
    ]
    return VerifyReport(tuple(findings))


def _base_size(base: Tokenizer | None, base_text_rows: int | None, config_text_tokens: int) -> int:
    """Return the number of base pieces, from the best available source."""
    if base is not None:
        return base.size
    return base_text_rows - 1 if base_text_rows is not None else config_text_tokens


def _normalizer(tokenizer: Tokenizer) -> Finding:
    subject = "normaliser"
    if tokenizer.normalizer_warning:
        advice = "rebuild the tokenizer with tools/extend_bpe.py to be sure"
        return Finding(subject, tokenizer.normalizer_warning, "warning", advice)
    return Finding(subject, f"{tokenizer.options.summary} ({tokenizer.options.fingerprint})")


def _extends(tokenizer: Tokenizer, base: Tokenizer | None, base_size: int) -> Finding:
    subject = "base pieces"
    rebuild = "extend the tokenizer of the base with tools/extend_bpe.py"
    if base is not None:
        difference = first_difference(base, tokenizer)
        if difference is not None:
            advice = f"the rows of the base would belong to other pieces: {rebuild}"
            return Finding(subject, difference, "problem", advice)
        if change := tokenizer.cutting_change(base):
            return Finding(
                subject, change, "problem", f"texts of the base would be cut differently: {rebuild}"
            )
        return Finding(subject, f"all {base.size} of {base.path} unchanged")
    if tokenizer.size < base_size:
        value = f"{tokenizer.size} pieces are fewer than the {base_size} of the base"
        return Finding(subject, value, "problem", rebuild)
    value = f"only sizes could be compared, {tokenizer.size} with {base_size} of the base"
    return Finding(subject, value, "warning", "put the tokenizer of the base next to the base checkpoint")


def _rows(base: Tokenizer | None, base_text_rows: int | None) -> Finding:
    subject = "base checkpoint"
    if base_text_rows is None:
        return Finding(subject, "not found, so its text rows were not compared", "warning")
    value = f"{base_text_rows} text rows"
    if base is None or base_text_rows == base.size + 1:
        return Finding(subject, f"{value}, one more than pieces")
    expected = f"{value}, but the {base.size} pieces of {base.path} need {base.size + 1}"
    return Finding(subject, expected, "problem", "take checkpoint and tokenizer from the same download")


def _config(config_text_tokens: int, base_size: int, extended_size: int) -> Finding:
    subject = "config number_text_tokens"
    if config_text_tokens == base_size:
        return Finding(subject, f"{config_text_tokens}, the number of base pieces")
    if config_text_tokens == extended_size:
        return Finding(subject, f"{config_text_tokens}, the number of pieces of the extended tokenizer")
    value = f"{config_text_tokens} is neither {base_size} (base) nor {extended_size} (extended)"
    return Finding(subject, value, "problem", "use the config.yaml that was published with the checkpoint")


def _letters(tokenizer: Tokenizer, language: Language) -> list[Finding]:
    """Return whether the alphabet of the language is in the pieces; nothing if the alphabet is unknown.

    A tokenizer without an unknown token writes every letter, a rare one with several pieces.
    """
    if not language.letters or tokenizer.unknown_id < 0:
        return []
    subject = f"{language.name} letters"
    missing = [letter for letter in language.letters if letter not in tokenizer.text_pieces]
    if not missing:
        return [Finding(subject, f"all {len(language.letters)} are pieces")]
    value = f"{len(missing)} of {len(language.letters)} are not pieces: {listed(missing, _SHOWN)}"
    advice = "extend the base again with tools/extend_bpe.py, which adds all letters"
    return [Finding(subject, value, "problem", advice)]


def _numbers(language: Language, texts: Sequence[str]) -> list[Finding]:
    """Return a warning if the texts have digits that the normaliser does not spell out."""
    num_texts = sum(any(map(str.isdigit, text)) for text in texts)
    if language.code == AMHARIC or not num_texts or reads_numbers(language):
        return []
    value = f"{counted(num_texts, 'text')} of {len(texts)} with digits, which stay digits in {language.name}"
    return [Finding("numbers", value, "warning", "write them as words if the speakers read them")]


def _texts(
    tokenizer: Tokenizer, base_size: int, texts: Sequence[str], max_unknown_percent: float
) -> list[Finding]:
    """Return the findings on the texts, or on a few sample sentences without texts."""
    if not texts:
        samples = find_language(tokenizer.options.language).samples
        value = f"none given, so only {counted(len(samples), 'sample sentence')} were checked"
        return [
            Finding("texts", value, "warning", "add --manifest"),
            *_uses_appended(measure(tokenizer, samples), tokenizer, base_size),
        ]
    found, appended = measure(tokenizer, texts), tokenizer.appended_ids(base_size)
    num_rare = sum(found.tokens[token] < MIN_COUNT for token in appended)  # no problem, but slow to learn
    rare = f"{num_rare} of {len(appended)} appended pieces occur fewer than {MIN_COUNT} times"
    return [
        unknown_pieces(found, max_unknown_percent, tokenizer.options.language),
        *_uses_appended(found, tokenizer, base_size),
        Finding("fertility", f"{found.tokens_per_word:.2f} tokens per word over {found.num_words} words"),
        Finding("rare pieces", rare),
        _round_trip(found),
    ]


def unknown_pieces(found: TextMeasure, max_percent: float, language: str) -> Finding:
    """Return the share of unknown tokens; a problem above `max_percent` or with letters of the language."""
    subject, value = "unknown pieces", f"{found.unknown_percent:.3f} % of {found.num_tokens} tokens"
    if found.unknown_characters:
        shown = [f"{char!r} ({count})" for char, count in found.unknown_characters]
        value += f", containing {listed(shown, _SHOWN)}"
    spoken = find_language(language)
    own = [char for char, _ in found.unknown_characters if spoken.owns(char)]
    if own:
        letters = listed(own, _SHOWN)
        advice = f"letters of {spoken.name} must be known ({letters}): extend the base with these texts"
        return Finding(subject, value, "problem", advice)
    if found.unknown_percent > max_percent:
        advice = f"at most {max_percent:g} % are allowed: correct the texts or extend the base with them"
        return Finding(subject, value, "problem", advice)
    return Finding(subject, value)


def _uses_appended(found: TextMeasure, tokenizer: Tokenizer, base_size: int) -> list[Finding]:
    """Return whether the texts use appended pieces; nothing if the base has every letter of the language."""
    appended = tokenizer.appended_ids(base_size)
    percent = found.percent_of(appended)
    vocabulary = f"extended vocabulary (ID >= {appended.start})"
    if percent > 0:
        return [Finding(f"Uses {vocabulary}", f"{percent:.1f} % of the tokens")]
    if not appended and not found.num_unknown:
        return []
    advice = "check that --tokenizer is the extended tokenizer and that the texts are in its language"
    return [Finding(f"Does not use {vocabulary}", "the texts contain no appended piece", "problem", advice)]


def _round_trip(found: TextMeasure) -> Finding:
    subject = "round trip"
    if not found.changed:
        return Finding(subject, "every text without unknown pieces decodes to itself")
    value = (
        f"{len(found.changed)} of {found.num_texts} texts decode differently, the first: {found.changed[0]!r}"
    )
    return Finding(subject, value, "problem", "the tokenizer loses text: rebuild it with tools/extend_bpe.py")


def _advised(num_appended: int, advice: SizeAdvice | None) -> list[Finding]:
    if advice is None or num_appended <= 0:
        return []
    if objection := advice.objection(num_appended):
        smaller = "run tools/extend_bpe.py without --target-size to use the advised size"
        return [Finding("size", objection, "warning", smaller)]
    return [Finding("size", f"{num_appended} appended pieces, close to the advice {advice.reason}")]


def require_extension(tokenizer: Tokenizer, base: Tokenizer) -> None:
    """Raise a UserError unless `tokenizer` starts with the pieces of `base`."""
    difference = first_difference(base, tokenizer)
    if difference is not None:
        raise UserError(
            f"--tokenizer {tokenizer.path} does not extend {base.path}: {difference}; build it with "
            "tools/extend_bpe.py from that file"
        )
