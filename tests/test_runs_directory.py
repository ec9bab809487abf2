"""Tests of indextts/runs/directory.py: the folder that trainer and page share."""

from pathlib import Path

import pytest

from indextts.runs.directory import CheckpointMeta, checkpoints, read_metrics
from indextts.system.files import link_or_copy
from tests.checkpoint_files import save


def test_a_checkpoint_without_its_meta_file_does_not_count(tmp_path: Path):
    save(tmp_path, 1)
    (tmp_path / "model_step9.pth").write_bytes(b"half a save")
    assert {path.name for path, _ in checkpoints(tmp_path)} == {"latest.pth", "model_step1.pth"}


@pytest.mark.failure(55)
def test_the_later_line_of_a_replayed_step_counts(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"kind": "train", "part": 1, "step": 10, "mel_loss": 5.0}\n'
        '{"kind": "train", "part": 1, "step": 20, "mel_loss": 4.0}\n'
        '{"kind": "train", "part": 1, "st\n'
        '{"kind": "train", "part": 1, "step": 20, "mel_loss": 3.0}\n'
        '{"kind": "train", "part": 2, "step": 10, "mel_loss": 2.0}\n'
    )
    assert [line["mel_loss"] for line in read_metrics(path)] == [5.0, 3.0, 2.0]


def test_lines_after_the_step_of_a_resume_are_dropped(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"kind": "start", "part": 1, "step": 0}\n'
        '{"kind": "train", "part": 1, "step": 10, "mel_loss": 5.0}\n'
        '{"kind": "val", "part": 1, "step": 15, "mel_loss": 4.5}\n'
        '{"kind": "train", "part": 1, "step": 20, "mel_loss": 4.0}\n'
        '{"kind": "start", "part": 1, "step": 10}\n'
        '{"kind": "train", "part": 1, "step": 30, "mel_loss": 3.0}\n'
        '{"kind": "start", "part": 2, "step": 0}\n'
    )
    assert [(line["kind"], line["step"]) for line in read_metrics(path)] == [
        ("start", 0),
        ("train", 10),
        ("start", 10),
        ("train", 30),
        ("start", 0),
    ]


@pytest.mark.parametrize("text", ["[]", '{"step": "x"}', '{"format_version": 2}', "\x00" * 100])
def test_an_invalid_meta_file_is_a_value_error_with_a_reason(tmp_path: Path, text: str):
    (tmp_path / "model_step3.json").write_text(text)
    with pytest.raises(ValueError, match=r"model_step3\.json: \w"):
        CheckpointMeta.read(tmp_path / "model_step3.json")


def test_a_link_to_a_symbolic_link_is_a_link_to_its_target(tmp_path: Path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "blobs/weights").write_bytes(b"weights")
    (tmp_path / "snapshots/gpt.pth").symlink_to("../blobs/weights")  # as the hub's cache does
    link_or_copy(tmp_path / "snapshots/gpt.pth", tmp_path / "gpt.pth")
    assert (tmp_path / "gpt.pth").read_bytes() == b"weights"
