import json
import re
from pathlib import Path

import pytest

from indextts.data.manifest import (
    Pair,
    Provenance,
    Utterance,
    read_hours,
    read_pairs,
    read_texts,
    read_utterances,
    write_pairs,
    write_utterances,
)
from indextts.errors import DISK_FULL, UserError
from indextts.system.json_lines import write_json_lines

KEY = "0123456789abcdef" * 4
UTTERANCE = {"id": "a", "audio": "audio/a.wav", "text": "ሰላም።", "speaker": "s", "duration": 1.5}
PAIR = {
    "id": "b__a",
    "speaker": "s",
    "prompt_id": "a",
    "target_id": "b",
    "target_text": "ሰላም።",
    "target_code_len": 75,
    "target_duration": 1.5,
    "prompt_duration": 2,
    "features": "features/f.json",
    "prompt_key": KEY,
    "target_key": "ef" * 32,
}


def write_lines(path: Path, *records: object) -> Path:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def refusal(path: Path, read=read_utterances) -> str:
    with pytest.raises(UserError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_written_manifest_reads_back_equal_and_has_relative_paths(tmp_path):
    utterances = [
        Utterance("ሀ/../ለ", tmp_path / "audio/x.wav", 'ሰላም "ለዓለም"\u2028።', "ተናጋሪ 1", 0.5),
        Utterance(
            "b", tmp_path.parent / "b.wav", "b", "s", 2.0, "en", None, None, None, tmp_path / "f.json", KEY, 9
        ),
    ]
    path = tmp_path / "new/m.jsonl"
    write_utterances(path, utterances)
    assert read_utterances(path) == utterances
    assert '"audio": "../audio/x.wav"' in path.read_text(encoding="utf-8")
    assert str(tmp_path) not in path.read_text(encoding="utf-8")
    assert [file.name for file in path.parent.iterdir()] == ["m.jsonl"]


def test_links_stay_absolute_and_originals_are_kept(tmp_path):
    utterances = [
        Utterance("a", tmp_path / "in/a.wav", "a", "s", 0.5),
        Utterance("b", tmp_path / "out/audio/b.flac", "b", "s", 2.0, original="talks.zip/b.wav"),
    ]
    path = tmp_path / "out/m.jsonl"
    write_utterances(path, utterances, keeps_links=True)
    assert read_utterances(path) == utterances
    written = [json.loads(line)["audio"] for line in path.read_text().splitlines()]
    assert written == [str(tmp_path / "in/a.wav"), "audio/b.flac"]


def test_pairs_read_back_equal_and_share_their_store(tmp_path):
    pairs = [
        Pair(f"b__{prompt}", "s", prompt, "b", "ሰላም።", 75, 1.5, 2.0, tmp_path / "f.json", prompt * 64, KEY)
        for prompt in "ac"
    ]
    path = tmp_path / "pairs.jsonl"
    write_pairs(path, pairs)
    read = read_pairs(path)
    assert read == pairs
    assert read[0].features is read[1].features
    assert read[0].target_text is read[1].target_text


@pytest.mark.failure(33)
def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_read(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(UTTERANCE).encode() + b"\r\n\r\n\n")
    assert len(read_utterances(path)) == 1


def test_a_full_disk_has_its_own_status_and_leaves_the_old_manifest(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text("what was there\n")
    path.with_name(".tmp-m.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"m\.jsonl: ") as caught:
        write_json_lines(path, [{"id": "a"}])
    assert caught.value.exit_status == DISK_FULL
    assert path.read_text() == "what was there\n"


@pytest.mark.parametrize("field", ["id", "audio", "text", "speaker", "duration"])
@pytest.mark.failure(34)
def test_the_error_for_a_missing_field_has_field_and_line(tmp_path, field):
    second = {key: value for key, value in (UTTERANCE | {"id": "b"}).items() if key != field}
    path = write_lines(tmp_path / "m.jsonl", UTTERANCE, second)
    assert re.match(
        f"{re.escape(str(path))}:2: .*'{field}'.* id, audio, text, speaker, duration$", refusal(path)
    )


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("duration", True, "duration is true,"),
        ("duration", None, "duration is null,"),  # D80
        ("duration", float("nan"), "duration is NaN,"),
        ("duration", 10**400, "duration is 1000"),
        ("duration", 0, "duration is 0,"),
        ("text", " \n", "text is "),
        ("text", "\ud800", "surrogate"),
        ("id", 12, "id is 12,"),
        ("speaker", [], "speaker is a list,"),
        ("audio", "a\0b", "NUL"),
        ("code_len", 3, "features, features_key, code_len"),
    ],
)
@pytest.mark.failure(41)
def test_the_error_for_an_invalid_value_has_value_and_line(tmp_path, field, value, what):
    path = write_lines(tmp_path / "m.jsonl", UTTERANCE, UTTERANCE | {"id": "b"} | {field: value})
    message = refusal(path)
    assert message.startswith(f"{path}:2: ")
    assert what in message


@pytest.mark.parametrize("value", [True, 1.0, 0, -1, "75", None, 10**400])
@pytest.mark.failure(45)
def test_a_number_of_codes_is_a_positive_integer(tmp_path, value):
    path = write_lines(tmp_path / "p.jsonl", PAIR | {"target_code_len": value})
    assert f"{path}:1: target_code_len is " in refusal(path, read_pairs)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
        ("[]", "a list"),
        ('"text"', '"text"'),
    ],
)
@pytest.mark.failure(32)
def test_the_error_for_an_invalid_line_has_its_number(tmp_path, line, what):
    path = write_lines(tmp_path / "m.jsonl", UTTERANCE, line)
    message = refusal(path)
    assert message.startswith(f"{path}:2: ")
    assert what in message


@pytest.mark.parametrize("read", [read_utterances, read_pairs, read_texts])
def test_files_that_are_not_a_manifest_are_a_one_line_error(tmp_path, read):
    assert refusal(tmp_path, read).startswith(f"{tmp_path}: ")
    absent = tmp_path / "absent.jsonl"
    assert refusal(absent, read).startswith(f"{absent}: ")
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"\n \n")
    assert refusal(empty, read).startswith(f"{empty}: ")


@pytest.mark.failure(33)
def test_the_error_for_invalid_utf_8_has_the_line(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(json.dumps(UTTERANCE).encode() + b"\n" + b'{"id": "\xff"}\n')
    assert refusal(path).startswith(f"{path}:2: ")


@pytest.mark.parametrize(("record", "read"), [(UTTERANCE, read_utterances), (PAIR, read_pairs)])
@pytest.mark.failure(46)
def test_the_error_for_a_duplicate_id_has_both_lines(tmp_path, record, read):
    path = write_lines(tmp_path / "m.jsonl", record, record | {"id": "other"}, record)
    message = refusal(path, read)
    assert message.startswith(f"{path}:3: ")
    assert f"line 1 already has the id '{record['id']}'" in message


def test_pairs_and_utterances_are_not_confused(tmp_path):  # D75
    utterances = write_lines(tmp_path / "m.jsonl", UTTERANCE)
    pairs = write_lines(tmp_path / "p.jsonl", PAIR)
    assert refusal(utterances, read_pairs).startswith(f"{utterances}:1: ")
    assert "tools/build_gpt_prompt_pairs.py" in refusal(utterances, read_pairs)
    for read in (read_utterances, read_texts):
        assert refusal(pairs, read).startswith(f"{pairs}:1: ")


def test_features_of_the_predecessor_are_refused(tmp_path):
    paths = {"prompt_condition_path": "c/a.npy", "target_codes_path": "b.npy"}
    old_pair = {"id": "b__a", "target_id": "b", **paths}
    old_utterance = {"id": "a", "audio_path": "a.wav", "text": "ሀ", "codes_path": "codes/a.npy"}
    for record, read in ((old_pair, read_pairs), (old_utterance, read_utterances)):
        message = refusal(write_lines(tmp_path / "old.jsonl", record), read)
        assert "tools/preprocess_data.py" in message


def test_the_hours_of_a_manifest_are_those_of_its_durations_or_unknown(tmp_path: Path):
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text('{"text": "ሀ", "duration": 5400}\n\n{"text": "ለ", "duration": 1800}\n', "utf-8")
    assert read_hours(manifest) == 2
    manifest.write_text('{"text": "ሀ", "duration": 5400}\n{"text": "ለ"}\n', "utf-8")
    assert read_hours(manifest) is None
    manifest.write_text('{"text": "ሀ", "duration": -1}\n', "utf-8")
    with pytest.raises(UserError, match=r"manifest\.jsonl:1: duration is -1"):
        read_hours(manifest)


def test_the_provenance_of_a_text_survives_and_names_its_best_evidence(tmp_path):
    heard = Provenance(kind="heard", by=("a",), is_doubtful=True)
    agreed = Provenance(kind="heard", by=("a", "b"), disagreement=0.02, other="ሰላምታ")
    aligned = Provenance(kind="aligned", by=("a",), score=-0.4)
    reviewed = heard.model_copy(update={"is_reviewed": True})
    found = [None, heard, agreed, aligned, reviewed, Provenance(kind="given", is_reviewed=True)]
    utterances = [
        Utterance(str(number), tmp_path / "a.wav", "ሰላም", "s", 1.5, provenance=each)
        for number, each in enumerate(found)
    ]
    path = tmp_path / "m.jsonl"
    write_utterances(path, utterances)
    assert read_utterances(path) == utterances
    origins = [utterance.text_origin for utterance in utterances]
    assert origins == ["given", "heard", "agreed", "aligned", "reviewed", "reviewed"]
    assert [utterance.is_doubtful for utterance in utterances] == [False, True, False, False, False, False]
    assert len(read_texts(path)) == 5  # without the doubtful one


def test_repeated_ids_of_texts_have_one_warning(tmp_path, caplog):
    lines = [{"text": "ሰላም", "id": id} for id in ("a", "b", "a", "b", "c")]
    assert len(read_texts(write_lines(tmp_path / "m.jsonl", *lines))) == 5
    assert [("2 ids" in each, "a, b" in each) for each in caplog.messages] == [(True, True)]


@pytest.mark.parametrize("provenance", [{"kind": "guessed"}, {"kind": "heard", "disagreement": -1}, "heard"])
def test_an_unknown_provenance_is_an_error_with_its_line(tmp_path, provenance):
    path = write_lines(tmp_path / "m.jsonl", UTTERANCE, UTTERANCE | {"id": "b", "provenance": provenance})
    assert "m.jsonl:2" in refusal(path)
    assert "provenance" in refusal(path)
