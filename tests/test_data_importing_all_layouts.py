"""Tests of the layouts that people have their data sets in: each is read right, or refused with a way out.

A case builds a data set of a few tones and says what an import of it gives: the texts by id and the speakers,
or what the refusal names. A recording's pitch is determined by its number, so that a swapped recording shows.
"""

import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from indextts.errors import UserError
from tests.import_sources import (
    manifest_lines,
    run_import,
    snapshot,
    tone_bytes,
    write_parquet,
    write_tar,
    write_tone,
)

TEXTS = ["ሰላም ለዓለም።", "እንዴት ነህ፣ ደህና?", "ዛሬ ፀሐይ ወጣች።", "መጽሐፉን አነበብኩት።", "ነገ እንገናኛለን አለ።", "ቡና አፈላች እሷ።"]
ENGLISH = [
    "peace to you",
    "how are you, well?",
    "the sun is out",
    "I read the book",
    "see you soon",
    "she made coffee",
]
SPEAKERS = ["almaz", "bekele"] * 3
CLIENTS = [letter * 128 for letter in "abab" * 2][:6]
NAMES = [f"c{number}" for number in range(6)]


@dataclass(frozen=True)
class Case:
    """A data set, and what an import of it gives.

    Args:
        build: writes the data set into a folder; returns the source, or None for the folder.
        texts: by id, in the order of the recordings; {} if the import is refused.
        refusal: a pattern of the message: the layout or the file, and a flag or a file as the way out.
    """

    build: Callable[[Path], Path | None]
    texts: dict[str, str] = field(default_factory=dict)
    speakers: Sequence[str] = ("s",)
    refusal: str = ""
    flags: dict[str, Any] = field(default_factory=lambda: {"speaker": "s"})


def clip(number: int) -> bytes:
    return tone_bytes(200 + 10 * number)


def clips(folder: Path, *names: str, first: int = 0) -> None:
    for number, name in enumerate(names, start=first):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".mp3", ".wav"):
            write_tone(path, 200 + 10 * number, 0.2)
        else:
            path.write_bytes(clip(number))


def text(path: Path, *lines: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    return path


def joined(delimiter: str, *columns: Sequence[str], header: Sequence[str] = ()) -> list[str]:
    rows = [delimiter.join(row) for row in zip(*columns, strict=False)]
    return [delimiter.join(header), *rows] if header else rows


def of(names: Sequence[str], texts: Sequence[str] = TEXTS) -> dict[str, str]:
    return dict(zip(names, texts, strict=False))


def audio(numbers: Sequence[int], *, has_bytes: bool = True, has_path: bool = True) -> list[dict[str, Any]]:
    return [
        {"bytes": clip(number) if has_bytes else None, "path": f"{NAMES[number]}.flac" if has_path else None}
        for number in numbers
    ]


def pitch_hz(path: Path) -> int:
    samples, rate = soundfile.read(path)
    return round(int(np.abs(np.fft.rfft(samples[: rate // 10])).argmax()) * 10)


# --- tables -------------------------------------------------------------------------------------------


def ljspeech(folder: Path) -> None:
    clips(folder, *(f"wavs/{name}.wav" for name in NAMES))
    text(folder / "metadata.csv", *joined("|", NAMES, TEXTS))


def ljspeech_normalised(folder: Path) -> None:
    clips(folder, *(f"wavs/{name}.wav" for name in NAMES))
    written = [f"{content[:-1]} 17" for content in TEXTS]
    text(folder / "metadata.csv", *joined("|", NAMES, written, [f"{row[:-3]} አሥራ ሰባት" for row in written]))


def common_voice(folder: Path, *tables: str) -> None:
    clips(folder / "cv/am", *(f"clips/{name}.mp3" for name in NAMES))
    header = ["client_id", "path", "sentence", "up_votes", "locale"]
    rows = joined("\t", CLIENTS, [f"{name}.mp3" for name in NAMES], TEXTS, "222222", ["am"] * 6)
    for number, table in enumerate(tables):
        text(folder / f"cv/am/{table}.tsv", "\t".join(header), *rows[number :: len(tables)])


def common_voice_of_the_hub(folder: Path, is_packed: bool) -> None:
    header = ["client_id", "path", "sentence", "locale"]
    rows = joined("\t", CLIENTS, [f"{name}.mp3" for name in NAMES], TEXTS, ["am"] * 6)
    clips(folder, *(f"{name}.mp3" for name in NAMES))
    for number, split in enumerate(("train", "test")):
        text(folder / f"transcript/am/{split}.tsv", "\t".join(header), *rows[number::2])
        content = {
            f"am_{split}_0/{name}.mp3": (folder / f"{name}.mp3").read_bytes() for name in NAMES[number::2]
        }
        if is_packed:
            write_tar(folder / f"audio/am/{split}/am_{split}_0.tar", content, "w")
        for name in content if not is_packed else ():
            target = folder / f"audio/am/{split}/{Path(name).name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content[name])
    for name in NAMES:
        (folder / f"{name}.mp3").unlink()


def table(
    name: str, delimiter: str, header: str, *columns: Sequence[str], encoding: str = "utf-8"
) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        clips(folder, *(f"wavs/{name}.wav" for name in NAMES))
        rows = joined(delimiter, *columns, header=header.split(",") if header else ())
        text(folder / name, *rows, encoding=encoding)

    return build


PATHS = [f"wavs/{name}.wav" for name in NAMES]
FILES = [f"{name}.wav" for name in NAMES]
GENDERS = ["female", "male"] * 3


def audiofolder_with_splits(folder: Path) -> None:
    """The names of the recordings repeat in the splits."""
    for first, split in ((0, "test"), (3, "train")):
        for number in range(3):
            write_tone(folder / f"{split}/{number}.wav", 200 + 10 * (first + number), 0.2)
        rows = joined(",", ["0.wav", "1.wav", "2.wav"], TEXTS[first:], SPEAKERS[first:])
        text(folder / f"{split}/metadata.csv", "file_name,text,speaker", *rows)
    text(folder / "README.md", "a data set")


def vits_lists(folder: Path) -> None:
    clips(folder, *PATHS)
    rows = joined("|", PATHS, sorted(SPEAKERS), TEXTS)
    text(folder / "filelists/train.txt", *rows[:4])
    text(folder / "filelists/val.txt", *rows[4:])


def facts_above_the_splits(folder: Path) -> None:
    audiofolder_with_splits(folder)
    text(folder / "speakers.csv", "name,age,town", "almaz,30,Gondar", "bekele,40,Adama")


def afrivoice(folder: Path) -> None:
    """Tables of several splits in folders of their own, with the recordings in archives beside them."""
    for first, split in ((0, "test"), (3, "train")):
        header = "audio_filepath,transcription,voice_creator_id,gender,locale"
        rows = joined(",", FILES[first : first + 3], TEXTS[first:], SPEAKERS[first:], GENDERS, ["am_et"] * 3)
        text(folder / f"{split}/{split}.csv", header, *rows)
        clips(folder / "tones", *FILES)
        content = {
            f"audio/{name}": (folder / "tones" / name).read_bytes() for name in FILES[first : first + 3]
        }
        write_tar(folder / f"{split}/audio.tar.xz", content, "w:xz")
    shutil.rmtree(folder / "tones")


# --- FLEURS -------------------------------------------------------------------------------------------


def fleurs(folder: Path, is_packed: bool) -> None:
    """The splits repeat the names of recordings."""
    for first, split in ((0, "train"), (3, "dev")):
        names = ["100.wav", "101.wav", "102.wav"]
        columns = ("789", names, TEXTS[first:], TEXTS[first:], ["|"] * 3, ["9"] * 3, ["MALE"] * 3)
        text(folder / f"am_et/{split}.tsv", *joined("\t", *columns))
        for number, name in enumerate(names):
            write_tone(folder / f"am_et/audio/{split}/{name}", 200 + 10 * (first + number), 0.2)
        if is_packed:
            unpacked = folder / f"am_et/audio/{split}"
            content = {f"{split}/{name}": (unpacked / name).read_bytes() for name in names}
            shutil.rmtree(unpacked)
            write_tar(folder / f"am_et/audio/{split}.tar.gz", content)


OF_FLEURS = of(["100", "101", "102", "dev_100", "dev_101", "dev_102"])

# --- JSON ---------------------------------------------------------------------------------------------


def json_lines(name: str, **fields: Sequence[Any]) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        clips(folder, *PATHS)
        records = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
        return text(folder / name, *(json.dumps(record, ensure_ascii=False) for record in records))

    return build


def within_folder(build: Callable[[Path], Path]) -> Callable[[Path], None]:
    """Return a builder whose source is the folder in place of the file."""

    def build_folder(folder: Path) -> None:
        build(folder)

    return build_folder


def json_array(folder: Path) -> None:
    clips(folder, *PATHS)
    records = [
        {"audio": path, "text": content, "speaker": speaker}
        for path, content, speaker in zip(PATHS, TEXTS, SPEAKERS, strict=True)
    ]
    text(folder / "data.json", json.dumps(records))


def audiofolder_jsonl_with_splits(folder: Path) -> None:
    for first, split in ((0, "test"), (3, "train")):
        records = [{"file_name": f"{n}.wav", "sentence": TEXTS[first + n]} for n in range(3)]
        text(folder / f"{split}/metadata.jsonl", *map(json.dumps, records))
        for number in range(3):
            write_tone(folder / f"{split}/{number}.wav", 200 + 10 * (first + number), 0.2)


OF_SPLITS = of(["0", "1", "2", "train_0", "train_1", "train_2"])

# --- Kaldi, LibriSpeech -------------------------------------------------------------------------------


def kaldi(folder: Path, has_speakers: bool = True, command: str = "{}") -> None:
    clips(folder, *(f"wav/{name}.wav" for name in NAMES))
    text(folder / "wav.scp", *(f"{name} {command.format(f'wav/{name}.wav')}" for name in NAMES))
    text(folder / "text", *joined(" ", NAMES, TEXTS))
    if has_speakers:
        text(folder / "utt2spk", *joined(" ", NAMES, SPEAKERS))


def kaldi_segments(folder: Path) -> None:
    write_tone(folder / "talk.wav", 200, 6)
    text(folder / "wav.scp", "talk talk.wav")
    text(folder / "segments", *(f"{name} talk {number}.0 {number}.9" for number, name in enumerate(NAMES)))
    text(folder / "text", *joined(" ", NAMES, TEXTS))
    text(folder / "utt2spk", *joined(" ", NAMES, SPEAKERS))


LIBRI = [f"{19 + number % 2}-198-{number:04}" for number in range(6)]


def librispeech(folder: Path) -> None:
    for number, name in enumerate(LIBRI):
        place = folder / "train-clean" / name[:2] / "198"
        clips(place, f"{name}.flac", first=number)
        with (place / f"{name[:2]}-198.trans.txt").open("a", encoding="utf-8") as file:
            file.write(f"{name} {TEXTS[number]}\n")


def multilingual_librispeech(folder: Path) -> None:
    for split, numbers in (("dev", (0, 1)), ("train", (2, 3, 4, 5))):
        names = [LIBRI[number].replace("-", "_") for number in numbers]
        clips(folder / split, *(f"audio/{name[:2]}/198/{name}.flac" for name in names), first=numbers[0])
        text(folder / f"{split}/transcripts.txt", *joined("\t", names, [TEXTS[number] for number in numbers]))


# --- files with texts ---------------------------------------------------------------------------------


def pairs(suffix: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        clips(folder, *FILES)
        for name, content in zip(NAMES, TEXTS, strict=True):
            text(folder / f"{name}{suffix}", content)

    return build


def vctk(folder: Path) -> None:
    for number, content in enumerate(TEXTS):
        speaker = f"p22{5 + number % 2}"
        write_tone(
            folder / f"wav48_silence_trimmed/{speaker}/{speaker}_00{number}_mic1.flac", 200 + 10 * number, 0.2
        )
        write_tone(
            folder / f"wav48_silence_trimmed/{speaker}/{speaker}_00{number}_mic2.flac", 900 + number, 0.2
        )
        text(folder / f"txt/{speaker}/{speaker}_00{number}.txt", content)
    text(folder / "speaker-info.txt", "ID AGE GENDER", "p225 23 F")


def subtitles(suffix: str) -> Callable[[Path], None]:
    """A tone contains no speech, so that nothing is usable; the layout is right if this is the reason."""

    def build(folder: Path) -> None:
        clips(folder, "talk.wav")
        start = (
            "WEBVTT\n\n00:00.000 --> 00:00.200" if suffix == ".vtt" else "1\n00:00:00,000 --> 00:00:00,200"
        )
        text(folder / f"talk.am{suffix}", start, TEXTS[0])

    return build


# --- parquet ------------------------------------------------------------------------------------------


def parquet(folder: Path) -> Path:
    columns = {"audio": audio(range(6)), "transcription": TEXTS, "speaker_id": SPEAKERS, "gender": [0, 1] * 3}
    return write_parquet(folder / "train.parquet", columns)


def parquet_without_paths(folder: Path) -> None:
    """As WAXAL has it, with an id; several shards."""
    for shard in range(3):
        rows = slice(2 * shard, 2 * shard + 2)
        columns = {
            "id": NAMES[rows],
            "speaker_id": SPEAKERS[rows],
            "transcription": TEXTS[rows],
            "language": ["am", "am"],
            "gender": ["Female", "Male"],
            "audio": audio(range(6)[rows], has_path=False),
        }
        write_parquet(folder / f"data/ASR/amh/amh-train-0000{shard}-of-00003.parquet", columns)


def parquet_splits(folder: Path) -> None:
    """The splits repeat ids, rows have neither path nor id of their own."""
    for first, split in ((0, "test"), (3, "train")):
        numbers = range(first, first + 3)
        columns = {"audio": audio(numbers, has_path=False), "text": TEXTS[first : first + 3], "id": [7, 8, 9]}
        write_parquet(folder / f"amh_asr/{split}/0000.parquet", columns)


def parquet_of_fleurs(folder: Path) -> None:
    """The id is that of the sentence, the path repeats as a column, and there are two texts."""
    columns = {
        "id": [1, 1, 2, 2, 3, 3],
        "path": [f"/data/{name}.flac" for name in NAMES],
        "audio": audio(range(6)),
        "transcription": [content.rstrip("።?") for content in TEXTS],
        "raw_transcription": TEXTS,
        "gender": [0, 1] * 3,
    }
    write_parquet(folder / "am_et/train-00000-of-00001.parquet", columns)


def parquet_of_files(folder: Path) -> None:
    clips(folder, *(f"{name}.flac" for name in NAMES))
    columns = {"audio": audio(range(6), has_bytes=False), "sentence": TEXTS, "client_id": SPEAKERS}
    write_parquet(folder / "train.parquet", columns)


def parquet_with_two_recordings(folder: Path) -> None:
    columns = {"clean": [clip(2), clip(3)], "noisy": [clip(0), clip(1)], "text": TEXTS[:2]}
    write_parquet(folder / "train.parquet", columns)


def parquet_of_samples(folder: Path) -> None:
    columns = {"audio": [[0.1, 0.2], [0.3, 0.4]], "text": TEXTS[:2], "speaker_id": SPEAKERS[:2]}
    write_parquet(folder / "train.parquet", columns)


# --- archives -----------------------------------------------------------------------------------------


def packed(build: Callable[[Path], object], suffix: str) -> Callable[[Path], Path]:
    def build_archive(folder: Path) -> Path:
        build(folder / "set")
        files = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        archive = folder.with_name(f"in{suffix}")
        if suffix == ".zip":
            with zipfile.ZipFile(archive, "w") as file:
                for name, content in files.items():
                    file.writestr(name, content)
            return archive
        return write_tar(archive, files, {".tar": "w", ".tgz": "w:gz"}[suffix])

    return build_archive


NAMED = {"flags": {}}
BOTH = {"speakers": ["almaz", "bekele"], **NAMED}
CASES = {
    "LJSpeech": Case(ljspeech, of(NAMES)),
    "LJSpeech, normalised": Case(ljspeech_normalised, of(NAMES, [f"{row[:-1]} አሥራ ሰባት" for row in TEXTS])),
    "Common Voice, validated": Case(
        lambda folder: common_voice(folder, "validated"), of(NAMES), ["a" * 16, "b" * 16], **NAMED
    ),
    "Common Voice, splits": Case(
        lambda folder: common_voice(folder, "train", "dev", "test"), of(NAMES), ["a" * 16, "b" * 16], **NAMED
    ),
    "Common Voice of the hub": Case(
        lambda folder: common_voice_of_the_hub(folder, is_packed=False),
        of(NAMES),
        ["a" * 16, "b" * 16],
        **NAMED,
    ),
    "Common Voice of the hub, tar": Case(
        lambda folder: common_voice_of_the_hub(folder, is_packed=True),
        of(NAMES),
        ["a" * 16, "b" * 16],
        **NAMED,
    ),
    "NeMo, file": Case(
        json_lines("train.json", audio_filepath=PATHS, duration=[0.2] * 6, text=TEXTS), of(NAMES)
    ),
    "NeMo, folder": Case(
        within_folder(json_lines("train.json", audio_filepath=PATHS, duration=[0.2] * 6, text=TEXTS)),
        of(NAMES),
    ),
    "audiofolder csv": Case(table("metadata.csv", ",", "file_name,transcription", PATHS, TEXTS), of(NAMES)),
    "audiofolder jsonl": Case(
        within_folder(json_lines("metadata.jsonl", file_name=PATHS, transcription=TEXTS)), of(NAMES)
    ),
    "audiofolder with splits": Case(audiofolder_with_splits, OF_SPLITS, **BOTH),
    "audiofolder jsonl with splits": Case(audiofolder_jsonl_with_splits, OF_SPLITS),
    "a table of facts above the splits": Case(facts_above_the_splits, OF_SPLITS, **BOTH),
    "Afrivoice": Case(afrivoice, of(NAMES), **BOTH),
    "FLEURS": Case(lambda folder: fleurs(folder, is_packed=False), OF_FLEURS),
    "FLEURS, tar.gz": Case(lambda folder: fleurs(folder, is_packed=True), OF_FLEURS),
    "FLEURS, no speaker": Case(
        lambda folder: fleurs(folder, is_packed=True), refusal=r"in: 6 recordings .*--speaker NAME", **NAMED
    ),
    "Kaldi": Case(kaldi, of(NAMES), **BOTH),
    "Kaldi, segments": Case(kaldi_segments, of(NAMES), **BOTH),
    "Kaldi, commands": Case(
        lambda folder: kaldi(folder, command="sox {} -r 16k -t wav - |"), of(NAMES), **BOTH
    ),
    "Kaldi, no utt2spk": Case(lambda folder: kaldi(folder, has_speakers=False), refusal="Kaldi.* utt2spk"),
    "LibriSpeech": Case(librispeech, of(LIBRI), ["19", "20"], **NAMED),
    "Multilingual LibriSpeech": Case(
        multilingual_librispeech, of([name.replace("-", "_") for name in LIBRI]), ["19", "20"], **NAMED
    ),
    "GPT-SoVITS": Case(table("train.list", "|", "", PATHS, SPEAKERS, ["AM"] * 6, TEXTS), of(NAMES), **BOTH),
    "VITS, path and text": Case(table("train.txt", "|", "", PATHS, TEXTS), of(NAMES)),
    "VITS, lists of several speakers": Case(vits_lists, of(NAMES), **BOTH),
    "Coqui": Case(
        table(
            "metadata.csv", "|", "audio_file,text,speaker_name,emotion_name", PATHS, TEXTS, SPEAKERS, "nnnnnn"
        ),
        of(NAMES),
        **BOTH,
    ),
    "DeepSpeech": Case(
        table("train.csv", ",", "wav_filename,wav_filesize,transcript", PATHS, ["99"] * 6, TEXTS), of(NAMES)
    ),
    "JSON array": Case(json_array, of(NAMES), **BOTH),
    "jsonl, normalized_text": Case(
        json_lines("x.jsonl", file_name=PATHS, normalized_text=TEXTS, speaker_id=[1, 2] * 3),
        of(NAMES),
        ["1", "2"],
        **NAMED,
    ),
    "jsonl, sentence": Case(
        json_lines("x.jsonl", path=PATHS, sentence=TEXTS, client_id=SPEAKERS), of(NAMES), **BOTH
    ),
    "jsonl, transcription": Case(
        json_lines("x.jsonl", audio=PATHS, transcription=TEXTS, speaker=SPEAKERS), of(NAMES), **BOTH
    ),
    "jsonl, a translation": Case(json_lines("x.jsonl", audio=PATHS, text=ENGLISH, text_am=TEXTS), of(NAMES)),
    "jsonl, text and normalised text": Case(
        json_lines("x.jsonl", audio=PATHS, normalized_text=[row[:-1] for row in TEXTS], text=TEXTS), of(NAMES)
    ),
    "jsonl, the other text by --columns": Case(
        json_lines("x.jsonl", audio=PATHS, normalized_text=TEXTS, text=[row[:-1] for row in TEXTS]),
        of(NAMES),
        flags={"speaker": "s", "columns": "audio=audio,text=normalized_text"},
    ),
    "jsonl, two unknown texts": Case(
        json_lines("x.jsonl", audio=PATHS, one=TEXTS, two=TEXTS[::-1]), refusal=r"x\.jsonl: .*--columns"
    ),
    "parquet, a file": Case(parquet, of(NAMES), **BOTH),
    "parquet, shards without paths": Case(parquet_without_paths, of(NAMES), **BOTH),
    "parquet, splits": Case(parquet_splits, of(["7", "8", "9", "train_7", "train_8", "train_9"])),
    "parquet of FLEURS": Case(parquet_of_fleurs, {}, refusal="--speaker NAME", **NAMED),
    "parquet, files beside it": Case(parquet_of_files, of(NAMES), **BOTH),
    "parquet, two recordings in a row": Case(
        parquet_with_two_recordings, refusal=r"train\.parquet: .*clean and noisy.*--columns"
    ),
    "parquet, by --columns": Case(
        parquet_with_two_recordings,
        of(["train-000000", "train-000001"]),
        flags={"speaker": "s", "columns": "audio=noisy,text=text"},
    ),
    "parquet of samples": Case(parquet_of_samples, refusal=r"train\.parquet: .*--columns"),
    "wav and txt": Case(pairs(".txt"), of(NAMES)),
    "wav and lab": Case(pairs(".lab"), of(NAMES)),
    "VCTK": Case(
        vctk,
        of([f"wav48_silence_trimmed_p22{5 + n % 2}_p22{5 + n % 2}_00{n}_mic1" for n in range(6)]),
        ["p225", "p226"],
        flags={"speaker_from": "folder"},
    ),
    "VCTK, no speaker": Case(vctk, refusal="--speaker-from folder", **NAMED),
    "TSV with a gender": Case(
        table("x.tsv", "\t", "file_name,normalized_text,gender", PATHS, TEXTS, GENDERS), of(NAMES)
    ),
    "a text in two languages": Case(
        table("x.csv", "|", "file_name,text_am,text_en", PATHS, TEXTS, ENGLISH), of(NAMES)
    ),
    "id, text, speaker": Case(
        table("x.csv", "|", "id,text,speaker", NAMES, TEXTS, SPEAKERS), of(NAMES), **BOTH
    ),
    "path, speaker, text": Case(table("x.csv", "|", "", PATHS, SPEAKERS, TEXTS), of(NAMES), **BOTH),
    "unknown header": Case(table("x.csv", ";", "sound,words", PATHS, TEXTS), of(NAMES)),
    "unknown header with two texts": Case(
        table("x.csv", ";", "sound,one,two", PATHS, TEXTS, TEXTS[::-1]), refusal=r"x\.csv: .*--columns"
    ),
    "semicolons": Case(table("x.csv", ";", "path,text,speaker", PATHS, TEXTS, SPEAKERS), of(NAMES), **BOTH),
    "UTF-16": Case(table("x.csv", ",", "path,text", PATHS, TEXTS, encoding="utf-16"), of(NAMES)),
    "quoted commas": Case(
        table("x.csv", ",", "path,text", PATHS, [f'"{row}, ""አለ"""' for row in TEXTS]),
        of(NAMES, [f'{row}, "አለ"' for row in TEXTS]),
    ),
    "zip": Case(packed(ljspeech, ".zip"), of(NAMES)),
    "zip of parquet": Case(packed(parquet, ".zip"), of(NAMES), **BOTH),
    "tar": Case(packed(librispeech, ".tar"), of(LIBRI), ["19", "20"], **NAMED),
    "tgz": Case(packed(audiofolder_with_splits, ".tgz"), OF_SPLITS, **BOTH),
    "srt": Case(subtitles(".srt"), refusal="no_speech.*rejected.jsonl"),
    "vtt": Case(subtitles(".vtt"), refusal="no_speech.*rejected.jsonl"),
    "only recordings": Case(lambda folder: clips(folder, *FILES), refusal="6 no_text.*rejected.jsonl"),
    "nothing": Case(lambda folder: folder.mkdir(), refusal="layout files; .*--source.*--layout"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_data_set_is_read_right_or_refused_with_a_way_out(tmp_path: Path, name: str):
    case = CASES[name]
    folder, out = tmp_path / "in", tmp_path / "out"
    source = case.build(folder) or folder
    if case.refusal:
        with pytest.raises(UserError, match=case.refusal):
            run_import(source, out, **case.flags)
        assert not (out / "manifest.jsonl").exists()
        return
    result = run_import(source, out, **case.flags)
    lines = manifest_lines(out)
    assert {line["id"]: line["text"] for line in lines} == case.texts
    assert sorted({line["speaker"] for line in lines}) == sorted(case.speakers)
    if case.build is not kaldi_segments:
        pitches = {line["id"]: pitch_hz(out / line["audio"]) for line in lines}
        assert pitches == {id: 200 + 10 * number for number, id in enumerate(case.texts)}
    assert (result.num_utterances, result.num_added, result.rejected.keys() - {"duplicate", "no_audio"}) == (
        len(lines),
        len(lines),
        set(),
    )
    before = snapshot(out)
    again = run_import(source, out, **case.flags)
    assert (again.num_added, again.num_changed, again.num_unchanged) == (0, 0, len(lines))
    assert snapshot(out) == before
