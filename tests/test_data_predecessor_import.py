import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from indextts.commands.data import BuildPairs, ImportFeatures
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.predecessor import import_features
from indextts.errors import UserError
from indextts.models.gpt.weights import random_model
from indextts.runs.directory import read_metrics
from tests.predecessor_folder import save_features, write_old_folder, write_rows
from tests.preprocess_project import files_of
from tests.tiny_run import CONFIG, TinyRun, write_tokenizer
from tools import build_gpt_prompt_pairs, preprocess_data

LONGER = replace(CONFIG, max_mel_tokens=60)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Folder with base/, tokenizer.model, and processed_data/ of two speakers with 20 clips each."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.yaml").write_text(yaml.safe_dump({"gpt": asdict(LONGER)}))
    (base / "bpe.model").write_bytes(
        (Path(__file__).parent.parent / "demo/checkpoints/bpe.model").read_bytes()
    )
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
    parts = [read_utterances(project / f"out/{name}_manifest.jsonl") for name in ("train", "val")]
    return {utterance.id: utterance for part in parts for utterance in part}


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


def test_corrupt_rows_are_listed_with_their_reason(project, capsys):
    folder = project / "processed_data"
    rows = write_old_folder(folder, "ab" * 20)
    for number, row in enumerate(rows[:39]):  # D1: a batch padded to the last clip
        save_features(folder, str(row["id"]), 50, seed=number)
    np.save(folder / f"codes/{rows[3]['id']}.npy", np.full(20, 9, np.int32))
    (folder / f"emo_vec/{rows[4]['id']}.npy").unlink()
    argv = [f"--import-features={folder}", f"--output-dir={project / 'out'}"]
    assert preprocess_data.main([*argv, f"--config={project / 'base/config.yaml'}"]) == 0
    rejected = [json.loads(line) for line in (project / "out/rejected.jsonl").read_text().splitlines()]
    assert [(row["id"], row["code"]) for row in rejected] == [
        (rows[3]["id"], "codes_out_of_range"),
        (rows[4]["id"], "missing_file"),
    ]
    assert rejected[0]["line"] == "train_manifest.jsonl:3"
    assert rejected[0]["reason"].startswith("codes from 9 to 9,")
    printed = capsys.readouterr().out
    assert "2 rows " in printed
    assert "spk001_000001 (50 codes for 0.51 s, cut to 24)" in printed
    assert len(imported(project)) == 38
    assert imported(project)["spk001_000001"].num_codes == 24
    write_rows(folder, rows[5:])
    import_features(command(project))
    assert not (project / "out/rejected.jsonl").exists()


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
