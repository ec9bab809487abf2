"""Phrases of many languages as espeak-ng speaks them, for demo/train_networks.py and demo/train_base.py.

    FOLDER/manifest_SEED.jsonl    utterances, each also with "phones": [[first sample, IPA], ...]
    FOLDER/LANGUAGE_SEED_NUMBER.flac

Half of the words are real: those of Django's translations, of demo/english.txt, and of demo/sentences.txt
without the sentences that benchmarks/learns_to_speak.py holds out. The other half is invented, so that a
model has to read the letters. Half of the phrases have the four voices of the demo, the others any voice.

Packages: espeakng-loader (espeak-ng: GPL) and Django (BSD licence), of the extra `dev`.
"""

import csv
import gettext
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import soundfile
import soxr

from demo.make_demo import (
    DEMO,
    MARGIN_S,
    SAMPLE_RATE_HZ,
    SILENCE,
    VOICES,
    at_constant_rms,
    read_lines,
    trimmed,
)
from indextts.data.manifest import Utterance
from indextts.errors import UserError
from indextts.system.json_lines import write_json_lines
from tests.spoken_languages import spoken_phones

NUM_HELD_OUT = 40  # of the demo's sentences
SAME_WORDS = {"ti": "am", "om": "sw"}  # languages without texts have the words of another one
VARIANTS = [*(f"m{number}" for number in range(1, 9)), *(f"f{number}" for number in range(1, 6))]
VOWELS = "aeiou"
CONSONANTS = [*"bdfghjklmnprstwyz", "sh", "ch", "ny", "ts"]
PLACEHOLDER = re.compile(r"%\([^)]*\)[a-z]|%[a-z]|\{[^}]*\}|<[^>]*>")


def speak_phrases(
    folder: Path, vocabulary: Mapping[str, Sequence[str]], languages: Sequence[str], count: int, seed: int
) -> Path:
    """Speak `count` phrases, the languages in turn; return the manifest, which is kept if it exists.

    Args:
        vocabulary: the sorted words of each language.
        languages: codes; one that is there twice has twice as many phrases.
    """
    manifest = folder / f"manifest_{seed}.jsonl"
    if manifest.exists():
        return manifest
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    records: list[dict[str, object]] = []
    for number in range(count):
        language = languages[number % len(languages)]
        text = phrase(vocabulary[language], chance)
        if chance.random() < 0.5:
            voice = chance.choice(VOICES)
            variant = voice.variant
            pitch = voice.pitch + chance.randint(-4, 4)
            pace = voice.words_per_minute + chance.randint(-8, 8)
        else:
            variant, pitch, pace = chance.choice(VARIANTS), chance.randint(20, 80), chance.randint(125, 185)
        samples, rate_hz, phones = spoken_phones(text, f"{language}+{variant}", pitch, pace)
        clip = soxr.resample(samples.astype(np.float64), rate_hz, SAMPLE_RATE_HZ)
        audible = np.flatnonzero(np.abs(clip) > SILENCE)
        if len(samples) < rate_hz // 4 or not len(audible):
            continue  # a word that the voice cannot read
        start = max(0, audible[0] - round(MARGIN_S * SAMPLE_RATE_HZ))
        clip = at_constant_rms(trimmed(clip))
        name = f"{language}_{seed}_{number:06d}"
        soundfile.write(folder / f"{name}.flac", clip, SAMPLE_RATE_HZ)
        records.append(
            {
                "id": name,
                "audio": f"{name}.flac",
                "text": text,
                "speaker": f"{variant}_{pitch // 10}",
                "duration": round(len(clip) / SAMPLE_RATE_HZ, 3),
                "language": language,
                "phones": [[round(at * SAMPLE_RATE_HZ / rate_hz) - int(start), ipa] for at, ipa in phones],
            }
        )
    write_json_lines(manifest, records)
    return manifest


def read_phones(manifest: Path) -> dict[str, list[tuple[int, str]]]:
    """Return the phones of the utterances of a manifest of `speak_phrases`."""
    lines = [json.loads(line) for line in manifest.read_text("utf-8").splitlines()]
    return {line["id"]: [(start, ipa) for start, ipa in line["phones"]] for line in lines}


def phrase(known: Sequence[str], chance: random.Random) -> str:
    """Return 1 to 7 words, some with a comma or a mark at the end."""
    found = [
        chance.choice(known) if chance.random() < 0.5 else invented(known, chance)
        for _ in range(chance.randint(1, 7))
    ]
    if chance.random() < 0.3 and len(found) > 3:
        found[chance.randrange(1, len(found)) - 1] += ","
    return " ".join(found) + chance.choice([".", ".", "", "?", "!"])


def invented(known: Sequence[str], chance: random.Random) -> str:
    """Return two joined halves of words, or letters: Amharic ones, or Latin ones mostly in syllables."""
    if chance.random() < 0.5:
        return joined_halves(known, chance)
    if not known[0].isascii() and known[0] >= "\u1200":
        return "".join(chance.choices("".join(known), k=chance.randint(2, 6)))
    word = ""
    for _ in range(chance.randint(1, 4)):
        word += chance.choice(CONSONANTS)
        if chance.random() < 0.78:
            word += chance.choice(VOWELS)
    if not set(word) & set(VOWELS):
        word += chance.choice(VOWELS)
    return (chance.choice(VOWELS) if chance.random() < 0.2 else "") + word


def joined_halves(known: Sequence[str], chance: random.Random) -> str:
    first, second = chance.choice(known), chance.choice(known)
    return first[: (len(first) + 1) // 2] + second[len(second) // 2 :]


def words(texts: Iterable[str], letter: str = "[a-z']") -> list[str]:
    return sorted({word for text in texts for word in re.findall(f"{letter}+", text.lower())})


def vocabularies(languages: Iterable[str], more_texts: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the sorted words of each language.

    Args:
        more_texts: further texts in Amharic and English.
    """
    return {language: _vocabulary(SAME_WORDS.get(language, language), more_texts) for language in languages}


def _vocabulary(language: str, more_texts: Sequence[str]) -> list[str]:
    if language == "am":
        found = words([*read_lines(DEMO / "sentences.txt")[:-NUM_HELD_OUT], *more_texts], "[\u1200-\u135a]")
        return [word for word in found if len(word) <= 8]
    if language == "en":
        found = words([*read_lines(DEMO / "english.txt"), *more_texts], "[a-z]")
        return [word for word in found if 3 <= len(word) <= 11]
    texts = " ".join(PLACEHOLDER.sub(" ", text) for text in _translations(language))
    read = {word.lower() for word in re.findall(r"[^\W\d_]+", texts) if word[1:].islower()}
    found = sorted(word for word in read if len(word) <= 12 and max(word) < "\u0250")  # Latin letters
    if not found:
        raise UserError(f"Django has no translations with Latin letters for {language}")
    return found


def _translations(language: str) -> list[str]:
    import django

    found: list[str] = []
    for path in Path(django.__file__).parent.rglob(f"locale/{language}/LC_MESSAGES/*.mo"):
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        found += [text for key, text in catalogue.items() if key and isinstance(text, str)]
    return found


def recordings(folder: Path) -> list[Utterance]:
    """Return the recordings of a folder.

    Its metadata.tsv has the columns file, text, speaker and seconds, and may have language and split.
    """
    with (folder / "metadata.tsv").open(encoding="utf-8", newline="") as file:
        return [
            Utterance(
                id=f"{folder.name}_{row['file'].replace('/', '_').rpartition('.')[0]}",
                audio=folder / row["file"],
                text=row["text"],
                speaker=row["speaker"],
                duration_s=float(row["seconds"]),
                language=row.get("language") or "",
                split=row.get("split"),
            )
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]
