import io
import json
import math
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

from demo.make_base_checkpoint import random_model
from indextts.commands.data import BuildPairs, ImportFeatures
from indextts.data.feature_store import FeatureStore
from indextts.data.feature_store_writer import EncodedUtterance
from indextts.data.manifest import Utterance
from indextts.data.predecessor import OldFolder, import_features
from indextts.errors import UserError
from indextts.runs.directory import read_metrics
from indextts.text.tokenizer import Tokenizer
from tests.preprocess_project import files_of, utterances_of
from tests.tiny_run import CONFIG, TinyRun, write_tokenizer
from tests.tokenizers import AMHARIC, trained_model
from tools import build_gpt_prompt_pairs

LONGER = replace(CONFIG, max_mel_tokens=60)
NUM_CODES = CONFIG.number_mel_codes - 2
NUM_LATENTS, MODEL_DIM = CONFIG.num_latents, CONFIG.model_dim

Row = dict[str, object]


def num_frames(duration_s: float) -> int:
    """Return the number of codes of a clip that the predecessor encodes alone, with half pairs of frames."""
    num_log_mel = 1 + (round(16_000 * duration_s) - 400) // 160
    return math.ceil(num_log_mel / 2)


def save_features(folder: Path, id: str, num_codes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {
        "codes": rng.integers(0, NUM_CODES, num_codes).astype(np.int32),
        "condition": rng.normal(size=(NUM_LATENTS, MODEL_DIM)).astype(np.float32),
        "emo_vec": rng.normal(size=MODEL_DIM).astype(np.float32),
        "text_ids": np.arange(2, 6, dtype=np.int32),
    }
    for name, array in arrays.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / f"{id}.npy", array)


def row_of(id: str, speaker: str, duration_s: float, num_codes: int, text: str) -> Row:
    return {
        "id": id,
        "audio_path": f"audio/{id}.wav",
        "text": text,
        "speaker": speaker,
        "language": "am",
        "duration": duration_s,
        "text_ids_path": f"text_ids/{id}.npy",
        "text_len": 4,
        "codes_path": f"codes/{id}.npy",
        "code_len": num_codes,
        "condition_path": f"condition/{id}.npy",
        "condition_len": NUM_LATENTS,
        "emo_vec_path": f"emo_vec/{id}.npy",
    }


def write_old_folder(
    folder: Path, speakers: str = "aaaaaaaabbbbbbbb", *, with_audio: bool = False
) -> list[Row]:
    """Write valid features of one clip per letter of `speakers`; every eighth is for validation."""
    rows = []
    for number, speaker in enumerate(speakers):
        id, duration_s = f"spk{ord(speaker) - 97:03d}_{number:06d}", 0.5 + 0.013 * number
        num_codes = num_frames(duration_s)
        save_features(folder, id, num_codes, seed=number)
        rows.append(row_of(id, speaker, duration_s, num_codes, f"ሰላም ለዓለም {number}"))
        if with_audio:
            (folder / "audio").mkdir(exist_ok=True)
            soundfile.write(folder / f"audio/{id}.wav", np.zeros(round(24_000 * duration_s)), 24_000)
    write_rows(folder, rows)
    (folder / "stats.json").write_text(json.dumps({"total": len(rows), "tokenizer": "old.model"}))
    return rows


def write_rows(folder: Path, rows: list[Row]) -> None:
    """Write both manifests; every eighth row is for validation."""
    for name, part in (("train", [row for number, row in enumerate(rows) if number % 8]), ("val", rows[::8])):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in part]
        (folder / f"{name}_manifest.jsonl").write_text("".join(lines), encoding="utf-8")


def read(
    folder: Path, tokenizer: Tokenizer | None = None
) -> tuple[dict[str, tuple[Utterance, EncodedUtterance]], OldFolder]:
    old = OldFolder(folder, LONGER, tokenizer)
    return {utterance.id: (utterance, encoded) for utterance, encoded in old.utterances()}, old


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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Folder with base/, tokenizer.model, and processed_data/ of two speakers with 20 clips each."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.yaml").write_text(yaml.safe_dump({"gpt": asdict(LONGER)}))
    (base / "bpe.model").write_bytes((Path(__file__).parent / "base_2.0/bpe.model").read_bytes())
    torch.save(random_model(LONGER, seed=0).state_dict(), base / "gpt.pth")
    write_tokenizer(tmp_path / "tokenizer.model", num_appended=320)
    write_old_folder(tmp_path / "processed_data", "ab" * 20)
    return tmp_path


def command(project: Path, **changes: object) -> ImportFeatures:
    settings: dict[str, object] = {
        "import_features": project / "processed_data",
        "output_dir": project / "out",
        "config": project / "base/config.yaml",
        "latents": "float32",
    }
    return ImportFeatures.model_validate(settings | changes)


def imported(project: Path) -> dict[str, Utterance]:
    return {utterance.id: utterance for utterance in utterances_of(project / "out")}


def test_imported_features_are_those_of_the_folder(project):
    result = import_features(command(project))
    assert (result.num_train, result.num_val, result.num_rejected, result.findings) == (36, 4, 0, [])
    for id, utterance in imported(project).items():
        assert utterance.features is not None
        assert utterance.features_key is not None
        store, key = FeatureStore.open(utterance.features), utterance.features_key
        for name, found in (
            ("codes", store.codes(key)),
            ("condition", store.condition(key)),
            ("emo_vec", store.emo_vec(key)),
        ):
            np.testing.assert_array_equal(found, np.load(project / f"processed_data/{name}/{id}.npy"))
    assert store.info.is_imported
    assert not (project / "out/rejected.jsonl").exists()


def test_importing_twice_changes_nothing_and_new_rows_are_added(project):
    import_features(command(project))
    before = files_of(project / "out")
    import_features(command(project))
    assert files_of(project / "out") == before
    rows = write_old_folder(project / "processed_data", "ab" * 22)
    assert import_features(command(project)).num_train == len(rows) - 4
    store_files = {name: content for name, content in before.items() if "shard_" in name}
    assert store_files.items() <= files_of(project / "out").items()


@pytest.mark.long
def test_imported_features_are_paired_and_trained_on_with_a_warning(project):
    import_features(command(project))
    for split in ("train", "val"):
        pairs = BuildPairs(
            manifest=project / f"out/{split}_manifest.jsonl", output=project / f"{split}_pairs.jsonl"
        )
        assert build_gpt_prompt_pairs.main([f"--manifest={pairs.manifest}", f"--output={pairs.output}"]) == 0
    run = TinyRun(project)
    assert run.train(max_steps=2, epochs=1) == 0
    assert re.search(r"\[Warn\] .*another program", run.log)
    assert [
        line["step"] for line in read_metrics(run.output / "metrics.jsonl") if line["kind"] == "train"
    ] == [2]


def test_imports_of_two_folders_are_never_mixed(project):
    import_features(command(project))
    one = {utterance.features for utterance in imported(project).values()}
    (project / "processed_data").rename(project / "renamed")
    import_features(command(project, import_features=project / "renamed"))
    assert one.isdisjoint({utterance.features for utterance in imported(project).values()})


def test_mistakes_are_errors_with_flags_and_paths(project):
    with pytest.raises(UserError, match=r"--output-dir .*processed_data"):
        import_features(command(project, output_dir=project / "processed_data"))
    with pytest.raises(UserError, match=r"base: .*train_manifest\.jsonl"):
        import_features(command(project, import_features=project / "base"))
    (project / "processed_data/condition").rename(project / "processed_data/gone")
    with pytest.raises(UserError, match=r"none of 40 rows .* condition_path"):
        import_features(command(project))
    assert len((project / "out/rejected.jsonl").read_text().splitlines()) == 40
    assert not (project / "out/train_manifest.jsonl").exists()
