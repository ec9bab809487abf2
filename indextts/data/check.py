"""The data report: what is in a manifest or a pairs file, and all that is wrong with it.

Report    facts, then notices (for the user to judge), then problems (the check fails)
"""

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from indextts.data.feature_store import FeatureStore
from indextts.data.findings import Findings
from indextts.data.recordings import DURATION_TOLERANCE_S, durations_s
from indextts.errors import UserError
from indextts.manifest import Pair, Utterance, read_numbered_utterances, read_pairs, read_utterances

MIN_ETHIOPIC_LETTERS = 0.5  # of a text's letters: a Latin name in it does not make a text foreign
MIN_ETHIOPIC_TEXTS = 0.9  # of all texts; with fewer, these are probably not Amharic recordings
MIN_DURATION_S = 0.3  # shorter than most words
MAX_DURATION_S = 36.0  # the code positions of the published model end at 1,815 codes, 36.3 s
MIN_CHARS_PER_SECOND = 1.0  # slower than anybody reads: words are missing in the text
MAX_CHARS_PER_SECOND = 30.0  # faster than anybody speaks: words are missing in the recording
CODES_PER_SECOND = 50
MAX_CODES_OFF = 0.2 * CODES_PER_SECOND  # codes of a padded batch (its longest clip's) are off by more
MAX_SPEAKERS_SHOWN = 20

_ETHIOPIC = re.compile("[\u1200-\u135a\u1380-\u138f\u2d80-\u2dde\uab01-\uab2e\U0001e7e0-\U0001e7fe]")
_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_DIGIT = re.compile("[\\d\u1369-\u137c]")  # the last are Ethiopic numerals


@dataclass(frozen=True)
class Report:
    """A report, ready to print; the same data give the same text."""

    title: str
    facts: list[str]
    notices: list[str]
    problems: list[str]

    def __str__(self) -> str:
        lines = [self.title, *(f"  {fact}" for fact in self.facts)]
        lines += [f"  Notice: {notice}" for notice in self.notices]
        lines += [f"  Problem: {problem}" for problem in self.problems] or ["  No problems"]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Stored:
    """Where the features of an utterance are; `num_codes` is what its line says, if it does."""

    features: Path
    key: str
    num_codes: int | None


def check_manifest(path: Path) -> Report:
    """Return the report on a manifest of utterances, raw or preprocessed; every recording is opened.

    Raises:
        UserError: a line is no utterance.
    """
    numbered = read_numbered_utterances(path)
    utterances = [utterance for _, utterance in numbered]
    texts = [utterance.text for utterance in utterances]
    durations = [utterance.duration_s for utterance in utterances]
    facts = [
        f"utterances: {len(utterances)}, {sum(durations) / 3600:.2f} hours",
        f"duration in s: {_spread(durations)}",
        f"characters per second: {_spread([_chars_per_second(u) for u in utterances])}",
        *_speaker_facts(Counter(utterance.speaker for utterance in utterances)),
        _ethiopic_fact(texts),
    ]
    findings = Findings()
    _check_texts(texts, findings)
    _check_lines(path, numbered, findings)
    _check_recordings(path, numbered, findings)
    stored = {
        u.id: _Stored(u.features, u.features_key, u.num_codes)
        for u in utterances
        if u.features and u.features_key
    }
    _check_features(stored, findings)
    return Report(f"{path}: utterances", facts, _text_notices(texts), findings.lines())


def check_pairs(path: Path, manifest: Path | None = None) -> Report:
    """Return the report on a pairs file.

    Args:
        path: the pairs file.
        manifest: the utterances that it was made from, to compare speakers with.

    Raises:
        UserError: a line is no pair.
    """
    pairs = read_pairs(path)
    targets = {pair.target_id: pair for pair in pairs}
    texts = [target.target_text for target in targets.values()]
    hours = sum(target.target_duration_s for target in targets.values()) / 3600
    facts = [
        f"pairs: {len(pairs)} of {len(targets)} targets, {hours:.2f} hours of targets",
        f"pairs per target: {_spread(list(Counter(pair.target_id for pair in pairs).values()))}",
        *_speaker_facts(Counter(pair.speaker for pair in pairs)),
        _ethiopic_fact(texts),
    ]
    findings = Findings()
    _check_texts(texts, findings)
    _check_voices(pairs, [] if manifest is None else read_utterances(manifest), findings)
    stored = {pair.prompt_id: _Stored(pair.features, pair.prompt_key, None) for pair in pairs}
    stored |= {
        pair.target_id: _Stored(pair.features, pair.target_key, pair.target_num_codes) for pair in pairs
    }
    _check_features(stored, findings)
    return Report(f"{path}: pairs", facts, _text_notices(texts), findings.lines())


def check_split(train: Path, val: Path) -> Report:
    """Return the report on whether the pairs of `val` test what the pairs of `train` do not teach.

    Raises:
        UserError: a line is no pair.
    """
    taught, tested = read_pairs(train), read_pairs(val)
    heard = {pair.target_id for pair in taught} | {pair.prompt_id for pair in taught}
    targets = sorted({pair.target_id for pair in tested})
    findings = Findings()
    for target in targets:
        if target in heard:
            findings.add("validation targets are trained on too", target)
    facts = [f"validation targets: {len(targets)}, utterances heard in training: {len(heard)}"]
    return Report(f"{train} and {val}: split", facts, [], findings.lines())


def is_mostly_ethiopic(text: str) -> bool:
    """Tell whether at least half of the letters of `text` are Ethiopic; there must be one."""
    num_ethiopic = len(_ETHIOPIC.findall(text))
    return num_ethiopic > 0 and num_ethiopic >= MIN_ETHIOPIC_LETTERS * len(_LETTER.findall(text))


def _check_texts(texts: Sequence[str], findings: Findings) -> None:
    foreign = [text for text in texts if not is_mostly_ethiopic(text)]
    if len(foreign) > (1 - MIN_ETHIOPIC_TEXTS) * len(texts):
        for text in foreign:
            findings.add("texts are not mostly Ethiopic", " ".join(text.split())[:40])


def _check_lines(path: Path, numbered: Sequence[tuple[int, Utterance]], findings: Findings) -> None:
    """Check each line by itself, and that no two share a recording."""
    first_with: dict[Path, int] = {}
    for number, utterance in numbered:
        where = f"{path}:{number}"
        said = f"{where} ({len(utterance.text)} characters in {utterance.duration_s:.2f} s)"
        if utterance.duration_s < MIN_DURATION_S:
            findings.add(f"utterances are shorter than {MIN_DURATION_S} s", where)
        if utterance.duration_s > MAX_DURATION_S:
            findings.add(f"utterances are longer than {MAX_DURATION_S} s", where)
        if _chars_per_second(utterance) > MAX_CHARS_PER_SECOND:
            findings.add("utterances have more text than can be said in the time", said)
        if _chars_per_second(utterance) < MIN_CHARS_PER_SECOND:
            findings.add("utterances have too little text for the time", said)
        first = first_with.setdefault(utterance.audio, number)
        if first != number:
            findings.add("utterances have the recording of an earlier one", f"{where} that of line {first}")
        if utterance.num_codes is not None:
            off = abs(utterance.num_codes - utterance.duration_s * CODES_PER_SECOND)
            if off > MAX_CODES_OFF:
                codes = f"{where} ({utterance.num_codes} codes in {utterance.duration_s:.2f} s)"
                findings.add(f"utterances do not have {CODES_PER_SECOND} codes per second", codes)


def _check_recordings(path: Path, numbered: Sequence[tuple[int, Utterance]], findings: Findings) -> None:
    for (number, utterance), duration in zip(numbered, durations_s(numbered), strict=True):
        if isinstance(duration, UserError):
            findings.add("recordings cannot be used", f"{path}:{number}: {duration}")
        elif abs(duration - utterance.duration_s) > DURATION_TOLERANCE_S:
            found = f"{path}:{number}: {utterance.duration_s:.2f} s, the file has {duration:.2f} s"
            findings.add("durations are not those of the recordings", found)


def _check_voices(pairs: Sequence[Pair], utterances: Sequence[Utterance], findings: Findings) -> None:
    """Check that prompt and target are two utterances of one speaker.

    Args:
        pairs: of a whole file.
        utterances: that they were made from, or none if that is not known.
        findings: gets what is wrong.
    """
    speaker_of = {utterance.id: utterance.speaker for utterance in utterances}
    for pair in pairs:
        if pair.prompt_id == pair.target_id:
            findings.add("pairs have one utterance as prompt and target", pair.id)
        for id in (pair.target_id, pair.prompt_id):
            if utterances and id not in speaker_of:
                findings.add("utterances of pairs are not in the manifest", f"{id} of {pair.id}")
            elif speaker_of.setdefault(id, pair.speaker) != pair.speaker:
                found = f"{id} is by {speaker_of[id]}, pair {pair.id} is by {pair.speaker}"
                findings.add("pairs have an utterance of another speaker", found)


def _check_features(stored: Mapping[str, _Stored], findings: Findings) -> None:
    """Check utterances, by id, against their feature stores, which are read whole."""
    stores = {}
    for path in sorted({each.features for each in stored.values()}):
        try:
            stores[path] = FeatureStore.open(path)
            for file in stores[path].damaged_files():
                findings.add("files of the feature store are damaged", str(file))
        except UserError as error:
            stores.pop(path, None)
            findings.add("feature stores cannot be read", str(error))
    for id, each in sorted(stored.items()):
        store = stores.get(each.features)
        if store is None:
            continue
        if each.key not in store:
            findings.add("utterances are not in their feature store", id)
        elif each.num_codes not in (None, store.num_codes(each.key)):
            found = f"{id}: {each.num_codes}, the store has {store.num_codes(each.key)}"
            findings.add("numbers of codes are not those of the feature store", found)


def _text_notices(texts: Sequence[str]) -> list[str]:
    counts = {
        "texts have Latin letters": sum(1 for text in texts if _LATIN.search(text)),
        "texts have digits: spoken as words?": sum(1 for text in texts if _DIGIT.search(text)),
        "texts repeat an earlier one": len(texts) - len({" ".join(text.split()) for text in texts}),
    }
    return [f"{count} of {len(texts)} {what}" for what, count in counts.items() if count]


def _ethiopic_fact(texts: Sequence[str]) -> str:
    num_ethiopic = sum(map(is_mostly_ethiopic, texts))
    return f"mostly Ethiopic texts: {num_ethiopic} of {len(texts)} ({num_ethiopic / len(texts):.1%})"


def _speaker_facts(num_of: Counter[str]) -> list[str]:
    shown = [f"  {speaker}: {num_of[speaker]}" for speaker in sorted(num_of)[:MAX_SPEAKERS_SHOWN]]
    more = len(num_of) - len(shown)
    return [f"speakers: {len(num_of)}", *shown, *([f"  and {more} more"] if more > 0 else [])]


def _chars_per_second(utterance: Utterance) -> float:
    return len(utterance.text) / utterance.duration_s


def _spread(values: Sequence[float]) -> str:
    return f"min {min(values):.4g}, median {statistics.median(values):.4g}, max {max(values):.4g}"
