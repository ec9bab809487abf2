"""Tests of the layouts that people have their data sets in: each is read right, or refused with a way out.

A case is a data set, as the files in a folder, and what an import of it gives: the texts by id, the speakers
and the rejections, or what the refusal names. A recording is the number of its pitch, so that a swapped
recording shows.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.import_cases import (
    BOTH,
    FILES,
    NAMED,
    NAMES,
    PATHS,
    SPEAKERS,
    TEXTS,
    Case,
    check_import,
    json_lines,
    objects,
    of,
    rows,
    table,
    tones,
)
from tests.import_sources import tone_bytes

ENGLISH = [
    "peace to you",
    "how are you, well?",
    "the sun is out",
    "I read the book",
    "see you soon",
    "coffee",
]
GENDERS = ["female", "male"] * 3
CLIENTS = ["a" * 128, "b" * 128] * 3
SPLITS = (("test", 0), ("train", 3))  # names and first recordings; the names of the recordings repeat
LIBRI = [f"{19 + number % 2}-198-{number:04}" for number in range(6)]
MLS = [name.replace("-", "_") for name in LIBRI]


# --- tables


def common_voice(*tables: str) -> dict[str, Any]:
    lines = rows("\t", CLIENTS, [f"{name}.mp3" for name in NAMES], TEXTS, "222222", ["am"] * 6)
    header = "client_id\tpath\tsentence\tup_votes\tlocale"
    split = {f"cv/am/{name}.tsv": [header, *lines[n :: len(tables)]] for n, name in enumerate(tables)}
    return tones(*(f"cv/am/clips/{name}.mp3" for name in NAMES)) | split


def common_voice_of_the_hub(*, is_packed: bool) -> dict[str, Any]:
    lines = rows("\t", CLIENTS, [f"{name}.mp3" for name in NAMES], TEXTS, ["am"] * 6)
    found: dict[str, Any] = {}
    for first, split in enumerate(("train", "test")):
        found[f"transcript/am/{split}.tsv"] = ["client_id\tpath\tsentence\tlocale", *lines[first::2]]
        place, sounds = f"audio/am/{split}", {f"{NAMES[n]}.mp3": n for n in range(first, 6, 2)}
        if is_packed:
            found[f"{place}/0.tar"] = {f"am_{split}_0/{name}": n for name, n in sounds.items()}
        else:
            found |= {f"{place}/{name}": n for name, n in sounds.items()}
    return found


def audiofolder_with_splits() -> dict[str, Any]:
    found: dict[str, Any] = {"README.md": "a data set"}
    for split, first in SPLITS:
        found |= tones(*(f"{split}/{number}.wav" for number in range(3)), first=first)
        lines = rows(",", ["0.wav", "1.wav", "2.wav"], TEXTS[first:], SPEAKERS[first:])
        found[f"{split}/metadata.csv"] = ["file_name,text,speaker", *lines]
    return found


def afrivoice() -> dict[str, Any]:
    """Tables of several splits in their folders, with the recordings in archives beside them."""
    found: dict[str, Any] = {}
    for split, first in SPLITS:
        part = slice(first, first + 3)
        lines = rows(",", FILES[part], TEXTS[part], SPEAKERS[part], GENDERS, ["am_et"] * 3)
        header = "audio_filepath,transcription,voice_creator_id,gender,locale"
        found[f"{split}/{split}.csv"] = [header, *lines]
        found[f"{split}/audio.tar.xz"] = tones(*(f"audio/{name}" for name in FILES[part]), first=first)
    return found


def fleurs(*, is_packed: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for first, split in ((0, "train"), (3, "dev")):
        names = ["100.wav", "101.wav", "102.wav"]
        columns = ("789", names, TEXTS[first:], TEXTS[first:], ["|"] * 3, ["9"] * 3, ["MALE"] * 3)
        found[f"am_et/{split}.tsv"] = rows("\t", *columns)
        sounds = tones(*(f"{split}/{name}" for name in names), first=first)
        if is_packed:
            found[f"am_et/audio/{split}.tar.gz"] = sounds
        else:
            found |= {f"am_et/audio/{name}": number for name, number in sounds.items()}
    return found


AUDIOFOLDER_IN_A_FOLDER = {f"set/{name}": content for name, content in audiofolder_with_splits().items()}
FACTS = {"speakers.csv": ["name,age,town", "almaz,30,Gondar", "bekele,40,Adama"]}
OF_FLEURS = of(["100", "101", "102", "dev_100", "dev_101", "dev_102"])
OF_SPLITS = of(["0", "1", "2", "train_0", "train_1", "train_2"])

# --- JSON, Kaldi, LibriSpeech


def kaldi(folder: str = "", path: str = "wav/{}.wav", names: Sequence[str] = NAMES) -> dict[str, Any]:
    """Kaldi's tables; recordings of `names`."""
    values = {"wav.scp": [path.format(name) for name in NAMES], "text": TEXTS, "utt2spk": SPEAKERS}
    tables = {f"{folder}{table}": rows(" ", NAMES, column) for table, column in values.items()}
    return {**tones(*(f"{folder}wav/{name}.wav" for name in names)), **tables}


LIBRISPEECH = {f"train-clean/{name[:2]}/198/{name}.flac": number for number, name in enumerate(LIBRI)} | {
    f"train-clean/{speaker}/198/{speaker}-198.trans.txt": rows(" ", LIBRI[first::2], TEXTS[first::2])
    for first, speaker in enumerate(("19", "20"))
}
MULTILINGUAL = {
    f"{'dev' if number < 2 else 'train'}/audio/{name[:2]}/198/{name}.flac": number
    for number, name in enumerate(MLS)
} | {
    "dev/transcripts.txt": rows("\t", MLS[:2], TEXTS[:2]),
    "train/transcripts.txt": rows("\t", MLS[2:], TEXTS[2:]),
}

# --- files with texts


def pairs(suffix: str) -> dict[str, Any]:
    return {**tones(*FILES), **of([f"{name}{suffix}" for name in NAMES])}


VCTK_IDS = [f"{{}}/p22{5 + number % 2}/p22{5 + number % 2}_00{number}" for number in range(6)]
VCTK_AUDIO = [id.format("wav48_silence_trimmed") for id in VCTK_IDS]
VCTK = {
    **{f"{name}_mic1.flac": number for number, name in enumerate(VCTK_AUDIO)},
    **{f"{name}_mic2.flac": 70 + number for number, name in enumerate(VCTK_AUDIO)},
    **{f"{id.format('txt')}.txt": content for id, content in zip(VCTK_IDS, TEXTS, strict=True)},
    "speaker-info.txt": "ID AGE GENDER\np225 23 F\n",
}
# a tone contains no speech, so that nothing is usable; the layout is right if this is the reason
SUBTITLE = f"1\n00:00:00,000 --> 00:00:00,200\n{TEXTS[0]}\n"
WEBVTT = f"WEBVTT\n\n00:00.000 --> 00:00.200\n{TEXTS[0]}\n"
BESIDE = {
    **tones("a.b/1.WAV", "b/1.flac", "b/2.ogg"),
    **{"a.b/1.ogg": 9, "b/3.wav": 9, "b/4.wav": 9, ".hidden/9.wav": 9},
    **{name: f" ሰላም \n{name} \n" for name in ("b/1.txt", "b/2.TXT", "a.b/1.txt")},
    "b/4.lab": "0 2500000 sil\n2500000 5000000 s",
}

# --- parquet


def audio(numbers: Sequence[int], *, has_bytes: bool = True, has_path: bool = True) -> list[dict[str, Any]]:
    sounds = [tone_bytes(200 + 10 * number) if has_bytes else None for number in numbers]
    paths = [f"{NAMES[number]}.flac" if has_path else None for number in numbers]
    return [{"bytes": sound, "path": path} for sound, path in zip(sounds, paths, strict=True)]


PARQUET = {"audio": audio(range(6)), "transcription": TEXTS, "speaker_id": SPEAKERS, "gender": [0, 1] * 3}
WITHOUT_BYTES = {"audio": audio(range(6), has_bytes=False), "sentence": TEXTS, "client_id": SPEAKERS}
SHARDS = {  # as WAXAL has them, without paths and with an id
    f"data/ASR/amh/amh-train-0000{shard}-of-00003.parquet": {
        "id": NAMES[2 * shard : 2 * shard + 2],
        "speaker_id": SPEAKERS[:2],
        "transcription": TEXTS[2 * shard : 2 * shard + 2],
        "language": ["am", "am"],
        "gender": ["Female", "Male"],
        "audio": audio(range(2 * shard, 2 * shard + 2), has_path=False),
    }
    for shard in range(3)
}
PARQUET_SPLITS = {
    f"amh_asr/{split}/0000.parquet": {
        "audio": audio(range(first, first + 3), has_path=False),
        "text": TEXTS[first : first + 3],
        "id": [7, 8, 9],
    }
    for split, first in SPLITS
}
PARQUET_OF_FLEURS = {  # the id is that of the sentence, the path repeats as a column, and there are two texts
    "id": [1, 1, 2, 2, 3, 3],
    "path": [f"/data/{name}.flac" for name in NAMES],
    "audio": audio(range(6)),
    "transcription": [content.rstrip("።?") for content in TEXTS],
    "raw_transcription": TEXTS,
    "gender": [0, 1] * 3,
}
TWO_RECORDINGS = {
    "clean": [tone_bytes(220), tone_bytes(230)],
    "noisy": [tone_bytes(200), tone_bytes(210)],
    "text": TEXTS[:2],
}

# --- rows that are read, and rows that are not

BROKEN_ROWS = [
    "0,ሰላም",
    "1,ሰላም, ለዓለም",  # a text with a delimiter
    '2,"ሰላም',  # a quote that is not closed
    "3,ሰላም",
    "4",
    "5,",
    "9,ሰላም",
    "../../../etc/hostname,ሰላም",
    "3,ደህና",
    "6,ሰላም",
]
BROKEN_OBJECTS = [{"audio": "a.wav", "text": TEXTS[0]}, 3, {"audio": "a.wav", "text": ["x"]}]
CODES = [*["broken_row"] * 3, "empty_text", *["missing_audio"] * 2, "duplicate"]
OTHER_ENCODINGS = (
    "".join(f"{number}|ሰላም ለዓለም ዛሬ እንዴት ናችሁ\n" for number in range(4)).encode()
    + "4|ሰላም\n".encode("utf-16-le")
    + b"5|caf\xe9\n"
    + "\ufeff3|ደህና\n".encode()
)
OTHER_PROGRAMS = [
    {"id": "spk000_1", "audio_path": PATHS[0], "text": TEXTS[0], "speaker": "spk000", "codes_path": "x.npy"},
    {"audio_filepath": PATHS[1], "duration": 1.0, "text": TEXTS[1], "speaker": 17},
    {"audio": PATHS[2], "text": ["a"], "speaker": "b"},
    {"id": "a__b", "target_id": "a", "prompt_id": "b"},
]
WINDOWS = json.dumps({"audio": "audio\\2.wav", "text": TEXTS[0]}, ensure_ascii=False)
BINARY = bytes(range(256)) * 10

OF_CLIENTS: dict[str, Any] = {"speakers": ["a" * 16, "b" * 16], **NAMED}
TWO_TEXTS = json_lines("x.jsonl", audio=PATHS, normalized_text=[row[:-1] for row in TEXTS], text=TEXTS)
NEMO = json_lines("train.json", audio_filepath=PATHS, duration=[0.2] * 6, text=TEXTS)
WRITTEN = [f"{content[:-1]} 17" for content in TEXTS]
SPOKEN = [f"{row[:-3]} አሥራ ሰባት" for row in WRITTEN]
LISTS = rows("|", PATHS, sorted(SPEAKERS), TEXTS)
CASES = {
    "LJSpeech": Case(table("metadata.csv", "|", "", NAMES, TEXTS), of(NAMES)),
    "LJSpeech, normalised": Case(table("metadata.csv", "|", "", NAMES, WRITTEN, SPOKEN), of(NAMES, SPOKEN)),
    "LJSpeech, UTF-8 with a mark": Case(
        {**tones(*PATHS), "metadata.csv": "\ufeff" + "\r\n".join(rows("|", NAMES, TEXTS))}, of(NAMES)
    ),
    "LJSpeech, UTF-16": Case(
        {**tones(*PATHS), "metadata.csv": "\r".join(rows("|", NAMES, TEXTS)).encode("utf-16")}, of(NAMES)
    ),
    "Common Voice, validated": Case(common_voice("validated"), of(NAMES), **OF_CLIENTS),
    "Common Voice, splits": Case(common_voice("train", "dev", "test"), of(NAMES), **OF_CLIENTS),
    "Common Voice of the hub": Case(common_voice_of_the_hub(is_packed=False), of(NAMES), **OF_CLIENTS),
    "Common Voice of the hub, tar": Case(common_voice_of_the_hub(is_packed=True), of(NAMES), **OF_CLIENTS),
    "NeMo, file": Case(NEMO, of(NAMES), source="train.json"),
    "NeMo, folder": Case(NEMO, of(NAMES)),
    "audiofolder csv": Case(table("metadata.csv", ",", "file_name,transcription", PATHS, TEXTS), of(NAMES)),
    "audiofolder jsonl": Case(json_lines("metadata.jsonl", file_name=PATHS, transcription=TEXTS), of(NAMES)),
    "audiofolder with splits": Case(audiofolder_with_splits(), OF_SPLITS, **BOTH),
    "a table of facts above the splits": Case({**audiofolder_with_splits(), **FACTS}, OF_SPLITS, **BOTH),
    "Afrivoice": Case(afrivoice(), of(NAMES), **BOTH),
    "FLEURS": Case(fleurs(is_packed=False), OF_FLEURS),
    "FLEURS, tar.gz": Case(fleurs(is_packed=True), OF_FLEURS),
    "seven named columns are not FLEURS": Case(
        {"1.wav": 0, "train.tsv": ["a\tpath\tb\ttext\tc\td\te", f"0\t1.wav\t0\t{TEXTS[0]}\t0\t0\t0"]},
        of(["1"]),
    ),
    "Kaldi": Case(kaldi(), of(NAMES), **BOTH),
    "Kaldi, commands": Case(kaldi(path="sox /data/wav/{}.wav -r 16k -t wav - |"), of(NAMES), **BOTH),
    "Kaldi, paths of another machine": Case(
        {**kaldi("data/train/", path="/home/x/data/train/wav/{}.wav"), "README": "a corpus"},
        of(NAMES),
        **BOTH,
    ),
    "LibriSpeech": Case(LIBRISPEECH, of(LIBRI), ["19", "20"], **NAMED),
    "Multilingual LibriSpeech": Case(MULTILINGUAL, of(MLS), ["19", "20"], **NAMED),
    "GPT-SoVITS": Case(table("train.list", "|", "", PATHS, SPEAKERS, ["AM"] * 6, TEXTS), of(NAMES), **BOTH),
    "VITS, path and text": Case(table("train.txt", "|", "", PATHS, TEXTS), of(NAMES)),
    "VITS, lists of several speakers": Case(
        {**tones(*PATHS), "filelists/train.txt": LISTS[:4], "filelists/val.txt": LISTS[4:]}, of(NAMES), **BOTH
    ),
    "Coqui": Case(
        table("metadata.csv", "|", "audio_file,text,speaker_name,emotion", PATHS, TEXTS, SPEAKERS, "nnnnnn"),
        of(NAMES),
        **BOTH,
    ),
    "DeepSpeech": Case(
        table("train.csv", ",", "wav_filename,wav_filesize,transcript", PATHS, ["99"] * 6, TEXTS), of(NAMES)
    ),
    "JSON array": Case(
        {**tones(*PATHS), "data.json": json.dumps(objects(audio=PATHS, text=TEXTS, speaker=SPEAKERS))},
        of(NAMES),
        **BOTH,
    ),
    "JSON array with broken objects": Case(
        {"a.wav": 0, "x.json": json.dumps(BROKEN_OBJECTS)},
        of("a"),
        source="x.json",
        rejected=[("x.json", None, "broken_row")] * 2,
    ),
    "JSON array that is cut": Case(
        {"x.json": '[{"audio": "a'}, refusal=r"x\.json: not JSON in object 1", source="x.json"
    ),
    "jsonl, normalized_text": Case(
        json_lines("x.jsonl", file_name=PATHS, normalized_text=TEXTS, speaker_id=[1, 2] * 3),
        of(NAMES),
        ["1", "2"],
        **NAMED,
    ),
    "jsonl, a translation": Case(json_lines("x.jsonl", audio=PATHS, text=ENGLISH, text_am=TEXTS), of(NAMES)),
    "jsonl, text and normalised text": Case(TWO_TEXTS, of(NAMES)),
    "jsonl, the other text by --columns": Case(
        TWO_TEXTS,
        of(NAMES, [row[:-1] for row in TEXTS]),
        flags={"speaker": "s", "columns": "audio=audio,text=normalized_text"},
    ),
    "jsonl, two unknown texts": Case(
        json_lines("x.jsonl", audio=PATHS, one=TEXTS, two=TEXTS[::-1]), refusal=r"x\.jsonl: .*--columns"
    ),
    "jsonl of other programs": Case(
        {**tones(*PATHS), "train.jsonl": [json.dumps(record) for record in OTHER_PROGRAMS]},
        of(["spk000_1", "c1"]),
        ["17", "spk000"],
        rejected=[("train.jsonl", 3, "broken_row"), ("train.jsonl", 4, "broken_row")],
    ),
    "jsonl, a path of Windows": Case({"audio/2.wav": 0, "manifest.jsonl": f"\ufeff{WINDOWS}\r\n"}, of(["2"])),
    "parquet, a file": Case({"train.parquet": PARQUET}, of(NAMES), source="train.parquet", **BOTH),
    "parquet, shards without paths": Case(SHARDS, of(NAMES), **BOTH),
    "parquet, splits": Case(PARQUET_SPLITS, of(["7", "8", "9", "train_7", "train_8", "train_9"])),
    "parquet of FLEURS": Case({"am_et/train.parquet": PARQUET_OF_FLEURS}, refusal="--speaker NAME", **NAMED),
    "parquet, files beside it": Case(
        tones(*(f"{name}.flac" for name in NAMES)) | {"train.parquet": WITHOUT_BYTES}, of(NAMES), **BOTH
    ),
    "parquet, two recordings in a row": Case(
        {"train.parquet": TWO_RECORDINGS}, refusal=r"train\.parquet: .*clean and noisy.*--columns"
    ),
    "parquet, by --columns": Case(
        {"train.parquet": TWO_RECORDINGS},
        of(["train-000000", "train-000001"]),
        flags={"speaker": "s", "columns": "audio=noisy,text=text"},
    ),
    "parquet of recordings alone": Case(
        {"train.parquet": {"audio": [tone_bytes(200), tone_bytes(210)]}},
        refusal=r"train\.parquet: no column could be the text.*--columns",
    ),
    "parquet of samples": Case(
        {"train.parquet": {"audio": [[0.1, 0.2], [0.3, 0.4]], "text": TEXTS[:2]}},
        refusal=r"train\.parquet: .*--columns",
    ),
    "wav and txt": Case(pairs(".txt"), of(NAMES)),
    "wav and lab": Case(pairs(".lab"), of(NAMES)),
    "texts beside recordings in all folders": Case(
        BESIDE,
        of(["a.b_1", "b_1", "b_2"], [f"ሰላም {name}" for name in ("a.b/1.txt", "b/1.txt", "b/2.TXT")]),
        rejected=[
            ("a.b/1.ogg", None, "duplicate"),
            ("b/3.wav", None, "no_text"),
            ("b/4.lab", None, "not_text"),
        ],
    ),
    "VCTK": Case(
        VCTK,
        of([f"{name.replace('/', '_')}_mic1" for name in VCTK_AUDIO]),
        ["p225", "p226"],
        flags={"speaker_from": "folder"},
        rejected=[
            ("speaker-info.txt", None, "no_audio"),
            *((f"{name}_mic2.flac", None, "duplicate") for name in VCTK_AUDIO),
        ],
    ),
    "binary files as texts": Case(
        {"a.wav": 0, "b.wav": 1, "a.txt": TEXTS[0], "b.txt": BINARY, "c.txt": BINARY},
        of("a"),
        rejected=[("b.txt", None, "not_text"), ("c.txt", None, "no_audio")],
    ),
    "a binary file as a table": Case({"a.wav": 0, "metadata.csv": BINARY}, refusal=r"\(1 not_text"),
    "subtitles with and without a language": Case(
        {
            **tones("clip.wav", "a.wav", "b.one.wav", "c.wav"),
            "clip.txt": TEXTS[0],
            **dict.fromkeys(("a.am.srt", "a.en.srt", "b.one.srt", "c.en.vtt"), SUBTITLE),
        },
        of(["clip"]),
        rejected=[
            ("a.am.srt", None, "bad_time"),
            ("a.en.srt", None, "language"),
            ("b.one.srt", None, "bad_time"),
            ("c.en.vtt", None, "language"),
        ],
    ),
    "unknown header": Case(table("x.csv", ";", "sound,words", PATHS, TEXTS), of(NAMES)),
    "semicolons": Case(table("x.csv", ";", "path,text,speaker", PATHS, TEXTS, SPEAKERS), of(NAMES), **BOTH),
    "quoted commas, quotes and line ends": Case(
        table("x.csv", ",", "speaker,path,text", SPEAKERS, PATHS, [f'"{row}, ""አለ""\nእርሱ"' for row in TEXTS]),
        of(NAMES, [f'{row}, "አለ" እርሱ' for row in TEXTS]),
        **BOTH,
    ),
    "quotes in a table with bars, empty spoken forms": Case(
        table("metadata.csv", "|", "", NAMES, ["በ2017 ተጀመረ", 'እርሱ "ደህና" አለ'], ["በሁለት ሺህ ተጀመረ", ""]),
        of(NAMES, ["በሁለት ሺህ ተጀመረ", 'እርሱ "ደህና" አለ']),
    ),
    "paths of Windows": Case(
        {
            **tones("audio/1.wav", "more/3.wav"),
            "metadata.csv": ["path,text", f"audio\\1.wav,{TEXTS[0]}", f"more\\3.wav,{TEXTS[1]}"],
        },
        of(["1", "more_3"]),
    ),
    "invalid rows": Case(
        {**dict.fromkeys([f"wavs/{n}.wav" for n in range(8)], 9), "metadata.csv": BROKEN_ROWS},
        dict.fromkeys("036", "ሰላም"),
        rejected=[("metadata.csv", *line) for line in zip((2, 3, 5, 6, 7, 8, 9), CODES, strict=True)],
        has_pitches=False,
    ),
    "lines in another encoding than the file's": Case(
        {**tones(*(f"wavs/{n}.wav" for n in range(6))), "metadata.csv": OTHER_ENCODINGS},
        dict.fromkeys("0123", "ሰላም ለዓለም ዛሬ እንዴት ናችሁ"),
        rejected=[("metadata.csv", *line) for line in ((5, "not_text"), (6, "encoding"), (7, "duplicate"))],
    ),
    "zip of parquet": Case({"in.zip": {"train.parquet": PARQUET}}, of(NAMES), source="in.zip", **BOTH),
    "tgz": Case({"in.tgz": AUDIOFOLDER_IN_A_FOLDER}, OF_SPLITS, source="in.tgz", **BOTH),
    "vtt": Case({"talk.wav": 0, "talk.am.vtt": WEBVTT}, refusal="bad_time.*rejected.jsonl"),
    "only recordings": Case(tones(*FILES), refusal="6 no_text.*rejected.jsonl"),
    "nothing": Case({}, refusal="layout files; .*--source.*--layout"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_data_set_is_read_right_or_refused_with_a_way_out(tmp_path: Path, name: str):
    check_import(CASES[name], tmp_path)
