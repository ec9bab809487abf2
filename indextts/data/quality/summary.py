"""Summary of the verdicts on all clips: facts, notices and problems of the set, and its overview."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from indextts.commands.quality_limits import QualityLimits
from indextts.data.manifest import Utterance
from indextts.data.quality.clips import ClipResult
from indextts.data.quality.overview import Limit, MeasureHistogram, Notice, Overview, Problem, ReasonCount
from indextts.data.quality.reasons import REASONS, Flag
from indextts.data.quality.verdicts import Verdict, text_fit_of
from indextts.data.report import MAX_SPEAKERS_SHOWN, Findings, histogram, spread
from indextts.system.amounts import counted
from indextts.system.language_codes import standard_code
from indextts.text.languages import find_language

GOOD_NUM_SPEAKERS = 50
LOW_NUM_SPEAKERS = 10
MIN_CLIPS_OF_A_VOICE = 2  # a prompt and a target

# Kinds of problems, and their codes in overview.json
OTHER_SCRIPT = "texts in another script"
TOO_MANY_REJECTED = "too many rejected of "
NO_VOICE = "speakers without 2 usable clips, for a prompt and a target"
CODES = {OTHER_SCRIPT: "other_script", TOO_MANY_REJECTED: "too_many_rejected", NO_VOICE: "no_voice"}

NO_RECOGNIZER = (
    "texts: judged by their length only, which finds few wrong ones; --asr compares with the speech"
)

NUM_BINS = 24
MEASURES = {  # with a histogram, and its title
    "duration_s": "duration (s)",
    "syllables_per_s": "syllables per second",
    "snr_db": "SNR (dB)",
    "silence_percent": "silence (%)",
    "rms_dbfs": "RMS (dBFS)",
    "loudness_lufs": "loudness (LUFS)",
    "bandwidth_hz": "bandwidth (Hz)",
    "clipped_percent": "clipped samples (%)",
    "end_db": "level at the end (dB)",
    "sig": "DNSMOS SIG",
    "bak": "DNSMOS BAK",
    "ovrl": "DNSMOS OVRL",
    "bak_below": "BAK below the speaker's median, in deviations",
    "sig_below": "SIG below the speaker's median, in deviations",
    "music_db": "tones in the pauses (dB)",
    "voice_deviation": "deviation of the voice (spreads)",
    "halves_deviation": "deviation of the halves (spreads)",
    "script_percent": "letters in the script (%)",
    "error_percent": "recognizer errors (% of letters)",
    "alignment": "alignment of the text (nats per letter)",
}

_SPREADS = {
    "duration_s": "duration in s",
    "syllables_per_s": "syllables per second",
    "loudness_lufs": "loudness in LUFS",
    "snr_db": "SNR in dB (speech over steady noise; music and other voices do not count)",
    "silence_percent": "silence in percent",
    "sig": "DNSMOS SIG, distortion of the speech (1 to 5)",
    "bak": "DNSMOS BAK, background (1 to 5)",
    "ovrl": "DNSMOS OVRL, overall (1 to 5)",
}


def facts(
    utterances: Sequence[Utterance],
    clips: Sequence[ClipResult],
    verdicts: Sequence[Verdict],
    limits: QualityLimits,
    language: str,
) -> list[str]:
    """Return totals, the spread of each measure, the speakers, and the counts of each reason.

    Args:
        language: of utterances whose line names none.
    """
    hours = [
        _hours_of_clip(utterance, verdict) for utterance, verdict in zip(utterances, verdicts, strict=True)
    ]
    words = Counter(verdict.word for verdict in verdicts)
    lines = [
        f"utterances: {len(utterances)}, {sum(hours):.2f} hours",
        f"good: {words['good']}, with warnings: {words['warned']}, rejected: {words['rejected']}",
    ]
    for name, what in _SPREADS.items():
        values = [value for verdict in verdicts if (value := verdict.measures.get(name)) is not None]
        lines += [f"{what}: {spread(values)}"] if values else []
    lines += text_fit_of(utterances, clips).facts(limits.max_text_deviation) or [NO_RECOGNIZER]
    lines += _speaker_lines(utterances, hours)
    share = language_percent(clips)
    if share >= limits.min_language_percent:
        names = sorted(
            {find_language(standard_code(utterance.language) or language).name for utterance in utterances}
        )
        lines.append(f"Dataset is primarily {', '.join(names)} ({share:.1f} % of the texts)")
    num_speakers = len({utterance.speaker for utterance in utterances})
    if num_speakers >= GOOD_NUM_SPEAKERS:
        lines.append(f"Good speaker diversity ({num_speakers} speakers)")
    return lines + _reason_lines(utterances, hours, verdicts)


def notices(
    utterances: Sequence[Utterance], verdicts: Sequence[Verdict], limits: QualityLimits
) -> list[Notice]:
    """Return notices, mainly about the distribution of speakers."""
    hours_of: dict[str, float] = defaultdict(float)
    for utterance, verdict in zip(utterances, verdicts, strict=True):
        hours_of[utterance.speaker] += _hours_of_clip(utterance, verdict)
    total = sum(hours_of.values())
    count = len(hours_of)
    found: list[Notice] = []
    if count < LOW_NUM_SPEAKERS:
        text = f"{counted(count, 'speaker')}: the model learns these voices, but does not generalise to "
        found.append(Notice(code="few_speakers", values={"count": count}, text=f"{text}other voices"))
    elif count < GOOD_NUM_SPEAKERS:
        text = f"low speaker diversity ({count} speakers)"
        found.append(Notice(code="some_speakers", values={"count": count}, text=text))
    first, hours = max(hours_of.items(), key=lambda item: item[1])
    if count > 1 and 100 * hours > limits.max_speaker_percent * total:
        percent = round(100 * hours / total)
        text = f"speaker {first} has {percent} % of the hours"
        values: dict[str, float | str] = {"speaker": first, "percent": percent}
        found.append(Notice(code="dominant_speaker", values=values, text=text))
    minutes = limits.min_speaker_minutes
    short = sum(hours * 60 < minutes for hours in hours_of.values())
    if short:
        text = f"{short} of {count} speakers have less than {minutes:g} minutes"
        text += "; if several names stand for the same voice, use the same name for all of them"
        values = {"short": short, "count": count, "minutes": minutes}
        found.append(Notice(code="short_speakers", values=values, text=text))
    return found


def add_problems(
    utterances: Sequence[Utterance],
    clips: Sequence[ClipResult],
    verdicts: Sequence[Verdict],
    limits: QualityLimits,
    findings: Findings,
) -> None:
    """Add problems that make the set unsuitable for training.

    Doubtful transcripts are none: they wait for a person.
    """
    if language_percent(clips) < limits.min_language_percent:
        for utterance, clip in zip(utterances, clips, strict=True):
            if not clip.text.is_mostly_own:
                findings.add(OTHER_SCRIPT, " ".join(utterance.text.split())[:40])
    judged = list(zip(utterances, verdicts, strict=True))
    rejected = [u.id for u, verdict in judged if verdict.is_rejected and not u.is_doubtful]
    if 100 * len(rejected) > limits.max_rejected_percent * len(utterances):
        for id in rejected:
            kind = f"{TOO_MANY_REJECTED}{counted(len(utterances), 'utterance')}"
            findings.add(kind, id)
    num_of = Counter(u.speaker for u, verdict in judged if not verdict.is_rejected or u.is_doubtful)
    if max(num_of.values(), default=0) < MIN_CLIPS_OF_A_VOICE:
        for speaker in sorted({utterance.speaker for utterance in utterances}):
            findings.add(NO_VOICE, speaker)


def overview_of(
    utterances: Sequence[Utterance],
    verdicts: Sequence[Verdict],
    limits: QualityLimits,
    notices: Sequence[Notice],
    findings: Findings,
) -> Overview:
    """Return the overview of a check."""
    hours = [_hours_of_clip(each, verdict) for each, verdict in zip(utterances, verdicts, strict=True)]
    words = [verdict.word for verdict in verdicts]
    places_of = by_reason(verdicts)
    return Overview(
        num_utterances=len(utterances),
        num_good=words.count("good"),
        num_warned=words.count("warned"),
        num_rejected=words.count("rejected"),
        hours=sum(hours),
        num_speakers=len({utterance.speaker for utterance in utterances}),
        reasons=[
            ReasonCount(name=reason.name, count=len(places), hours=sum(hours[place] for place, _ in places))
            for reason in REASONS
            if (places := places_of.get(reason.name))
        ],
        histograms=[found for name in MEASURES if (found := _histogram(name, verdicts, limits))],
        problems=[
            Problem(code=_code_of(kind), count=count, text=line)
            for (kind, count), line in zip(findings.counts.items(), findings.lines(), strict=True)
        ],
        notices=list(notices),
    )


def language_percent(clips: Sequence[ClipResult]) -> float:
    """Return the percentage of texts that are mostly in the script of their language."""
    return 100 * sum(clip.text.is_mostly_own for clip in clips) / len(clips)


def _code_of(kind: str) -> str:
    """Return the code of a kind of problem; "" for a kind of another check."""
    return next((code for start, code in CODES.items() if kind.startswith(start)), "")


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


def _hours_of_clip(utterance: Utterance, verdict: Verdict) -> float:
    """Return the measured duration of a clip in hours; that of the manifest if there is none."""
    duration_s = verdict.measures.get("duration_s")
    return (utterance.duration_s if duration_s is None else duration_s) / 3600


def _histogram(name: str, verdicts: Sequence[Verdict], limits: QualityLimits) -> MeasureHistogram | None:
    values = [value for verdict in verdicts if (value := verdict.measures.get(name)) is not None]
    if not values:
        return None
    counts, edges = histogram(values, NUM_BINS)
    return MeasureHistogram(
        measure=name,
        counts=counts,
        edges=edges,
        limits=[
            Limit(value=float(getattr(limits, reason.limit)), side=reason.side, is_hard=reason.is_hard)
            for reason in REASONS
            if reason.measure == name and reason.limit
        ],
    )
