"""Make the demo set: speak demo/sentences.txt with espeak-ng and write the small base tokenizer.

    demo/
      sentences.txt           written by hand: one Amharic sentence in a line
      english.txt             written by hand: one English sentence in a line, for benchmarks
      audio/demo_0001.opus    made here: 24 kHz mono, Ogg/Opus; the four voices take turns
      manifest.jsonl          made here: utterances, in the order of sentences.txt
      checkpoints/
        config.yaml           written by hand: a small model of the published form
        *.tiktoken            made here: the base tokenizer, every byte and syllables of Latin letters

The result is in the repository: only a maintainer who changes the sentences runs this program, with
espeak-ng on the PATH. The same sentences and program versions give the same bytes.
"""

import io
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from indextts.commands.bases import BASE_2_5
from indextts.commands.terminal import run
from indextts.data.manifest import Utterance, write_utterances
from indextts.errors import UserError
from indextts.text.byte_level import rank_lines

DEMO = Path(__file__).resolve().parent
AUDIO = DEMO / "audio"

SAMPLE_RATE_HZ = 24_000
RMS = 10 ** (-22 / 20)  # -22 dBFS: formant synthesis peaks up to 20 dB above its RMS, and must not clip
SILENCE = 10 ** (-50 / 20)  # of full scale; below it there is no speech
MARGIN_S = 0.1  # silence kept before and after the speech
OPUS_COMPRESSION_LEVEL = 0.9  # about 32 kbit/s

Samples = NDArray[np.float64]  # (number of samples,), full scale is 1


@dataclass(frozen=True)
class Voice:
    """One speaker: an espeak-ng variant at its own pitch (0 to 99) and speed."""

    speaker: str
    variant: str
    pitch: int
    words_per_minute: int


VOICES = (
    Voice("espeak_m1", "m1", pitch=35, words_per_minute=150),
    Voice("espeak_f2", "f2", pitch=40, words_per_minute=155),
    Voice("espeak_m3", "m3", pitch=60, words_per_minute=140),
    Voice("espeak_f4", "f4", pitch=75, words_per_minute=165),
)


def main() -> int:
    if shutil.which("espeak-ng") is None:
        raise UserError("espeak-ng is not on the PATH, install it (apt-get install espeak-ng) and run again")
    utterances = make_audio(read_lines(DEMO / "sentences.txt"))
    write_utterances(DEMO / "manifest.jsonl", utterances)
    (DEMO / "checkpoints" / BASE_2_5.tokenizer_file).write_bytes(syllable_ranks())

    duration_s = sum(utterance.duration_s for utterance in utterances)
    num_bytes = sum(utterance.audio.stat().st_size for utterance in utterances)
    print(
        f"{len(utterances)} utterances, {len(VOICES)} voices, {duration_s:.1f} s, {num_bytes} bytes of audio"
    )
    return 0


def read_lines(path: Path) -> list[str]:
    """The lines of a text, which holds no blank ones."""
    return path.read_text(encoding="utf-8").splitlines()


def make_audio(sentences: list[str]) -> list[Utterance]:
    """Write one file per sentence, in place of all earlier ones; return the utterances."""
    AUDIO.mkdir(exist_ok=True)
    for earlier in AUDIO.glob("*.opus"):
        earlier.unlink()
    return [make_utterance(number, text) for number, text in enumerate(sentences, start=1)]


def make_utterance(number: int, text: str) -> Utterance:
    """Speak one sentence into its file; the number (from 1) decides its id and voice."""
    voice = VOICES[(number - 1) % len(VOICES)]
    name = f"demo_{number:04d}"
    audio = AUDIO / f"{name}.opus"
    samples = at_constant_rms(trimmed(speak(text, voice)))
    audio.write_bytes(with_serial_number(as_opus(samples), number))
    duration_s = round(soundfile.info(audio).duration, 3)
    return Utterance(id=name, audio=audio, text=text, speaker=voice.speaker, duration_s=duration_s)


def speak(text: str, voice: Voice) -> Samples:
    """The sentence in this voice, at 24 kHz."""
    settings = ["-v", f"am+{voice.variant}", "-p", str(voice.pitch), "-s", str(voice.words_per_minute)]
    with tempfile.TemporaryDirectory() as folder:
        wave = Path(folder) / "speech.wav"
        subprocess.run(["espeak-ng", *settings, "-w", str(wave), "--", text], check=True)
        samples, sample_rate_hz = soundfile.read(wave)
    resampled: Samples = soxr.resample(samples, sample_rate_hz, SAMPLE_RATE_HZ, quality="VHQ")
    return resampled


def trimmed(samples: Samples) -> Samples:
    """The samples from a little before the first audible one to a little after the last one."""
    audible = np.flatnonzero(np.abs(samples) > SILENCE)
    margin = round(MARGIN_S * SAMPLE_RATE_HZ)
    return samples[max(0, audible[0] - margin) : audible[-1] + 1 + margin]


def at_constant_rms(samples: Samples) -> Samples:
    """The samples scaled to the RMS that all files have, or to a peak of 0.99 where they would clip."""
    scale = min(RMS / np.sqrt(np.mean(samples**2)), 0.99 / np.abs(samples).max())
    scaled: Samples = samples * scale
    return scaled


def as_opus(samples: Samples) -> bytes:
    """The samples as an Ogg/Opus file."""
    file = io.BytesIO()
    soundfile.write(
        file,
        samples,
        SAMPLE_RATE_HZ,
        format="OGG",
        subtype="OPUS",
        compression_level=OPUS_COMPRESSION_LEVEL,
    )
    return file.getvalue()


def with_serial_number(ogg: bytes, serial_number: int) -> bytes:
    """The same Ogg stream under this serial number; libsndfile draws one at random for every file.

    A page is "OggS", 10 bytes, serial number (4), page number (4), checksum (4), segment count (1), the
    length of every segment (1 each), the segments; the checksum counts itself as zero.
    """
    pages = []
    start = 0
    while start < len(ogg):
        num_segments = ogg[start + 26]
        end = start + 27 + num_segments + sum(ogg[start + 27 : start + 27 + num_segments])
        page = bytearray(ogg[start:end])
        page[14:18] = serial_number.to_bytes(4, "little")
        page[22:26] = bytes(4)
        page[22:26] = ogg_checksum(page).to_bytes(4, "little")
        pages.append(bytes(page))
        start = end
    return b"".join(pages)


def ogg_checksum(page: bytearray) -> int:
    """CRC-32 of the Ogg format: polynomial 0x04C11DB7, highest bit first, starting from zero."""
    checksum = 0
    for byte in page:
        checksum ^= byte << 24
        for _ in range(8):
            checksum = (checksum << 1) ^ (0x104C11DB7 if checksum & 0x80000000 else 0)
    return checksum


def syllable_ranks() -> bytes:
    """A rank file: every byte in the published order, then digraphs and syllables, then both after a blank.

    Pieces merge in the order of their ranks: " nyumba" is read as " nyu", "m", "ba".
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    pieces = [bytes([byte]) for byte in (*visible, *(byte for byte in range(256) if byte not in visible))]
    onsets = ["ch", "sh", "ny", "ts", "kw", "gw", "zh", "th", *"bcdfghjklmnpqrstvwxyz"]
    syllables = [onset + vowel for onset in onsets for vowel in "aeiou"]
    merged = [*onsets[:8], *syllables, *(f" {sound}" for sound in (*syllables, *onsets, *"aeiou"))]
    pieces += [piece.encode() for piece in merged]
    return rank_lines(tuple(pieces), len(pieces))


if __name__ == "__main__":
    run(main)
