"""Tests of changed readings from the tokenizer file to text ids, resume and export."""

import json
import re
from pathlib import Path

from indextts.commands.normalizer_options import Reading
from indextts.commands.speech import ExportModel
from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.manifest import read_pairs
from indextts.data.pair_index import find_index
from indextts.runs.directory import CheckpointMeta
from indextts.speech.export.model_folder import export
from indextts.text.tokenizer import Tokenizer
from tests.tiny_run import TinyRun, describe_restore, make_tiny_run
from tools.extend_bpe import main as extend_bpe

HEADER = "written\tspoken\tmatch\n"


def write_manifest(run: TinyRun) -> Path:
    path = run.folder / "manifest.jsonl"
    lines = [
        {"audio": f"{n}.wav", "text": pair.target_text, "speaker": "s", "duration": 1.0, "id": str(n)}
        for n, pair in enumerate(read_pairs(run.folder / "train_pairs.jsonl"))
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return path


def store_reading(run: TinyRun, written: str, spoken: str) -> None:
    """Store one reading in the run's tokenizer, as in a terminal."""
    table = run.folder / "readings.tsv"
    table.write_text(f"{HEADER}{written}\t{spoken}\tword\n", encoding="utf-8")
    flags = [f"--manifests={write_manifest(run)}", f"--output-model={run.folder / 'tokenizer.model'}"]
    assert extend_bpe([*flags, f"--readings={table}", "--keep-pieces"]) == 0


def test_a_changed_reading_changes_its_texts_and_reaches_plan_run_and_export(tmp_path, capsys):
    run = make_tiny_run(tmp_path / "tiny")
    path, pairs = run.folder / "tokenizer.model", run.folder / "train_pairs.jsonl"
    texts = list(dict.fromkeys(pair.target_text for pair in read_pairs(pairs)))
    num_changed = sum("ነው" in re.findall(r"\w+", text) for text in texts)
    assert 1 < num_changed < len(texts)
    assert run.train(max_steps=2) == 0
    before = Tokenizer.load(path)
    old_index = find_index(pairs, before)

    store_reading(run, "ነው", "ኖ")
    assert f"{num_changed} of {len(texts)} are read differently" in capsys.readouterr().out
    now = Tokenizer.load(path)
    assert (now.pieces, now.vocabulary) == (before.pieces, before.vocabulary)
    assert now.options.readings == (Reading("ነው", "ኖ", "word"),)

    command = parse(Train, run.flags(resume="auto", max_steps=4))
    assert "normalizer readings: 0 -> 1 (ነው = ኖ)" in describe_restore(command)

    assert run.train(resume="auto", max_steps=4) == 0
    assert "   Epoch: 0, Step: 2, Batch: " in run.log  # the pieces are the same: all continues
    index = find_index(pairs, now)
    changed = [
        text
        for row, text in enumerate(texts)
        if old_index.pairs.tokens[row].tolist() != index.pairs.tokens[row].tolist()
    ]
    assert changed == [text for text in texts if "ነው" in re.findall(r"\w+", text)]
    assert CheckpointMeta.read(run.output / "latest.json").normalizer["readings"] == [["ነው", "ኖ", "word"]]
    exported = export_of(run, tmp_path / "model")
    assert exported.options == now.options
    assert exported.normalize("ስሜ ነው።") == "ስሜ ኖ."


def export_of(run: TinyRun, folder: Path) -> Tokenizer:
    checkpoint, config = run.output / "latest.pth", run.folder / "base/config.yaml"
    command = ExportModel(checkpoint=checkpoint, config=config, output_dir=folder)
    return Tokenizer.load(export(command).with_name("bpe.model"))
