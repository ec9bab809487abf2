"""Verdicts on clips: flags from a clip's measures and from comparisons within the set."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from indextts.commands.quality_limits import QualityLimits
from indextts.data.manifest import Utterance
from indextts.data.quality.clips import Clip, values_by_speaker
from indextts.data.quality.copies import groups_of_copies
from indextts.data.quality.measures import Measures
from indextts.data.quality.reasons import MEASURES, REASON_OF, REASONS, Flag
from indextts.data.quality.text_fit import TextFit, details

DOUBTFUL_TEXT = "doubtful_text"
USUAL_TONES_DB = -50.0  # of a speaker; a room with a long echo or a hum has more in all clips


def judge(clips: Sequence[Clip], limits: QualityLimits, fit: TextFit) -> None:
    """Add the comparisons within the set to the measures of each clip, and its flags.

    Of clips with the same audio, the first without another hard flag is not flagged as a copy; if all have
    hard flags, the first clip is not.
    """
    # the level of the tones in the pauses, less what the speaker's median has above USUAL_TONES_DB
    usual_of = {name: statistics.median(each) for name, each in values_by_speaker(clips, "tones_db").items()}
    for clip in clips:
        if (level := clip.measures.get("tones_db")) is not None:
            usual = usual_of.get(clip.utterance.speaker, USUAL_TONES_DB)
            clip.measures["music_db"] = level - max(0.0, usual - USUAL_TONES_DB)
    sounds = groups_of_copies(
        [clip.sound.fingerprint for clip in clips], [clip.sound.samples_sha256 for clip in clips]
    )
    sounds_of: dict[str, dict[str, set[int | None]]] = defaultdict(lambda: defaultdict(set))
    for clip, sound in zip(clips, sounds, strict=True):
        sounds_of[clip.text.key][clip.utterance.speaker].add(sound)
    for clip in clips:
        sounds_by = sounds_of[clip.text.key] if clip.text.key else {}
        num_clips = len(sounds_by.get(clip.utterance.speaker, ()))
        clip.measures["speakers_of_text"] = len(sounds_by)
        clip.measures["clips_of_text"] = num_clips if num_clips > 1 else 0  # another reading is no copy
        if clip.text.num_tigrinya < limits.min_tigrinya_letters:
            clip.measures["tigrinya_percent"] = 0
        clip.measures.update(fit.measures(clip.utterance.speaker, clip.heard))
    flags = [
        [
            *_unreadable(clip),
            *_beyond_limits(clip.measures, limits, details(clip.utterance.text, clip.heard)),
            *doubtful_text(clip.utterance),
        ]
        for clip in clips
    ]
    _flag_copies(clips, sounds, flags)
    order = {reason.name: place for place, reason in enumerate(REASONS)}
    for clip, found in zip(clips, flags, strict=True):
        clip.flags = tuple(sorted(found, key=lambda flag: order[flag.reason]))


def _unreadable(clip: Clip) -> Iterable[Flag]:
    if clip.sound.measures is None:
        yield Flag("unreadable", 0.0, clip.sound.error)


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
    """Return the flags of measures beyond their limits, some `described` instead of with the number."""
    found: dict[str, Flag] = {}
    for reason in REASONS:
        value = measures.get(reason.measure) if reason.measure else None
        if value is None or reason.harder in found:
            continue
        limit = float(getattr(limits, reason.limit)) if reason.limit else 0.0
        severity = limit - value if reason.side == "below" else value - limit
        if severity > 0:
            shown = MEASURES[reason.measure].flagged.format(value)
            text = f"{reason.what}: {described.get(reason.name) or shown}"
            found[reason.name] = Flag(reason.name, round(severity, 6), text)
    return list(found.values())


def _flag_copies(clips: Sequence[Clip], sounds: Sequence[int | None], flags: Sequence[list[Flag]]) -> None:
    """Flag all but one of the clips with the same sound; None is not a sound."""
    places_of: dict[int, list[int]] = defaultdict(list)
    for place, sound in enumerate(sounds):
        if sound is not None:
            places_of[sound].append(place)
    for places in places_of.values():
        kept = next((place for place in places if not any(f.is_hard for f in flags[place])), places[0])
        for place in places:
            if place != kept:
                text = f"{REASON_OF['same_audio'].what}: {clips[kept].utterance.id}"
                flags[place].append(Flag("same_audio", 0.0, text))
