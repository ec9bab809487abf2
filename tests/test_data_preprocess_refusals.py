"""Tests of indextts/data/preprocess.py: unreadable recordings and invalid inputs."""

import json
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from indextts.commands.terminal import to_argv
from indextts.data import preprocess as preprocess_module
from indextts.data.manifest import read_utterances
from indextts.errors import DISK_FULL, UserError
from tests.preprocess_project import command, make_project, run, spoil, write_model
from tools.preprocess_data import main


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def test_unreadable_recordings_are_listed_and_the_rest_is_encoded(project, caplog):
    wanted = spoil(project)
    result = run(project)
    assert {one.id: one.code for one in result.rejected} == wanted
    assert str(result).endswith(
        "17 encoded, 0 kept, 7 rejected (1 missing, 1 unreadable, 1 empty, 1 truncated, 1 not_finite, "
        "1 too_short, 1 too_long)"
    )
    rows = [json.loads(line) for line in (project / "out/rejected.jsonl").read_text().splitlines()]
    assert {row["id"]: row["code"] for row in rows} == wanted
    assert rows[0]["audio"] == str(project / "data/audio/0.wav")
    assert all(row["reason"] for row in rows)
    assert "3600.000 s" in rows[6]["reason"]
    assert "1.220 s" in rows[6]["reason"]
    written = read_utterances(project / "out/train_manifest.jsonl")
    written += read_utterances(project / "out/val_manifest.jsonl")
    assert len(written) == 17
    assert not {utterance.id for utterance in written} & wanted.keys()
    assert " a004: " in caplog.text  # its header is valid


def test_a_repaired_recording_is_encoded_by_the_next_run(project):
    whole = (project / "data/audio/3.wav").read_bytes()
    (project / "data/audio/3.wav").write_bytes(whole[:1000])
    assert [one.id for one in run(project).rejected] == ["b003"]
    (project / "data/audio/3.wav").write_bytes(whole)
    again = run(project)
    assert (again.num_encoded, again.num_kept, again.rejected) == (1, 23, [])
    assert not (project / "out/rejected.jsonl").exists()


@pytest.mark.long
def test_both_utterances_of_a_broken_recording_are_rejected(project):
    for number in (0, 1):
        soundfile.write(project / f"data/audio/{number}.wav", np.full(9600, np.inf), 24_000, subtype="FLOAT")
    assert [(one.id, one.code) for one in run(project).rejected] == [
        ("a000", "not_finite"),
        ("b001", "not_finite"),
    ]


@pytest.mark.long
def test_most_recordings_rejected_is_status_1_after_the_others_are_written(project, capsys):
    for number in range(13):
        (project / f"data/audio/{number}.wav").write_bytes(b"no audio")
    with pytest.raises(UserError, match=r"/out/rejected\.jsonl") as caught:
        main(to_argv(command(project, val_ratio=0)))
    assert caught.value.exit_status == 1
    assert "11 encoded, 0 kept, 13 rejected (13 unreadable)" in capsys.readouterr().out
    assert len(read_utterances(project / "out/train_manifest.jsonl")) > 0


def test_no_recording_left_is_status_1_with_the_reasons_written(project):
    for number in range(24):
        (project / f"data/audio/{number}.wav").unlink()
    with pytest.raises(UserError, match=r"24 rejected \(24 missing\)") as caught:
        run(project)
    assert caught.value.exit_status == 1
    assert len((project / "out/rejected.jsonl").read_text().splitlines()) == 24


def test_a_disk_without_enough_space_is_an_error_before_encoding(project, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(preprocess_module.shutil, "disk_usage", lambda folder: usage(1, 1, 0))
    with pytest.raises(UserError, match=r"24 utterances .*\d+\.\d+ kB.* 0 bytes") as caught:
        run(project)
    assert caught.value.exit_status == DISK_FULL


def test_a_missing_checkpoint_is_an_error_before_anything_is_written(project):
    (project / "model/gpt.pth").unlink()
    with pytest.raises(UserError, match=r"gpt\.pth"):
        run(project)
    assert not (project / "out").exists()


def test_a_checkpoint_that_does_not_match_is_an_error_before_anything_is_written(project):
    weights = torch.load(project / "model/gpt.pth", weights_only=True)
    torch.save({**weights, "gpt.h.1.ln_1.weight": torch.ones(16)}, project / "model/deeper.pth")
    with pytest.raises(UserError, match=r"gpt\.layers"):
        run(project, gpt_checkpoint=project / "model/deeper.pth")
    weights["emo_layer.bias"][0] = torch.nan
    torch.save(weights, project / "model/spoiled.pth")
    with pytest.raises(UserError, match=r"spoiled\.pth: .*emo_layer\.bias"):
        run(project, gpt_checkpoint=project / "model/spoiled.pth")
    assert not (project / "out").exists()


def test_the_manifest_in_the_output_folder_is_not_overwritten(project):
    run(project)
    with pytest.raises(UserError, match="--output-dir"):
        run(project, manifest=project / "out/train_manifest.jsonl")


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"start_mel_token": 3}, "start_mel_token"),
        ({"feature_dim": 512}, "feature_dim is 512, .* 1024"),
        (
            {"number_mel_codes": 2000, "start_mel_token": 1998, "stop_mel_token": 1999},
            "number_mel_codes .* 1998;",
        ),
    ],
)
def test_a_config_that_does_not_match_the_speech_encoder_is_refused(project, changes, what):
    write_model(project / "model", **changes)
    with pytest.raises(UserError, match=what):
        run(project)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_cuda_device_is_an_error(project):
    with pytest.raises(UserError, match="--device cuda: "):
        run(project, device="cuda")
