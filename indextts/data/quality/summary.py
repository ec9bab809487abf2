"""Summary of the verdicts on all clips: facts, notices and problems of the set."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from indextts.commands.quality_limits import QualityLimits
from indextts.data.manifest import Utterance
from indextts.data.quality.clips import ClipResult
from indextts.data.quality.reasons import REASONS, Flag
from indextts.data.quality.verdicts import Verdict
from indextts.data.report import MAX_SPEAKERS_SHOWN, Findings, spread
from indextts.system.amounts import counted

GOOD_NUM_SPEAKERS = 50
LOW_NUM_SPEAKERS = 10
MIN_CLIPS_OF_A_VOICE = 2  # a prompt and a target

_SPREADS = {
    "duration_s": "duration in s",
    "fidel_per_s": "fidel per second",
    "loudness_lufs": "loudness in LUFS",
    "snr_db": "SNR in dB",
    "silence_percent": "silence in percent",
}


def facts(
    utterances: Sequence[Utterance],
    clips: Sequence[ClipResult],
    verdicts: Sequence[Verdict],
    limits: QualityLimits,
) -> list[str]:
    """Return totals, the spread of each measure, the speakers, and the counts of each reason."""
    hours = [_hours(utterance, verdict) for utterance, verdict in zip(utterances, verdicts, strict=True)]
    words = Counter(verdict.word for verdict in verdicts)
    lines = [
        f"utterances: {len(utterances)}, {sum(hours):.2f} hours",
        f"good: {words['good']}, with warnings: {words['warned']}, rejected: {words['rejected']}",
    ]
    for name, what in _SPREADS.items():
        values = [value for verdict in verdicts if (value := verdict.measures.get(name)) is not None]
        lines += [f"{what}: {spread(values)}"] if values else []
    lines += _speaker_lines(utterances, hours)
    share = amharic_percent(clips)
    if share >= limits.min_amharic_percent:
        lines.append(f"Dataset is primarily Amharic ({share:.1f} % of the texts)")
    num_speakers = len({utterance.speaker for utterance in utterances})
    if num_speakers >= GOOD_NUM_SPEAKERS:
        lines.append(f"Good speaker diversity ({num_speakers} speakers)")
    return lines + _reason_lines(utterances, hours, verdicts)


def notices(utterances: Sequence[Utterance], verdicts: Sequence[Verdict], limits: QualityLimits) -> list[str]:
    """Return notices for the user to judge, mainly about the distribution of speakers."""
    hours_of: dict[str, float] = defaultdict(float)
    for utterance, verdict in zip(utterances, verdicts, strict=True):
        hours_of[utterance.speaker] += _hours(utterance, verdict)
    total = sum(hours_of.values())
    lines = []
    if len(hours_of) < LOW_NUM_SPEAKERS:
        lines.append(
            f"{counted(len(hours_of), 'speaker')}: the model learns these voices, but does not generalise to "
            "other voices"
        )
    elif len(hours_of) < GOOD_NUM_SPEAKERS:
        lines.append(f"low speaker diversity ({len(hours_of)} speakers)")
    first, hours = max(hours_of.items(), key=lambda item: item[1])
    if len(hours_of) > 1 and 100 * hours > limits.max_speaker_percent * total:
        lines.append(f"speaker {first} has {100 * hours / total:.0f} % of the hours")
    small = [speaker for speaker, hours in hours_of.items() if hours * 60 < limits.min_speaker_minutes]
    if small:
        short = (
            f"{len(small)} of {len(hours_of)} speakers have less than {limits.min_speaker_minutes:g} minutes"
        )
        lines.append(f"{short}; if several names stand for the same voice, use the same name for all of them")
    return lines


def add_problems(
    utterances: Sequence[Utterance],
    clips: Sequence[ClipResult],
    verdicts: Sequence[Verdict],
    limits: QualityLimits,
    findings: Findings,
) -> None:
    """Add problems that make the set unsuitable for training."""
    if amharic_percent(clips) < limits.min_amharic_percent:
        for utterance, clip in zip(utterances, clips, strict=True):
            if not clip.text.is_mostly_ethiopic:
                findings.add("texts with few Ethiopic letters", " ".join(utterance.text.split())[:40])
    rejected = [u.id for u, verdict in zip(utterances, verdicts, strict=True) if verdict.is_rejected]
    if 100 * len(rejected) > limits.max_rejected_percent * len(utterances):
        for id in rejected:
            kind = f"too many rejected of {counted(len(utterances), 'utterance')}"
            findings.add(kind, id)
    num_of = Counter(
        u.speaker for u, verdict in zip(utterances, verdicts, strict=True) if not verdict.is_rejected
    )
    if max(num_of.values(), default=0) < MIN_CLIPS_OF_A_VOICE:
        for speaker in sorted({utterance.speaker for utterance in utterances}):
            findings.add("speakers without 2 usable clips, for a prompt and a target", speaker)


def amharic_percent(clips: Sequence[ClipResult]) -> float:
    return 100 * sum(clip.text.is_mostly_ethiopic for clip in clips) / len(clips)


def _speaker_lines(utterances: Sequence[Utterance], hours: Sequence[float]) -> list[str]:
    """Return hours and number of clips of the speakers, in descending order of hours."""
    num_of = Counter(utterance.speaker for utterance in utterances)
    hours_of: dict[str, float] = defaultdict(float)
    for utterance, duration in zip(utterances, hours, strict=True):
        hours_of[utterance.speaker] += duration
    ordered = sorted(hours_of, key=lambda speaker: (-hours_of[speaker], speaker))
    shown = [f"  {name}: {hours_of[name]:.2f} hours, {num_of[name]}" for name in ordered[:MAX_SPEAKERS_SHOWN]]
    more = len(ordered) - len(shown)
    return [f"speakers: {len(ordered)}", *shown, *([f"  and {more} more"] if more > 0 else [])]


def _reason_lines(
    utterances: Sequence[Utterance], hours: Sequence[float], verdicts: Sequence[Verdict]
) -> list[str]:
    """Return the number of clips that each reason flags, and the worst of them."""
    places_of = by_reason(verdicts)
    lines = []
    for is_hard, title in ((True, "reasons for rejection:"), (False, "warnings:")):
        found = [r.name for r in REASONS if r.is_hard == is_hard and r.name in places_of]
        lines += [title] if found else []
        for name in found:
            places = places_of[name]
            total = sum(hours[place] for place, _ in places)
            worst, flag = places[0]
            shown = f"worst {utterances[worst].id} ({flag.description})"
            lines.append(f"  {name}: {len(places)}, {total:.2f} hours; {shown}")
    return lines


def by_reason(verdicts: Sequence[Verdict]) -> Mapping[str, list[tuple[int, Flag]]]:
    """Return the indices of the clips that each reason flags, with the flag, the worst first."""
    places_of: dict[str, list[tuple[int, Flag]]] = defaultdict(list)
    for place, verdict in enumerate(verdicts):
        for flag in verdict.flags:
            places_of[flag.reason].append((place, flag))
    for places in places_of.values():
        places.sort(key=lambda found: -found[1].severity)
    return places_of


def _hours(utterance: Utterance, verdict: Verdict) -> float:
    duration_s = verdict.measures.get("duration_s")
    return (utterance.duration_s if duration_s is None else duration_s) / 3600
