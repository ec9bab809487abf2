"""Summary of a check: problems and notices of the set, the facts of the printed report, and an overview.

The page shows the overview: totals, reasons, histograms, problems and notices.

    REPORT_DIR/overview.json
      {"num_utterances": 256, "num_good": 197, "num_warned": 59, "num_rejected": 0, "hours": 0.17,
       "num_speakers": 4,
       "length_correlation": 0.91,       of the texts with the time spoken; null for few clips
       "reasons": [{"name": "short", "count": 46, "hours": 0.02}, ...],     in the order of REASONS
       "histograms": [{"measure": "duration_s", "counts": [3, ...], "edges": [1.3, ...],
                       "limits": [{"value": 2.0, "side": "below", "is_hard": false, ...}, ...]}, ...],
       "problems": [{"code": "too_many_rejected", "count": 130, "text": "..."}, ...],
       "notices": [{"code": "few_speakers", "values": {"count": 4}, "text": "..."}, ...]}

`edges` has one element more than `counts`. `code` is "" for a finding of another check;
`text` is the line of the report. The file is replaced atomically, before the verdicts.
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from indextts.commands.base import flag_of
from indextts.commands.quality_limits import QualityLimits
from indextts.data.quality.clips import Clip
from indextts.data.quality.reasons import MEASURES, REASONS, Flag, Reason
from indextts.data.quality.text_fit import LengthFit, Run, TextFit
from indextts.data.report import Findings, histogram, speaker_lines, spread
from indextts.system.amounts import counted
from indextts.system.language_codes import standard_code
from indextts.system.yaml_files import read_if_valid
from indextts.text.languages import find_language

GOOD_NUM_SPEAKERS = 50
LOW_NUM_SPEAKERS = 10
MIN_CLIPS_OF_A_VOICE = 2  # a prompt and a target
NO_VOICE = "speakers without 2 usable clips, for a prompt and a target"
NO_RECOGNIZER = (
    "texts: judged by their lengths only, which are often similar; --asr compares them with the speech"
)
LENGTHS = "length of text against speech: correlation"
USUAL_LENGTHS = "above 0.8 if the texts match, lower if all clips have similar lengths"
EXCHANGED = (
    "many texts are too long or too short for their speech, as after an exchange of rows; texts with similar "
    "lengths may be exchanged too, which --asr finds"
)
SHORTENED = "most texts are too short for their speech, as if they were cut; see --warn-min-syllables-per-s"
ODD_LENGTHS = (  # code, reasons, percentage of the clips, sentence; of right texts, at most 0.7 % and 3 %
    ("odd_length", {"odd_length"}, 2.0, EXCHANGED),
    ("short_texts", {"slow", "too_slow"}, 50.0, SHORTENED),
)
MIN_ODD_LENGTHS = 5
MOST = 2 / 3
NUM_BINS = 24
MAX_CHOICES = 40  # of a limit
COSTLY = 0.2  # share of the clips that a limit rejects
NOISY_BAK = 2.5
OVERVIEW_NAME = "overview.json"


class ReasonCount(BaseModel, frozen=True):
    """Clips with a reason."""

    name: str
    count: int
    hours: float


class Limit(BaseModel, frozen=True):
    """Limit of a reason; clips on its side are rejected if it is hard, else get a warning."""

    value: float
    side: Literal["below", "above"]
    is_hard: bool
    field: str = ""  # of QualityLimits; "" in files of earlier versions
    choices: list[tuple[float, int]] = []  # of a hard limit: values, and how many clips each keeps


class MeasureHistogram(BaseModel, frozen=True):
    """Histogram of a measure, with the limits of its reasons; one bin of width 0 if all values are equal."""

    measure: str
    counts: list[int]
    edges: list[float]
    limits: list[Limit]


class Problem(BaseModel, frozen=True):
    """Problem that makes the set unfit for training."""

    code: str
    count: int
    text: str


class Notice(BaseModel, frozen=True):
    """Notice for the user to judge; `values` are the numbers and names in its text."""

    code: str
    values: dict[str, float | str]
    text: str


class Overview(BaseModel, frozen=True):
    """Content of overview.json."""

    num_utterances: int
    num_good: int
    num_warned: int
    num_rejected: int
    hours: float
    num_speakers: int
    length_correlation: float | None = None
    reasons: list[ReasonCount]
    histograms: list[MeasureHistogram]
    problems: list[Problem]
    notices: list[Notice]

    @property
    def has_misplaced_texts(self) -> bool:
        return any(problem.code == "misplaced_text" for problem in self.problems)


def add_problems(
    clips: Sequence[Clip], limits: QualityLimits, lengths: LengthFit, findings: Findings
) -> None:
    """Add problems that make the set unsuitable for training, with the codes of overview.json.

    Doubtful transcripts are none: they wait for a person.
    """
    for run in lengths.runs:
        kind = _misplaced(clips, run)
        for place in run.places:
            findings.add(kind, clips[place].utterance.id, "misplaced_text")
    for code, reasons, max_percent, kind in () if lengths.runs else ODD_LENGTHS:
        odd = [clip for clip in clips if not reasons.isdisjoint(flag.reason for flag in clip.flags)]
        if len(odd) >= max(MIN_ODD_LENGTHS, max_percent / 100 * len(clips)):
            for clip in odd:
                findings.add(kind, clip.utterance.id, code)
    if language_percent(clips) < limits.min_language_percent:
        for clip in clips:
            if not clip.text.is_mostly_own:
                text = " ".join(clip.utterance.text.split())[:40]
                findings.add("texts in another script", text, "other_script")
    rejected = [clip for clip in clips if clip.is_rejected and not clip.utterance.is_doubtful]
    if 100 * len(rejected) > limits.max_rejected_percent * len(clips):
        for clip in rejected:
            kind = f"too many rejected of {counted(len(clips), 'utterance')}"
            findings.add(kind, clip.utterance.id, "too_many_rejected")
    usable = Counter(c.utterance.speaker for c in clips if not c.is_rejected or c.utterance.is_doubtful)
    if max(usable.values(), default=0) < MIN_CLIPS_OF_A_VOICE:
        for speaker in sorted({clip.utterance.speaker for clip in clips}):
            findings.add(NO_VOICE, speaker, "no_voice")


def _misplaced(clips: Sequence[Clip], run: Run) -> str:
    """Return the sentence about clips in a row whose texts belong to other recordings."""
    shown = f"{LENGTHS} {run.correlation:.2f}, right texts have over 0.8"
    num_texts = len({clips[place].text.key for place in run.places})
    if 2 * num_texts < len(run.places):
        shown += f"; {counted(num_texts, 'different text')} for {counted(len(run.places), 'clip')}"
    if len(run.places) > MOST * len(clips):
        which = "the texts do not belong to these recordings"
    else:
        first, last = (clips[place].utterance.id for place in (run.places[0], run.places[-1]))
        which = f"from {first} to {last}, the texts do not belong to the recordings"
    if run.shift:
        where = "below" if run.shift > 0 else "above"
        shown += f"; the right text of each is {counted(abs(run.shift), 'line')} {where} it"
    return f"{which} ({shown})"


def summarise(
    clips: Sequence[Clip], limits: QualityLimits, lengths: LengthFit, findings: Findings
) -> Overview:
    """Return the overview of a check, with the findings as its problems."""
    hours_of = _hours_by_speaker(clips)
    words = Counter(clip.verdict for clip in clips)
    flagged = _by_reason(clips)
    return Overview(
        num_utterances=len(clips),
        num_good=words["good"],
        num_warned=words["warned"],
        num_rejected=words["rejected"],
        hours=sum(clip.hours for clip in clips),
        num_speakers=len(hours_of),
        length_correlation=lengths.correlation,
        reasons=[
            ReasonCount(name=name, count=len(found), hours=sum(clip.hours for clip, _ in found))
            for name, found in flagged.items()
        ],
        histograms=[found for name in MEASURES if (found := _histogram(name, clips, limits))],
        problems=[
            Problem(code=findings.codes[kind], count=count, text=line)
            for (kind, count), line in zip(findings.counts.items(), findings.lines(), strict=True)
        ],
        notices=[*_costly_limits(clips, limits), *_noisy_set(clips), *_notices(hours_of, limits)],
    )


def read_overview(folder: Path) -> Overview | None:
    """Return the overview of the last check with this report folder; None without a valid one."""
    return read_if_valid(Overview, folder / OVERVIEW_NAME)


def facts(
    clips: Sequence[Clip], overview: Overview, fit: TextFit, limits: QualityLimits, language: str
) -> list[str]:
    """Return totals, spreads, speakers and counts of reasons; `language` is that of lines without one."""
    left = sum(clip.hours for clip in clips if not clip.is_rejected)
    lines = [
        f"utterances: {len(clips)}, {overview.hours:.2f} hours, of which {left:.2f} go on",
        f"good: {overview.num_good}, with warnings: {overview.num_warned}, rejected: {overview.num_rejected}",
    ]
    for name, measure in MEASURES.items():
        values = _values(clips, name) if measure.spread else []
        lines += [f"{measure.spread}: {spread(values)}"] if values else []
    if overview.length_correlation is not None:
        verdict = "texts of other recordings" if overview.has_misplaced_texts else USUAL_LENGTHS
        lines.append(f"{LENGTHS} {overview.length_correlation:.2f}; {verdict}")
    lines += fit.facts(limits.max_text_deviation) or [NO_RECOGNIZER]
    num_of, hours_of = Counter(clip.utterance.speaker for clip in clips), _hours_by_speaker(clips)
    ordered = sorted(hours_of, key=lambda speaker: (-hours_of[speaker], speaker))
    lines += speaker_lines({name: f"{hours_of[name]:.2f} hours, {num_of[name]}" for name in ordered})
    share = language_percent(clips)
    if share >= limits.min_language_percent:
        codes = {standard_code(clip.utterance.language) or language for clip in clips}
        names = sorted({find_language(code).name for code in codes})
        lines.append(f"Dataset is primarily {', '.join(names)} ({share:.1f} % of the texts)")
    if overview.num_speakers >= GOOD_NUM_SPEAKERS:
        lines.append(f"Good speaker diversity ({overview.num_speakers} speakers)")
    return [*lines, *_reason_lines(clips, overview)]


def language_percent(clips: Sequence[Clip]) -> float:
    """Return the percentage of texts that are mostly in the script of their language."""
    return 100 * sum(clip.text.is_mostly_own for clip in clips) / len(clips)


def _costly_limits(clips: Sequence[Clip], limits: QualityLimits) -> Iterable[Notice]:
    """Yield a notice for each limit of a sound that rejects more than a fifth: one that keeps 90 %."""
    for reason in REASONS:
        share = sum(reason.name in {flag.reason for flag in clip.flags} for clip in clips) / len(clips)
        measured = [(clip.sound.measures or {}).get(reason.measure) for clip in clips]
        values = sorted(value for value in measured if value is not None)
        if not reason.is_hard or not reason.limit or share <= COSTLY or not values:
            continue
        is_min = reason.side == "below"
        value = values[len(values) // 10] if is_min else values[-1 - len(values) // 10]
        scale = 10.0 ** (1 - math.floor(math.log10(abs(value)))) if value else 1.0  # two digits
        limit = (math.floor if is_min else math.ceil)(round(value * scale, 6)) / scale
        kept = len(clips) - sum(each < limit if is_min else each > limit for each in values)
        show, field = MEASURES[reason.measure].flagged.format, QualityLimits.model_fields[reason.limit]
        text = (
            f"{100 * share:.0f} % are {reason.side} {show(getattr(limits, reason.limit))} ({reason.what}); "
        )
        text += f"at {show(limit)}, {kept} of {len(clips)} stay: {flag_of(reason.limit)} {limit:g}, "
        text += f'on the page "{field.title}"'
        found: dict[str, float | str] = {"percent": 100 * share, "limit": limit, "kept": kept}
        names = {"total": len(clips), "reason": reason.name, "field": reason.limit}
        yield Notice(code="costly_limit", values={**found, **names}, text=text)


def _noisy_set(clips: Sequence[Clip]) -> Iterable[Notice]:
    """Yield a notice if most clips are noisy: compared with each other, none of them stands out."""
    scores = _values(clips, "bak")
    if scores and (score := statistics.median(scores)) < NOISY_BAK:
        text = (
            f"most recordings are noisy: their median DNSMOS BAK is {score:.1f} of 5; the check compares a "
        )
        text += "clip with others of its speaker, so it flags few of them; listen to some before you train"
        yield Notice(code="noisy_set", values={"score": score}, text=text)


def _notices(hours_of: Mapping[str, float], limits: QualityLimits) -> Iterable[Notice]:
    """Yield notices about the distribution of speakers."""
    total, count = sum(hours_of.values()), len(hours_of)
    if count < LOW_NUM_SPEAKERS:
        text = f"{counted(count, 'speaker')}: the model learns these voices, but does not generalise to "
        yield Notice(code="few_speakers", values={"count": count}, text=f"{text}other voices")
    elif count < GOOD_NUM_SPEAKERS:
        text = f"low speaker diversity ({counted(count, 'speaker')})"
        yield Notice(code="some_speakers", values={"count": count}, text=text)
    first, hours = max(hours_of.items(), key=lambda item: item[1])
    if count > 1 and 100 * hours > limits.max_speaker_percent * total:
        percent = round(100 * hours / total)
        text = f"speaker {first} has {percent} % of the hours"
        values: dict[str, float | str] = {"speaker": first, "percent": percent}
        yield Notice(code="dominant_speaker", values=values, text=text)
    minutes = limits.min_speaker_minutes
    short = sum(hours * 60 < minutes for hours in hours_of.values())
    if short:
        text = f"{short} of {count} speakers have less than {minutes:g} minutes"
        text += "; if several names stand for the same voice, use the same name for all of them"
        values = {"short": short, "count": count, "minutes": minutes}
        yield Notice(code="short_speakers", values=values, text=text)


def _hours_by_speaker(clips: Sequence[Clip]) -> dict[str, float]:
    hours_of: dict[str, float] = defaultdict(float)
    for clip in clips:
        hours_of[clip.utterance.speaker] += clip.hours
    return hours_of


def _reason_lines(clips: Sequence[Clip], overview: Overview) -> Iterable[str]:
    """Yield the number of clips that each reason flags, and the worst of them."""
    flagged = _by_reason(clips)
    for is_hard, title in ((True, "reasons for rejection:"), (False, "warnings:")):
        hard_or_soft = {reason.name for reason in REASONS if reason.is_hard == is_hard}
        found = [each for each in overview.reasons if each.name in hard_or_soft]
        yield from [title] if found else []
        for each in found:
            worst, flag = flagged[each.name][0]
            shown = f"worst {worst.utterance.id} ({flag.description})"
            yield f"  {each.name}: {each.count}, {each.hours:.2f} hours; {shown}"


def _by_reason(clips: Sequence[Clip]) -> dict[str, list[tuple[Clip, Flag]]]:
    """Return the clips that each reason flags, in the order of REASONS, the worst clip first."""
    found: dict[str, list[tuple[Clip, Flag]]] = {reason.name: [] for reason in REASONS}
    for clip in clips:
        for flag in clip.flags:
            found[flag.reason].append((clip, flag))
    return {name: sorted(each, key=lambda pair: -pair[1].severity) for name, each in found.items() if each}


def _values(clips: Sequence[Clip], measure: str) -> list[float]:
    return [value for clip in clips if (value := clip.measures.get(measure)) is not None]


def _histogram(name: str, clips: Sequence[Clip], limits: QualityLimits) -> MeasureHistogram | None:
    values = _values(clips, name) if MEASURES[name].title else []
    if not values:
        return None
    counts, edges = histogram(values, NUM_BINS)
    return MeasureHistogram(
        measure=name,
        counts=counts,
        edges=edges,
        limits=[
            Limit(
                value=(value := float(getattr(limits, reason.limit))),
                side=reason.side,
                is_hard=reason.is_hard,
                field=reason.limit,
                choices=_choices(values, value, reason, len(clips)) if reason.is_hard else [],
            )
            for reason in REASONS
            if reason.measure == name and reason.limit
        ],
    )


def _choices(
    values: Sequence[float], limit: float, reason: Reason, num_clips: int
) -> list[tuple[float, int]]:
    """Return the `choices` of a limit, with the limit itself; empty if all values are equal."""
    ordered, low, high = sorted(values), min(values), max(values)
    if low == high:
        return []
    rough = (high - low) / MAX_CHOICES
    power = 10.0 ** math.floor(math.log10(rough))
    unit = power * next(factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    if QualityLimits.model_fields[reason.limit].annotation is not float:
        unit = max(1.0, unit)
    is_max = reason.side == "above"  # a maximum below all values is none, nor a minimum above them
    places = range(math.floor(low / unit) + is_max, math.ceil(high / unit) + is_max)
    found = sorted({*(round(place * unit, 6) for place in places), limit})

    def num_kept(value: float) -> int:
        if is_max:
            return num_clips - len(ordered) + bisect_right(ordered, value)
        return num_clips - bisect_left(ordered, value)

    return [(value, num_kept(value)) for value in found]
