import io
import json
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.data.feature_store_writer import EncodedUtterance
from indextts.data.manifest import Utterance
from indextts.data.predecessor import OldFolder, find_moved
from indextts.errors import UserError
from indextts.text.tokenizer import Tokenizer
from tests.predecessor_folder import (
    MODEL_DIM,
    NUM_CODES,
    Row,
    num_frames,
    save_features,
    write_old_folder,
    write_rows,
)
from tests.tiny_run import CONFIG
from tests.tokenizers import AMHARIC, trained_model

LONGER = replace(CONFIG, max_mel_tokens=60)


def read(
    folder: Path, tokenizer: Tokenizer | None = None
) -> tuple[dict[str, tuple[Utterance, EncodedUtterance]], OldFolder]:
    old = OldFolder(folder, LONGER, tokenizer)
    return {utterance.id: (utterance, encoded) for utterance, encoded in old.utterances()}, old


def test_valid_features_are_read_unchanged(tmp_path):
    rows = write_old_folder(tmp_path)
    found, old = read(tmp_path)
    assert list(found) == [row["id"] for n, row in enumerate(rows) if n % 8] + [r["id"] for r in rows[::8]]
    assert (old.rejected, old.findings.counts) == ([], {})
    for row in rows:
        utterance, one = found[str(row["id"])]
        np.testing.assert_array_equal(one.codes, np.load(tmp_path / f"codes/{row['id']}.npy"))
        np.testing.assert_array_equal(one.condition, np.load(tmp_path / f"condition/{row['id']}.npy"))
        np.testing.assert_array_equal(one.emo_vec, np.load(tmp_path / f"emo_vec/{row['id']}.npy"))
        assert (utterance.text, utterance.speaker) == (row["text"], row["speaker"])
        assert utterance.duration_s == row["duration"]


@pytest.mark.parametrize("with_audio", [False, True])
def test_codes_of_padding_are_found_and_cut_off(tmp_path, with_audio):  # D1
    rows = write_old_folder(tmp_path, with_audio=with_audio)
    longest = max(int(str(row["code_len"])) for row in rows)
    for number, row in enumerate(rows):  # one batch: all have the codes of the longest
        save_features(tmp_path, str(row["id"]), longest, seed=number)
        row["code_len"] = longest
    write_rows(tmp_path, rows)
    found, old = read(tmp_path)
    assert len(found) == len(rows)
    slack = 0 if with_audio else 1
    padded = [row for row in rows if longest > predecessor_length(float(str(row["duration"]))) + 1 + slack]
    assert len(padded) > 8
    assert old.findings.counts == {"rows with codes of padding, cut off": len(padded)}
    for row in padded:
        codes = found[str(row["id"])][1].codes
        assert len(codes) == predecessor_length(float(str(row["duration"])))
        np.testing.assert_array_equal(codes, np.load(tmp_path / f"codes/{row['id']}.npy")[: len(codes)])


def predecessor_length(duration_s: float) -> int:
    return (1 + (round(16_000 * duration_s) - 400) // 160) // 2


def huge_array() -> bytes:
    """Return an array file of 1 kB that claims 3 TiB."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<i4", "fortran_order": False, "shape": (3 * 2**38,)}
    )
    return file.getvalue() + bytes(1000)


def damage(folder: Path, rows: list[Row]) -> dict[str, str]:
    """Damage each of the first rows in another way; return the expected code of each id."""
    ids = [str(row["id"]) for row in rows]

    def save(name: str, id: str, array: np.ndarray) -> None:
        np.save(folder / name / f"{id}.npy", array)

    codes = np.load(folder / f"codes/{ids[0]}.npy")
    condition = np.load(folder / f"condition/{ids[0]}.npy")
    (folder / f"codes/{ids[0]}.npy").unlink()
    (folder / f"condition/{ids[1]}.npy").unlink()
    (folder / f"emo_vec/{ids[2]}.npy").write_bytes(b"\x93NUMPY broken")
    save("codes", ids[3], codes.astype(np.float32))
    save("codes", ids[4], codes[None])
    save("condition", ids[5], condition[:2])
    save("condition", ids[6], np.where(condition == condition.max(), np.nan, condition))
    save("emo_vec", ids[7], np.full(MODEL_DIM, np.inf, np.float32))
    save("codes", ids[8], np.full(len(codes), NUM_CODES, np.int32))
    save("codes", ids[9], np.full(len(codes), -1, np.int32))
    save("codes", ids[10], codes[:10])
    rows[11]["text"] = " "
    del rows[12]["speaker"]
    rows[13]["duration"] = None
    rows[14]["duration"] = 0.05
    rows[15]["duration"] = 2.0
    save("codes", ids[15], np.zeros(num_frames(2.0), np.int32))
    np.save(folder / f"codes/{ids[16]}.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder / f"codes/{ids[17]}.npy").write_bytes(huge_array())
    kinds = """missing_file missing_file unreadable_file wrong_type wrong_shape wrong_shape
        not_finite not_finite codes_out_of_range codes_out_of_range codes_too_short
        missing_field missing_field unknown_length too_short too_long unreadable_file unreadable_file"""
    return dict(zip(ids, kinds.split(), strict=False))


def test_each_kind_of_corruption_is_found_and_valid_rows_are_not_reported(tmp_path):
    rows = write_old_folder(tmp_path, "a" * 30)
    wanted = damage(tmp_path, rows)
    rows[20]["code_len"] = 999  # D17
    write_rows(tmp_path, rows)
    found, old = read(tmp_path)
    assert {one["id"]: one["code"] for one in old.rejected} == wanted
    assert set(found) == {str(row["id"]) for row in rows} - wanted.keys()
    assert old.findings.counts["rows with the wrong number of codes"] > 1
    counts = {kind: num for kind, num in old.findings.counts.items() if kind.startswith("rows skipped")}
    assert counts == {f"rows skipped ({code})": n for code, n in Counter(wanted.values()).items()}


def test_invalid_lines_and_duplicate_ids_are_skipped_with_their_location(tmp_path):
    rows = write_old_folder(tmp_path)
    train = tmp_path / "train_manifest.jsonl"
    with train.open("a") as file:
        file.write('{"id": "cut o\n[1, 2]\n' + json.dumps(rows[1]) + "\n")
    (tmp_path / "val_manifest.jsonl").write_text(json.dumps(rows[2]) + "\n")
    found, old = read(tmp_path)
    assert len(found) == 14
    assert [(one["line"], one["code"]) for one in old.rejected] == [
        ("train_manifest.jsonl:15", "broken_line"),
        ("train_manifest.jsonl:16", "broken_line"),
        ("train_manifest.jsonl:17", "duplicate_id"),
        ("val_manifest.jsonl:1", "duplicate_id"),
    ]


def test_a_recording_that_is_not_the_encoded_one_is_found(tmp_path):  # D3
    rows = write_old_folder(tmp_path, with_audio=True)
    soundfile.write(tmp_path / f"audio/{rows[3]['id']}.wav", np.zeros(24_000 * 3), 24_000)
    (tmp_path / f"audio/{rows[4]['id']}.wav").write_bytes(b"no audio")
    found, old = read(tmp_path)
    codes = {one["id"]: one["code"] for one in old.rejected}
    assert codes == {rows[3]["id"]: "other_recording", rows[4]["id"]: "unreadable_recording"}
    assert len(found) == 14


def test_the_recording_gives_the_duration_if_the_manifest_does_not(tmp_path):
    rows = write_old_folder(tmp_path, with_audio=True)
    for row in rows:
        row["duration"] = None
    write_rows(tmp_path, rows)
    found, old = read(tmp_path)
    assert old.rejected == []
    assert found[str(rows[3]["id"])][0].duration_s == pytest.approx(0.539, abs=1e-4)


def test_text_ids_of_another_tokenizer_are_counted(tmp_path):  # D3
    tokenizer = Tokenizer(trained_model(AMHARIC), Path("new.model"))
    rows = write_old_folder(tmp_path)
    for number, row in enumerate(rows):
        row["text"] = f"ሠላም ለዓለም፤ {'በበሶበላጫላጩቤጨበጠሰለነውላለ'[number]}ላ ኧጿ ነው"  # with letters that are unknown
        ids = tokenizer.encode(str(row["text"]))
        if number in (2, 5):
            ids = ids[::-1]
        if number == 6:
            ids = [tokenizer.size + 3]
        np.save(tmp_path / f"text_ids/{row['id']}.npy", np.array(ids, np.int32))
    write_rows(tmp_path, rows)
    (tmp_path / f"text_ids/{rows[7]['id']}.npy").unlink()
    found, old = read(tmp_path, tokenizer)
    assert len(found) == 16  # text ids are not used, so nothing is lost
    assert old.findings.counts == {
        "rows with text ids of another tokenizer than new.model": 3,
        "rows without text ids to compare": 1,
    }


@pytest.mark.parametrize(
    "form",
    [
        "./codes/{id}.npy",
        "processed_data/codes/{id}.npy",
        "/home/somebody/gone/processed_data/codes/{id}.npy",
        "D:\\work\\processed data\\codes\\{id}.npy",
    ],
)
def test_paths_of_other_machines_are_resolved_in_the_folder(tmp_path, form):
    rows = write_old_folder(tmp_path / "moved")
    for row in rows:
        row["codes_path"] = form.format(id=row["id"])
    write_rows(tmp_path / "moved", rows)
    found, old = read(tmp_path / "moved")
    assert (len(found), old.rejected) == (16, [])


def test_absolute_paths_that_exist_are_followed(tmp_path):
    rows = write_old_folder(tmp_path / "old")
    shutil.move(tmp_path / "old/codes", tmp_path / "elsewhere")
    for row in rows:
        row["codes_path"] = str(tmp_path / f"elsewhere/{row['id']}.npy")
    write_rows(tmp_path / "old", rows)
    assert len(read(tmp_path / "old")[0]) == 16


def test_recordings_are_found_in_the_data_set_beside_the_folder(tmp_path):
    (tmp_path / "amharic_dataset/audio").mkdir(parents=True)
    (tmp_path / "processed_data").mkdir()
    wav = tmp_path / "amharic_dataset/audio/a.wav"
    wav.touch()
    find = partial(find_moved, tmp_path / "processed_data")
    assert find("D:\\x\\amharic_dataset\\audio\\a.wav") == wav
    assert find("../amharic_dataset/audio/a.wav") is not None
    assert find("/amharic_dataset/audio/absent.wav") is None
    assert find("bad\0name") is None


def test_a_folder_without_manifests_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"train_manifest\.jsonl nor val_manifest\.jsonl"):
        read(tmp_path)
