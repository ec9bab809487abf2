"""Tests of the quality check: each clip of a set with planted faults gets exactly the expected reasons."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from indextts.commands.data import CheckData
from indextts.data.check import check
from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.data.quality.measures import measure_audio
from indextts.data.quality.reasons import REASONS
from indextts.data.review import check_folder
from indextts.features.audio import loudness_lufs
from tests.conftest import REPOSITORY

RATE_HZ = 24_000
LONGEST = ("demo_0055", "demo_0172", "demo_0177", "demo_0117", "demo_0210", "demo_0085", "demo_0163")
FREE = tuple(f"demo_{number:04}" for number in (215, 191, 21, 63, 121, 167, 135, 137))
TIGRINYA = "ሰላም ከመይ ኣለኻ ኣነ ጽቡቕ ኣለኹ የቐንየለይ"


@dataclass
class PlantedSet:
    """Clips on the disk, and the expected reasons of each."""

    folder: Path
    utterances: list[Utterance] = field(default_factory=list)
    expected: dict[str, set[str]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        samples: np.ndarray,
        text: str,
        reasons: str = "",
        *,
        speaker: str | None = None,
        suffix: str = ".wav",
        rate_hz: int = RATE_HZ,
        stated_s: float | None = None,
        subtype: str | None = None,
    ) -> Path:
        path = self.folder / f"{name}{suffix}"
        soundfile.write(path, samples, rate_hz, subtype=subtype)
        self.add_file(name, path, text, reasons, speaker=speaker, stated_s=stated_s or len(samples) / rate_hz)
        return path

    def add_file(
        self,
        name: str,
        path: Path,
        text: str,
        reasons: str,
        *,
        speaker: str | None = None,
        stated_s: float = 3.0,
    ) -> None:
        self.utterances.append(Utterance(name, path, text, speaker or f"speaker of {name}", stated_s))
        self.expected[name] = set(reasons.split())


@dataclass(frozen=True)
class Clip:
    samples: np.ndarray
    text: str


@pytest.fixture(scope="module")
def demo() -> dict[str, Clip]:
    clips = read_utterances(REPOSITORY / "demo/manifest.jsonl")
    return {u.id: Clip(soundfile.read(u.audio, dtype="float32")[0], u.text) for u in clips}


@pytest.fixture(scope="module")
def planted(demo: dict[str, Clip], tmp_path_factory: pytest.TempPathFactory) -> PlantedSet:
    planted = PlantedSet(tmp_path_factory.mktemp("planted"))
    plant_good_clips(planted, demo)
    plant_sounds(planted, demo)
    plant_files(planted, demo)
    plant_texts(planted, demo)
    plant_copies(planted, demo)
    plant_rates(planted, demo)
    write_utterances(planted.folder / "manifest.jsonl", planted.utterances)
    return planted


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def join(*clips: Clip) -> Clip:
    return Clip(np.concatenate([clip.samples for clip in clips]), " ".join(clip.text for clip in clips))


def apart(clip: Clip, number: int) -> str:
    """Return the text of the clip with an additional letter, so that it is unique."""
    return clip.text + chr(ord("ለ") + number)


def faded(samples: np.ndarray) -> np.ndarray:
    """Return the samples with a fade of 0.1 s at both ends, as speech has."""
    ramp = np.minimum(1, np.arange(len(samples)) / (0.1 * RATE_HZ)).astype(np.float32)
    return samples * ramp * ramp[::-1]


def sped_up(samples: np.ndarray, percent: float) -> np.ndarray:
    """Return the samples at another speed and pitch, which makes them another sound."""
    return soxr.resample(samples, RATE_HZ, RATE_HZ / (1 + percent / 100))


def spare_clips(demo: dict[str, Clip]) -> Iterator[Clip]:
    """Yield clips of 2.5 s or more whose sounds no function names."""
    named = {f"demo_{number:04}" for number in (*range(1, 20), 35, 51, 63, 73, 74, 242)}
    for id, clip in demo.items():
        if id not in {*named, *LONGEST, *FREE} and len(clip.samples) > 2.5 * RATE_HZ:
            yield clip


def at_level(samples: np.ndarray, dbfs: float) -> np.ndarray:
    return samples * 10 ** (dbfs / 20) / np.sqrt(np.mean(np.square(samples)))


def with_noise(samples: np.ndarray, snr_db: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, 1, len(samples)).astype(np.float32)
    return samples + at_level(noise, 20 * np.log10(np.sqrt(np.mean(np.square(samples)))) - snr_db)


def through(samples: np.ndarray, rate_hz: int) -> np.ndarray:
    """Return the samples, resampled to a lower rate and back."""
    return soxr.resample(soxr.resample(samples, RATE_HZ, rate_hz), rate_hz, RATE_HZ)


def plant_good_clips(planted: PlantedSet, demo: dict[str, Clip]) -> None:
    first, second, third, fourth, fifth, sixth, *_ = (demo[id] for id in LONGEST)
    planted.add("good", first.samples, first.text)
    planted.add("flac", second.samples, second.text, suffix=".flac")
    planted.add("stereo", np.stack([third.samples, 0.8 * third.samples], axis=1), third.text)
    planted.add("vorbis", fourth.samples, fourth.text, suffix=".ogg")
    planted.add("rate 16k", soxr.resample(fifth.samples, RATE_HZ, 16_000), fifth.text, rate_hz=16_000)
    planted.add("rate 48k", soxr.resample(sixth.samples, RATE_HZ, 48_000), sixth.text, rate_hz=48_000)


def plant_sounds(planted: PlantedSet, demo: dict[str, Clip]) -> None:
    spare = spare_clips(demo)
    one, two = next(spare), next(spare)
    planted.add("brief one", faded(one.samples[RATE_HZ : round(1.8 * RATE_HZ)]), "ሰላም ነው", "too_short")
    planted.add(
        "brief", faded(two.samples[RATE_HZ // 2 : round(2.3 * RATE_HZ)]), "ሰላም ነው ልጆች", "short pauses"
    )
    many = [demo[f"demo_{number:04}"] for number in range(1, 9)]
    planted.add("hour", *vars(join(*(next(spare) for _ in range(9)))).values(), "too_long")
    planted.add("quarter", *vars(join(*many)).values(), "long")
    planted.add("nothing", silence(3), apart(one, 4), "silent quiet")
    hiss = np.random.default_rng(1).normal(0, 0.05, 3 * RATE_HZ).astype(np.float32)
    planted.add("only hiss", hiss, apart(two, 5), "silent")
    first, second, third = (next(spare) for _ in range(3))
    half = np.concatenate([first.samples, silence(3.6)])
    planted.add("half silent", half, f"{first.text} {second.text}", "silent edges odd_length")
    paused = np.concatenate([second.samples, silence(2), third.samples])
    planted.add("paused", paused, f"{second.text} {third.text} {first.text}", "pauses")
    late = join(next(spare), next(spare))
    planted.add("late start", np.concatenate([silence(0.8), late.samples]), late.text, "edges")
    early = join(next(spare), next(spare))
    planted.add("late end", np.concatenate([early.samples, silence(0.8)]), early.text, "edges")
    changes = {
        "hiss": (lambda samples: with_noise(samples, 8), "noisy"),
        "loud hiss": (lambda samples: with_noise(samples, 5), "noisy"),
        "some hiss": (lambda samples: with_noise(samples, 13), "some_noise"),
        "overdriven": (
            lambda samples: np.clip(20 * samples, -1, 1),
            "clipped flat_tops high_level cut_start",
        ),
        "turned down": (lambda samples: 0.4 * np.clip(4 * samples, -1, 1), "flat_tops"),
        "shouted": (lambda samples: 0.95 * np.tanh(6 * samples), "high_level limited"),
        "one peak": (lambda samples: with_spikes(samples, [30_000], 5), "peaks"),
        "a click": (lambda samples: with_spikes(samples, [1_200], 1), "some_clicks"),
        "crackling": (lambda samples: with_spikes(samples, range(9_000, 50_000, 9_000), 1), "clicks"),
        "cut": (lambda samples: samples[: loudest(samples, 0.6, 0.9)], "cut_end"),
        "cut start": (lambda samples: samples[loudest(samples, 0.05, 0.15) :], "cut_start"),
        "direct current": (lambda samples: samples + 0.05, "offset"),
        "telephone": (lambda samples: through(samples, 8_000), "narrow_band"),
        "radio": (lambda samples: through(samples, 12_000), "narrow_band"),
    }
    for name, (change, reasons) in changes.items():
        clip = next(spare)
        planted.add(name, change(clip.samples), clip.text, reasons)
    for name, level, reason in (("far away", -48, "quiet"), ("a bit far", -34, "low_level")):
        clip = next(spare)
        planted.add(name, at_level(clip.samples, level), clip.text, reason, subtype="PCM_24")
    gaps = demo["demo_0012"]
    planted.add("gaps", with_gaps(gaps.samples), gaps.text, "dropouts")
    narrow = next(spare)
    samples = soxr.resample(narrow.samples, RATE_HZ, 8_000)
    planted.add("telephone 8k", samples, narrow.text, "narrow_band", rate_hz=8_000)
    for name, ratio_db, reason in (("song", 25, "music"), ("faint song", 37, "some_music")):
        first, second = next(spare), next(spare)
        speech = np.concatenate([first.samples, silence(0.5), second.samples])
        planted.add(name, with_chords(speech, ratio_db), f"{first.text} {second.text}", reason)
    planted.add(
        "wrong length", demo["demo_0073"].samples, demo["demo_0073"].text, "duration_off", stated_s=4.5
    )


def with_chords(samples: np.ndarray, ratio_db: float) -> np.ndarray:
    """Return speech over chords that change 4 times a second and fade, so that no frequency is steady."""
    times = np.arange(len(samples)) / RATE_HZ
    root_hz = 220 * 2 ** (np.array([0, 5, 7, 3])[(4 * times).astype(int) % 4] / 12)
    chord = sum(np.sin(2 * np.pi * ratio * root_hz * times) for ratio in (1, 1.25, 1.5))
    level_db = 20 * np.log10(np.sqrt(np.mean(np.square(samples)))) - ratio_db
    since_s = times % 0.25
    heard = chord * np.minimum(1, since_s / 0.02) * np.exp(-since_s / 0.2)  # no attack that clicks
    return (samples + at_level(heard, level_db)).astype(np.float32)


def with_spikes(samples: np.ndarray, places: Iterable[int], size: int) -> np.ndarray:
    changed = samples.copy()
    for place in places:
        changed[place : place + size] = 1.0
    return changed


def with_gaps(samples: np.ndarray) -> np.ndarray:
    changed = samples.copy()
    for share in (0.2, 0.4, 0.6):
        place = loudest(samples, share, share + 0.2)
        changed[place : place + RATE_HZ // 50] = 0
    return changed


def loudest(samples: np.ndarray, start: float, end: float) -> int:
    """Return the middle of the loudest 20 ms between two shares of a clip."""
    size, first = RATE_HZ // 50, round(start * len(samples))
    powers = np.convolve(np.square(samples[first : round(end * len(samples))]), np.ones(size), "valid")
    return first + int(powers.argmax()) + size // 2


def plant_files(planted: PlantedSet, demo: dict[str, Clip]) -> None:
    clip = demo["demo_0074"]
    planted.add_file("gone", planted.folder / "gone.wav", apart(clip, 8), "unreadable")
    for name, content in {"no bytes": b"", "a letter": b"Dear Almaz, here are the recordings."}.items():
        path = planted.folder / f"{name}.wav"
        path.write_bytes(content)
        planted.add_file(name, path, apart(clip, 9), "unreadable")
    planted.add("no samples", np.zeros(0, np.float32), apart(clip, 10), "unreadable", stated_s=2)
    bad = clip.samples.copy()
    bad[100] = np.nan
    planted.add("not numbers", bad, apart(clip, 11), "unreadable", subtype="FLOAT")
    torn = planted.add("torn", clip.samples, apart(clip, 12), "unreadable", suffix=".flac")
    torn.write_bytes(torn.read_bytes()[:30_000])
    planted.add_file(
        "both wrong", planted.folder / "none.wav", "good morning", "unreadable foreign latin_left"
    )


def plant_texts(planted: PlantedSet, demo: dict[str, Clip]) -> None:
    def sound(number: int) -> np.ndarray:
        return sped_up(demo[LONGEST[number % len(LONGEST)]].samples, 3 + number // len(LONGEST) * 3)

    texts = {
        "three words": ("ሰላም ነው", "too_slow odd_length"),
        "slow": ("ዛሬ ወደ ገበያ ሄድኩ ቶሎም", "slow"),
        "English": ("good morning everybody", "foreign latin_left"),
        "English digits": ("call me on 911", "foreign latin_left digits_left"),
        "Thai": ("สวัสดีตอนเช้าทุกคน", "foreign others_left"),
        "half English": ("ሰላም ለዓለም ዛሬ ነው hello world good", "foreign latin_left"),
        "Tigrinya": (TIGRINYA, "tigrinya"),
        "one ኸ": ("ውሻው ሌሊቱን ሙሉ በጣም ጮኸ ብዬ አሰብኩ", "tigrinya_letter"),
        "Latin": ("ፋይሉን በ PDF ወደ ቤት ላክልኝ ብዬሃለሁ", "latin_left"),
        "a Gujarati word": ("ቋንቋው ગુજરાતી ይባላል ብለው ነገሩኝ ትናንት በጠዋት", "others_left"),
        "digits that are read": ("በ1985 ዓ.ም 25 ሰዎች መጡ", ""),
    }
    for number, (name, (text, reasons)) in enumerate(texts.items()):
        planted.add(name, sound(number), text, reasons, suffix=".flac")
    clip = demo["demo_0073"]
    more, most = " ".join([clip.text] * 3), f"{clip.text} {demo['demo_0063'].text}"
    planted.add("too much text", sped_up(clip.samples, 4), more, "too_fast odd_length")
    planted.add("much text", sped_up(clip.samples, 8), most, "fast odd_length")


def plant_copies(planted: PlantedSet, demo: dict[str, Clip]) -> None:
    first, second, third, fourth = (demo[f"demo_{number}"] for number in ("0011", "0019", "0010", "0035"))
    digits = (32_767 * first.samples).astype(np.int16)  # the same in every format
    planted.add("told", digits, "ሀገሩን ሰው ሁሉ ያውቃል ጸሐይ ወጣች", "same_text", speaker="A")
    planted.add("told again", second.samples, "ሐገሩን ሠው ኁሉ ያውቃል፣ ፀሀይ ወጣች!", "same_text", speaker="A")
    planted.add("told by another", third.samples, "ሀገሩን ሰው ሁሉ ያውቃል ጸሐይ ወጣች", speaker="B")
    quieter = 0.6 * first.samples[RATE_HZ // 5 :]
    planted.add("quieter copy", quieter, "ነገ ወደ ከተማ ሄደን ሁሉንም እናያለን", "same_audio", speaker="F")
    planted.add("copy", digits, "ዛሬ ወደ ገበያ ሄደን ብዙ ገዛን", "same_audio", speaker="C", suffix=".flac")
    stereo = np.stack([fourth.samples, fourth.samples], axis=1)
    planted.add("mono", fourth.samples, fourth.text, speaker="D")
    planted.add("stereo copy", stereo, fourth.text, "same_audio", speaker="D")
    hissing = with_noise(demo["demo_0051"].samples, 5)
    planted.add("bad first", hissing, demo["demo_0051"].text, "noisy same_audio", speaker="E")
    planted.add("good second", demo["demo_0051"].samples, demo["demo_0051"].text, speaker="E")
    spoken = [id for id, clip in demo.items() if 50_000 < len(clip.samples) < 56_000][10:16]
    for number, id in enumerate(spoken):
        text = "ሁሉም ይህን ያነበባሉ ብለዋል"
        planted.add(f"reader {number}", demo[id].samples, text, "common_text", suffix=".flac")


def plant_rates(planted: PlantedSet, demo: dict[str, Clip]) -> None:
    """Plant a speaker with clips of 5.0 to 6.0 fidel per second, six with one text, and a clip with 9.5."""
    texts: dict[int, str] = {}
    slowest = join(*(demo[id] for id in ("demo_0163", "demo_0163", "demo_0163"))).samples  # 10.7 s
    for number in range(20):
        samples = sped_up(slowest, 30 + 2 * number)
        rate = 9.5 if number == 19 else 5.0 + number / 18
        fidel = [chr(0x1208 + (7 * number + k) % 0x40) for k in range(round(rate * len(samples) / RATE_HZ))]
        text = "".join(letter for k in range(len(fidel)) for letter in (fidel[k], *(" " * (k % 4 == 3))))
        is_again = 6 <= number < 12
        text = texts.setdefault(6 if is_again else number, text)
        reason = "odd_length" if number == 19 else "repeated_text" if is_again else ""
        planted.add(f"rate {number}", samples, text, reason, speaker="steady", suffix=".flac")


def read_lines(path: Path) -> Iterator[dict[str, object]]:
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def test_exactly_the_planted_faults_are_found(planted: PlantedSet):
    manifest = planted.folder / "manifest.jsonl"
    folder = check_folder(manifest)
    check(CheckData(train_manifest=manifest, report_dir=folder, quality="fast"))
    clips = {clip["id"]: clip for clip in read_lines(folder / "clips.jsonl")}
    found = {id: {flag["reason"] for flag in clip["flags"]} for id, clip in clips.items()}
    wrong = {
        id: (found[id], planted.expected[id], clips[id]["measures"])
        for id in planted.expected
        if found[id] != planted.expected[id]
    }
    assert wrong == {}
    assert len(planted.expected) >= 40
    of_models = {
        reason.name
        for reason in REASONS
        if reason.limit == "max_text_deviation"
        or reason.measure.endswith(("_below", "clear_speech", "s_deviation", "voice_deviation"))
        or reason.name in ("doubtful_text", "misplaced_text")  # from the manifest, and of many clips
    }
    assert set().union(*planted.expected.values()) == {reason.name for reason in REASONS} - of_models
    hard = {reason.name for reason in REASONS if reason.is_hard}
    rejected = {line["id"]: set(line["reasons"]) for line in read_lines(folder / "rejected.jsonl")}
    assert rejected == {id: reasons for id, reasons in planted.expected.items() if reasons & hard}


def test_a_clip_of_any_length_has_a_loudness():
    """At 22,050 Hz, 682 lengths below a block of 0.4 s are longer than themselves in seconds, by rounding."""
    noise = np.random.default_rng(0).normal(0, 0.1, 22_050).astype(np.float32)
    for num_samples in (104, 105, 180, 5_000, 8_819, 8_820, 8_821):
        assert -30 < loudness_lufs(noise[:num_samples], 22_050) < 0


def test_clipping_counts_in_each_channel_and_digital_silence_is_no_noise(tmp_path: Path):
    samples, rate_hz = soundfile.read(min((REPOSITORY / "demo/audio").rglob("*.opus")), dtype="float32")
    noisy = samples + np.random.default_rng(0).normal(0, 0.003, len(samples)).astype(np.float32)

    def measured(name: str, sound: np.ndarray) -> dict[str, float | None]:
        soundfile.write(tmp_path / name, sound, rate_hz, subtype="FLOAT")
        return dict(measure_audio(tmp_path / name)[0])

    clipped = np.clip(noisy * (1.5 / np.abs(noisy).max()), -1, 1)
    assert measured("one.wav", np.stack([clipped, 0.5 * noisy], axis=1))["clipped_percent"] > 0
    # of the level with the offset, so that no share is above the whole
    assert 90 < (measured("offset.wav", 0.01 * samples + 0.2)["offset_percent"] or 0) <= 100
    edited = measured("edited.wav", np.concatenate([noisy, np.zeros(2 * len(noisy), np.float32)]))
    assert edited["snr_db"] == pytest.approx(measured("noisy.wav", noisy)["snr_db"], abs=1.5)
