"""Verdicts on clips: flags from a clip's measures and from comparisons within the set."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from indextts.commands.quality_limits import QualityLimits
from indextts.data.manifest import Utterance
from indextts.data.quality.clips import ClipResult
from indextts.data.quality.copies import groups_of_copies
from indextts.data.quality.measures import Measures
from indextts.data.quality.reasons import REASON_OF, REASONS, SHOWN, Flag
from indextts.data.quality.text_fit import TextFit, details, text_fit

DOUBTFUL_TEXT = "doubtful_text"
MIN_CLIPS_OF_SPEAKER = 20  # quartiles and medians of fewer are unreliable
USUAL_TONES_DB = -50.0  # of a speaker; a room with a long echo or a hum has more in all clips


@dataclass(frozen=True)
class Verdict:
    """Measures of a clip, and its flags in the order of REASONS."""

    measures: Measures
    flags: tuple[Flag, ...]

    @property
    def is_rejected(self) -> bool:
        return any(flag.is_hard for flag in self.flags)

    @property
    def word(self) -> Literal["good", "warned", "rejected"]:
        return "rejected" if self.is_rejected else "warned" if self.flags else "good"


def judge(
    utterances: Sequence[Utterance],
    clips: Sequence[ClipResult],
    limits: QualityLimits,
    from_models: Sequence[Measures] = (),
) -> list[Verdict]:
    """Return the verdict on each clip, in order.

    Of clips with the same audio, or with the same text and speaker, the first without another hard flag is
    not flagged as a copy; if all have hard flags, the first clip is not.

    Args:
        from_models: further measures of each utterance; empty if no model measured them.
    """
    measured = [_measures(u, clip, limits) for u, clip in zip(utterances, clips, strict=True)]
    for measures, further in zip(measured, from_models, strict=bool(from_models)):
        measures.update(further)
    _add_rates(utterances, measured)
    _add_music(utterances, measured)
    _add_speakers_of_text(utterances, clips, measured)
    fit = text_fit_of(utterances, clips)
    for utterance, clip, measures in zip(utterances, clips, measured, strict=True):
        measures.update(fit.measures(utterance.speaker, clip.heard))
    flags = [
        [
            *_unreadable(clip),
            *_beyond_limits(measures, limits, details(utterance.text, clip.heard)),
            *doubtful_text(utterance),
        ]
        for utterance, clip, measures in zip(utterances, clips, measured, strict=True)
    ]
    sounds = groups_of_copies(
        [clip.audio.fingerprint for clip in clips], [clip.audio.samples_sha256 for clip in clips]
    )
    _flag_copies("same_audio", utterances, sounds, flags)
    texts = [(u.speaker, c.text.key) if c.text.key else None for u, c in zip(utterances, clips, strict=True)]
    _flag_copies("same_text", utterances, texts, flags)
    order = {reason.name: place for place, reason in enumerate(REASONS)}
    return [
        Verdict(measures, tuple(sorted(found, key=lambda flag: order[flag.reason])))
        for measures, found in zip(measured, flags, strict=True)
    ]


def text_fit_of(utterances: Sequence[Utterance], clips: Sequence[ClipResult]) -> TextFit:
    """Return the comparison of the texts with what a recognizer heard."""
    heard = [(u.speaker, clip.heard) for u, clip in zip(utterances, clips, strict=True) if clip.heard]
    return text_fit(heard)


def _measures(utterance: Utterance, clip: ClipResult, limits: QualityLimits) -> Measures:
    """Return all measures of a clip; those of an unreadable recording are missing."""
    text = clip.text
    measures: Measures = {
        **(clip.audio.measures or {}),
        "script_percent": text.script_percent,
        "tigrinya_percent": text.tigrinya_percent if text.num_tigrinya >= limits.min_tigrinya_letters else 0,
        "tigrinya_letter_percent": text.tigrinya_percent,
        "num_latin": text.num_latin,
        "num_digits": text.num_digits,
        "num_other": text.num_other,
    }
    duration_s = measures.get("duration_s")
    if duration_s:
        measures["duration_error_s"] = abs(duration_s - utterance.duration_s)
        # A rate is meaningless for a text in another script.
        measures["syllables_per_s"] = text.num_syllables / duration_s if text.is_mostly_own else None
    return measures


def _add_rates(utterances: Sequence[Utterance], measured: Sequence[Measures]) -> None:
    """Add the distance of each clip's rate from the speaker's median, in interquartile ranges."""
    rates_of: dict[str, list[float]] = defaultdict(list)
    for utterance, measures in zip(utterances, measured, strict=True):
        if (rate := measures.get("syllables_per_s")) is not None:
            rates_of[utterance.speaker].append(rate)
    quartiles_of = {
        speaker: statistics.quantiles(rates, n=4, method="inclusive")
        for speaker, rates in rates_of.items()
        if len(rates) >= MIN_CLIPS_OF_SPEAKER
    }
    for utterance, measures in zip(utterances, measured, strict=True):
        rate = measures.get("syllables_per_s")
        if rate is not None and utterance.speaker in quartiles_of:
            first, median, third = quartiles_of[utterance.speaker]
            measures["rate_iqr"] = abs(rate - median) / (third - first) if third > first else None


def _add_music(utterances: Sequence[Utterance], measured: Sequence[Measures]) -> None:
    """Add the level of the tones in the pauses, less what the speaker's median has above USUAL_TONES_DB."""
    levels_of: dict[str, list[float]] = defaultdict(list)
    for utterance, measures in zip(utterances, measured, strict=True):
        if (level := measures.get("tones_db")) is not None:
            levels_of[utterance.speaker].append(level)
    for utterance, measures in zip(utterances, measured, strict=True):
        if (level := measures.get("tones_db")) is not None:
            levels = levels_of[utterance.speaker]
            usual = statistics.median(levels) if len(levels) >= MIN_CLIPS_OF_SPEAKER else USUAL_TONES_DB
            measures["music_db"] = level - max(0.0, usual - USUAL_TONES_DB)


def _add_speakers_of_text(
    utterances: Sequence[Utterance], clips: Sequence[ClipResult], measured: Sequence[Measures]
) -> None:
    speakers_of: dict[str, set[str]] = defaultdict(set)
    for utterance, clip in zip(utterances, clips, strict=True):
        speakers_of[clip.text.key].add(utterance.speaker)
    for clip, measures in zip(clips, measured, strict=True):
        measures["speakers_of_text"] = len(speakers_of[clip.text.key]) if clip.text.key else 0


def _unreadable(clip: ClipResult) -> Iterable[Flag]:
    if clip.audio.measures is None:
        yield Flag("unreadable", 0.0, clip.audio.error)


def doubtful_text(utterance: Utterance) -> Iterable[Flag]:
    """Yield the flag of a text that a program found and doubts; its severity grows with the doubt."""
    found = utterance.provenance
    if found is None or not utterance.is_doubtful:
        return
    what, names = REASON_OF[DOUBTFUL_TEXT].what, ", ".join(found.by)
    if found.disagreement is not None:
        said = f"{names} differ in {100 * found.disagreement:.0f} % of the letters"
        yield Flag(DOUBTFUL_TEXT, found.disagreement, f"{what}: {said}")
    elif found.score is not None:
        kind = "aligned" if found.kind == "aligned" else "heard"
        said = f"{kind} by {names}, {found.score:.2f} nats per letter"
        yield Flag(DOUBTFUL_TEXT, max(0.0, -found.score), f"{what}: {said}")
    else:
        yield Flag(DOUBTFUL_TEXT, 0.0, f"{what}: {found.kind} by {names}")


def _beyond_limits(measures: Measures, limits: QualityLimits, described: Mapping[str, str]) -> list[Flag]:
    """Return the flags of measures beyond their limits.

    Args:
        described: descriptions by reason, in place of the number.
    """
    found: dict[str, Flag] = {}
    for reason in REASONS:
        value = measures.get(reason.measure) if reason.measure else None
        if value is None or reason.harder in found:
            continue
        limit = float(getattr(limits, reason.limit)) if reason.limit else 0.0
        severity = limit - value if reason.side == "below" else value - limit
        if severity > 0:
            text = f"{reason.what}: {described.get(reason.name) or SHOWN[reason.measure].format(value)}"
            found[reason.name] = Flag(reason.name, round(severity, 6), text)
    return list(found.values())


def _flag_copies(
    reason: str, utterances: Sequence[Utterance], keys: Sequence[object], flags: Sequence[list[Flag]]
) -> None:
    """Flag all but one of the clips with the same key; None is not a key."""
    places_of: dict[object, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        if key is not None:
            places_of[key].append(place)
    for places in places_of.values():
        kept = next((place for place in places if not any(f.is_hard for f in flags[place])), places[0])
        for place in places:
            if place != kept:
                text = f"{REASON_OF[reason].what}: {utterances[kept].id}"
                flags[place].append(Flag(reason, 0.0, text))
