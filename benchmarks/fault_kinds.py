"""Kinds of faults that the benchmark plants: a list of functions from a clean clip to one with the fault.

Axes: S samples.

    KINDS = (Kind("song at 20 dB", partial(with_music, ratio_db=20, music=song), ("background", ...)), ...)

A function gets a clean clip that is not in the set, and the `Bench`: random numbers, further clips, and a
clip of the set to copy. `reasons` are the names in indextts/data/quality/reasons.py that describe the fault:
a clip that only has warnings counts as found if it has one of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
import soxr
from numpy.typing import NDArray

from benchmarks.planted_clips import (
    STRANGER,
    VOICES,
    Clip,
    Samples,
    Studio,
    at_level,
    changed,
    level_db,
    mixed,
)

CHORDS = ((0, 4, 7), (9, 12, 16), (5, 9, 12), (7, 11, 14))  # semitones above A2: A, F#m, D, E
LOWEST_NOTE_HZ = 110.0
BEAT_S, BEATS_OF_CHORD = 0.3, 4
REST_SHARE = 0.15  # of the notes of a flute


@dataclass(frozen=True)
class Bench:
    """Sources of the functions: new clips, and the clean clips of the set."""

    studio: Studio
    clean: Sequence[Clip]
    copied: set[str] = field(default_factory=set)

    @property
    def rng(self) -> np.random.Generator:
        return self.studio.rng

    def another_voice(self, clip: Clip) -> Clip:
        """Return a new clip by another voice of the set."""
        others = [voice for voice in VOICES if voice.variant != clip.speaker]
        return self.studio.clip(others[self.rng.integers(len(others))])

    def original(self) -> Clip:
        """Return a clip of the set that has no copy yet."""
        unused = [clip for clip in self.clean if clip.id not in self.copied]
        found = unused[int(self.rng.integers(len(unused)))]
        self.copied.add(found.id)
        return found

    def clip_of_set(self) -> Clip:
        return self.clean[int(self.rng.integers(len(self.clean)))]


@dataclass(frozen=True)
class Kind:
    """Kind of fault.

    Args:
        plant: returns the clip with the fault; the benchmark sets its id.
        reasons: the warnings that describe the fault.
    """

    name: str
    plant: Callable[[Clip, Bench], Clip]
    reasons: tuple[str, ...] = ()


# --- sounds under the speech ---------------------------------------------------------------------------


Music = Callable[[int, int, np.random.Generator], NDArray[np.float64]]


def with_music(clip: Clip, bench: Bench, ratio_db: float, music: Music) -> Clip:
    """Return the clip with music, given as samples, rate and random numbers -> (S,)."""
    return changed(clip, mixed(clip.samples, music(len(clip.samples), clip.rate_hz, bench.rng), ratio_db))


def song(num_samples: int, rate_hz: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return chords and a melody with vibrato, and drums: (S,).

    The notes decay and change with the beat: no frequency is present all the time, as in a song.
    """
    sound = np.zeros(num_samples)
    transposed = LOWEST_NOTE_HZ * 2 ** (rng.integers(0, 12) / 12)
    for beat in range(int(num_samples / rate_hz / BEAT_S) + 1):
        first = round(beat * BEAT_S * rate_hz)
        since_s = np.arange(max(0, num_samples - first)) / rate_hz
        chord = CHORDS[beat // BEATS_OF_CHORD % len(CHORDS)]
        notes = [12 + int(rng.choice(chord)), *(chord if beat % 2 == 0 else ())]
        heard = sum(_note(since_s, transposed * 2 ** (note / 12), rng) for note in notes)
        if beat % 2 == 0:
            drum = 3 * np.sin(2 * np.pi * 90 * since_s) * np.exp(-since_s / 0.06)
        else:
            drum = 1.5 * rng.standard_normal(len(since_s)) * np.exp(-since_s / 0.03)
        sound[first:] += heard + drum
    return sound


def _note(since_s: NDArray[np.float64], note_hz: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a plucked note with 8 harmonics and a vibrato of 5.5 Hz by a third of a semitone: (S,)."""
    vibrato = 1 + 0.02 * np.sin(2 * np.pi * 5.5 * since_s + rng.uniform(0, 6))
    phase = 2 * np.pi * note_hz * np.cumsum(vibrato) * (since_s[1] if len(since_s) > 1 else 0)
    harmonics = np.sum([np.sin(k * phase) / k for k in range(1, 9)], axis=0)
    decayed: NDArray[np.float64] = harmonics * np.minimum(1, since_s / 0.01) * np.exp(-since_s / 0.12)
    return decayed


def strings(num_samples: int, rate_hz: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return sustained chords of 12 harmonics with a vibrato: (S,)."""
    sound = np.zeros(num_samples)
    transposed = 2 * LOWEST_NOTE_HZ * 2 ** (rng.integers(0, 12) / 12)
    duration_s = BEAT_S * BEATS_OF_CHORD
    for number in range(int(num_samples / rate_hz / duration_s) + 1):
        first = round(number * duration_s * rate_hz)
        since_s = np.arange(min(num_samples - first, round(1.3 * duration_s * rate_hz))) / rate_hz
        envelope = np.minimum(1, since_s / 0.15) * np.minimum(1, (1.3 * duration_s - since_s) / 0.2)
        for note in CHORDS[number % len(CHORDS)]:
            vibrato = 1 + 0.008 * np.sin(2 * np.pi * 5.5 * since_s + rng.uniform(0, 6))
            phase = 2 * np.pi * transposed * 2 ** (note / 12) * np.cumsum(vibrato) / rate_hz
            harmonics = [np.sin(k * phase + rng.uniform(0, 6)) / k for k in range(1, 13)]
            sound[first : first + len(since_s)] += envelope * np.sum(harmonics, axis=0)
    return sound


def flute(num_samples: int, rate_hz: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a melody of 3 harmonics with a vibrato, breath and rests: (S,)."""
    sound, first = np.zeros(num_samples), 0
    transposed = 2 * LOWEST_NOTE_HZ * 2 ** (rng.integers(0, 12) / 12)
    while first < num_samples:
        duration_s = float(rng.choice([0.2, 0.4, 0.6]))
        since_s = np.arange(min(num_samples - first, round(duration_s * rate_hz))) / rate_hz
        if rng.random() > REST_SHARE:
            note_hz = transposed * 2 ** (rng.choice([0, 2, 4, 7, 9, 12, 14, 16]) / 12)
            phase = 2 * np.pi * note_hz * np.cumsum(1 + 0.01 * np.sin(2 * np.pi * 5 * since_s)) / rate_hz
            tone = np.sin(phase) + 0.4 * np.sin(2 * phase) + 0.2 * np.sin(3 * phase)
            breath = 0.03 * rng.standard_normal(len(since_s))
            envelope = np.minimum(1, since_s / 0.03) * np.minimum(1, (duration_s - since_s) / 0.05)
            sound[first : first + len(since_s)] += envelope * (tone + breath)
        first += len(since_s)
    return sound


def with_noise(clip: Clip, bench: Bench, ratio_db: float) -> Clip:
    return changed(clip, mixed(clip.samples, bench.rng.standard_normal(len(clip.samples)), ratio_db))


def with_hum(clip: Clip, bench: Bench, ratio_db: float) -> Clip:
    t = np.arange(len(clip.samples)) / clip.rate_hz
    hum = sum(np.sin(2 * np.pi * 50 * k * t + bench.rng.uniform(0, 6)) / k for k in range(1, 12))
    return changed(clip, mixed(clip.samples, np.asarray(hum), ratio_db))


# --- voices --------------------------------------------------------------------------------------------


def with_second_voice(clip: Clip, bench: Bench, ratio_db: float) -> Clip:
    return changed(clip, mixed(clip.samples, bench.another_voice(clip).samples, ratio_db))


def with_voice_change(clip: Clip, bench: Bench) -> Clip:
    """Return the first half of a clip, continued by another voice."""
    other = bench.another_voice(clip)
    half = len(clip.samples) // 2
    rest = at_level(other.samples[len(other.samples) // 2 :], level_db(clip.samples))
    return changed(clip, np.concatenate([clip.samples[:half], rest]))


def with_wrong_speaker(clip: Clip, bench: Bench) -> Clip:
    return replace(bench.another_voice(clip), speaker=clip.speaker)


def by_stranger(clip: Clip, bench: Bench) -> Clip:
    return replace(bench.studio.clip(STRANGER), speaker=clip.speaker)


# --- damaged recordings --------------------------------------------------------------------------------


def cut_off(clip: Clip, bench: Bench, start_s: float = 0.0, end_s: float = 0.0) -> Clip:
    first, last = round(start_s * clip.rate_hz), len(clip.samples) - round(end_s * clip.rate_hz)
    return replace(clip, samples=clip.samples[first:last])


def with_dropouts(clip: Clip, bench: Bench, duration_s: float, count: int = 4) -> Clip:
    """Return the clip with digital silence at random places of its louder half."""
    samples, size = clip.samples.copy(), round(duration_s * clip.rate_hz)
    for first in loud_places(clip, bench, size, count):
        samples[first : first + size] = 0
    return replace(clip, samples=samples)


def with_skips(clip: Clip, bench: Bench, duration_s: float = 0.03, count: int = 4) -> Clip:
    """Return the clip without short parts at random places of its louder half."""
    size = round(duration_s * clip.rate_hz)
    places = sorted(loud_places(clip, bench, size, count))
    kept = pairwise([0, *(place + shift for place in places for shift in (0, size)), len(clip.samples)])
    return replace(clip, samples=np.concatenate([clip.samples[a:b] for a, b in list(kept)[::2] if a < b]))


def loud_places(clip: Clip, bench: Bench, size: int, count: int) -> list[int]:
    windows = np.lib.stride_tricks.sliding_window_view(np.square(clip.samples), size)[:: size // 2]
    powers = windows.mean(axis=1)
    loud = np.flatnonzero(powers > np.median(powers))
    return [int(place) * (size // 2) for place in bench.rng.choice(loud, count, replace=False)]


def with_clicks(clip: Clip, bench: Bench, count: int, height: float) -> Clip:
    """Return the clip with impulses of one or two samples, `height` times the peak of the speech."""
    samples, peak = clip.samples.copy(), float(np.abs(clip.samples).max())
    for place in bench.rng.integers(0, len(samples) - 2, count):
        samples[place : place + bench.rng.integers(1, 3)] = bench.rng.choice([-1, 1]) * height * peak
    return replace(clip, samples=samples)


def with_offset(clip: Clip, bench: Bench, offset: float) -> Clip:
    return changed(clip, clip.samples + offset)


def clipped(clip: Clip, bench: Bench, over_db: float, gain: float, rate_hz: int = 0) -> Clip:
    """Return the clip with its peaks cut `over_db` below the highest, then turned down or up to `gain`.

    Args:
        rate_hz: if given, the clip is resampled afterwards, which rounds the flat tops.
    """
    ceiling = float(np.abs(clip.samples).max()) * 10 ** (-over_db / 20)
    samples = np.clip(clip.samples, -ceiling, ceiling) * np.float32(gain / ceiling)
    if not rate_hz:
        return replace(clip, samples=samples)
    return replace(clip, samples=soxr.resample(samples, clip.rate_hz, rate_hz), rate_hz=rate_hz)


def through_telephone(clip: Clip, bench: Bench) -> Clip:
    narrow: Samples = soxr.resample(clip.samples, clip.rate_hz, 8_000)
    return replace(clip, samples=soxr.resample(narrow, 8_000, clip.rate_hz))


def with_long_pause(clip: Clip, bench: Bench) -> Clip:
    half, noise = len(clip.samples) // 2, np.float32(0.0003)
    pause = noise * bench.rng.standard_normal(len(clip.samples)).astype(np.float32)
    return replace(clip, samples=np.concatenate([clip.samples[:half], pause, clip.samples[half:]]))


def at_low_level(clip: Clip, bench: Bench) -> Clip:
    return replace(clip, samples=at_level(clip.samples, -46))


# --- copies --------------------------------------------------------------------------------------------


def copied(clip: Clip, bench: Bench, gain: float = 1.0, start_s: float = 0.0, pad_s: float = 0.0) -> Clip:
    """Return a copy of a clip of the set under another text and speaker.

    Args:
        start_s: what the copy lacks at its start.
        pad_s: silence before the copy.
    """
    original = bench.original()
    rest = original.samples[round(start_s * original.rate_hz) :] * np.float32(gain)
    samples = np.pad(rest, (round(pad_s * original.rate_hz), 0))
    return replace(clip, samples=samples, rate_hz=original.rate_hz)


def resampled_copy(clip: Clip, bench: Bench, rate_hz: int) -> Clip:
    original = bench.original()
    samples: Samples = 0.7 * soxr.resample(original.samples, original.rate_hz, rate_hz)
    return replace(clip, samples=samples, rate_hz=rate_hz)


# --- texts ---------------------------------------------------------------------------------------------


def with_wrong_text(clip: Clip, bench: Bench) -> Clip:
    """Return the clip with the text of another one of similar length."""
    texts = sorted((c.text for c in bench.clean), key=lambda text: abs(len(text) - len(clip.text)))
    return replace(clip, text=texts[int(bench.rng.integers(min(10, len(texts))))])


def without_last_words(clip: Clip, bench: Bench, count: int = 2) -> Clip:
    return replace(clip, text=" ".join(clip.text.split()[:-count]))


def without_first_words(clip: Clip, bench: Bench, count: int = 2) -> Clip:
    return replace(clip, text=" ".join(clip.text.split()[count:]))


def with_other_words(clip: Clip, bench: Bench) -> Clip:
    """Return the clip with one of three words replaced by a word of another text."""
    words = clip.text.split()
    others = bench.clip_of_set().text.split()
    for number, place in enumerate(range(1, len(words), 3)):
        words[place] = others[number % len(others)]
    return replace(clip, text=" ".join(words))


def with_more_words(clip: Clip, bench: Bench) -> Clip:
    return replace(clip, text=f"{clip.text} {' '.join(bench.clip_of_set().text.split()[:2])}")


BACKGROUND = ("noisy", "some_noise", "some_background", "some_distortion", "some_music")
CLICKS = ("some_clicks",)
VOICE = ("some_background", "some_distortion", "other_voice", "voice_change")
TEXT = ("too_slow", "too_fast", "slow", "fast", "odd_rate", "wrong_text", "unheard_words", "extra_words")

KINDS = (
    *(
        Kind(f"{music.__name__} at {db} dB", partial(with_music, ratio_db=db, music=music), BACKGROUND)
        for music, levels in ((song, (20, 10, 5, 0)), (strings, (20, 10)), (flute, (20, 10)))
        for db in levels
    ),
    *(Kind(f"white noise at {db} dB", partial(with_noise, ratio_db=db), BACKGROUND) for db in (15, 5)),
    Kind("mains hum at 10 dB", partial(with_hum, ratio_db=10), BACKGROUND),
    *(Kind(f"second voice at {db} dB", partial(with_second_voice, ratio_db=db), VOICE) for db in (10, 0)),
    Kind("voice changes in the middle", with_voice_change, VOICE),
    Kind("another speaker's label", with_wrong_speaker, VOICE),
    Kind("stranger's voice", by_stranger, VOICE),
    Kind("0.6 s cut off the end", partial(cut_off, end_s=0.6), ("cut_end", "unheard_words")),
    Kind("0.6 s cut off the start", partial(cut_off, start_s=0.6), ("cut_start", "unheard_words")),
    *(
        Kind(f"4 dropouts of {ms} ms", partial(with_dropouts, duration_s=ms / 1000))
        for ms in (10, 20, 50, 100)
    ),
    Kind("4 skips of 30 ms", with_skips, CLICKS),
    Kind("5 clicks as loud as the peak", partial(with_clicks, count=5, height=1.0), CLICKS),
    Kind("5 clicks at half the peak", partial(with_clicks, count=5, height=0.5), CLICKS),
    Kind("DC offset of 5 %", partial(with_offset, offset=0.05), ("offset",)),
    Kind("DC offset of 20 %", partial(with_offset, offset=0.2), ("offset",)),
    Kind("clipped at full scale", partial(clipped, over_db=9, gain=1.0), ("clipped", "peaks")),
    *(
        Kind(f"clipped by {db} dB, turned down to {gain}", partial(clipped, over_db=db, gain=gain))
        for db, gain in ((9, 0.7), (6, 0.3))
    ),
    Kind("clipped by 9 dB, resampled", partial(clipped, over_db=9, gain=0.5, rate_hz=16_000), ("limited",)),
    Kind("telephone band", through_telephone, ("narrow_band",)),
    Kind("half silence", with_long_pause, ("silent", "pauses")),
    Kind("level of -46 dBFS", at_low_level, ("quiet",)),
    Kind("copy at 0.9 gain", partial(copied, gain=0.9), ("same_audio",)),
    Kind("copy without the first 0.3 s", partial(copied, start_s=0.3), ("same_audio",)),
    Kind("copy at half gain after 0.2 s", partial(copied, gain=0.5, pad_s=0.2), ("same_audio",)),
    Kind("copy at another sample rate", partial(resampled_copy, rate_hz=16_000), ("same_audio",)),
    Kind("text of another clip", with_wrong_text, TEXT),
    Kind("one of three words wrong", with_other_words, TEXT),
    Kind("text without the first 2 words", without_first_words, TEXT),
    Kind("text without the last 2 words", without_last_words, TEXT),
    Kind("text with 2 words too many", with_more_words, TEXT),
)
