import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from indextts.models.gpt.weights import random_model
from tests import conformance
from tests.reference_vectors import read_vectors
from tests.tiny_gpt import TINY, tiny_batch


def write_folder(folder, **changes):
    """Vectors of a tiny random model, with widths that its config.yaml does not state."""
    generator = torch.Generator().manual_seed(1)
    model = random_model(TINY, seed=0).eval()
    weights = model.state_dict()
    weights["conditioning_encoder.embed.pos_enc.pe"] = model.conditioning_encoder.embed.pos_enc.pe.bfloat16()
    save_file(weights, folder / "weights.safetensors")
    # A field with a default is an attribute of its class: a width that the published code fixes.
    stated = {key: value for key, value in dataclasses.asdict(TINY).items() if not hasattr(type(TINY), key)}
    (folder / "config.yaml").write_text(yaml.safe_dump({"gpt": stated, "overrides": {"anything": 12}}))
    feat = torch.randn(2, 9, TINY.feature_dim, generator=generator)
    lengths = torch.tensor([9, 6])
    batch = {name: value.numpy() for name, value in vars(tiny_batch()).items() if value is not None}
    model.load_state_dict(weights)
    arrays = batch | {
        "feat": feat.numpy(),
        "feat_lens": lengths.numpy(),
        "emo_feat": feat.numpy(),
        "emo_feat_lens": lengths.numpy(),
        "condition": model.conditioning(feat, lengths).detach().numpy(),
        "emo_vec": model.emotion(feat, lengths).detach().numpy(),
    }
    np.savez(folder / "io.npz", **(arrays | changes))
    return folder


def test_the_reference_vectors_are_reproduced(shared):
    checks = conformance.check_folder(shared / "vectors" / "gpt_a")
    assert [check for check in checks if check.agrees is False] == []
    assert sum(check.agrees is True for check in checks) == 71


def test_the_reference_vectors_of_2_5_are_reproduced(shared):
    checks = conformance.check_folder(shared / "vectors" / "gpt25_a")
    assert [check for check in checks if check.agrees is False] == []
    assert sum(check.agrees is True for check in checks) == 77


def test_widths_that_the_config_does_not_state_come_from_the_weights(tmp_path, capsys):
    folder = write_folder(tmp_path)
    assert read_vectors(folder).config == TINY
    assert conformance.main([str(folder)]) == 0
    assert "2 arrays compared, 0 of them differ or are unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"mystery": np.zeros(3)}, "unknown: no rule says what this array is"),
        ({"text_loss": np.float32(99)}, "FAIL"),
        ({"text_loss": np.float32("nan")}, "FAIL"),
        ({"emo_raw": np.zeros((1, 2))}, "FAIL shape (2, 10), expected (1, 2)"),
        ({"grad_names": np.array(["mel_head.bias"])}, "FAIL"),
    ],
)
def test_an_array_that_differs_or_is_unknown_fails(tmp_path, capsys, changes, verdict):
    assert conformance.main([str(write_folder(tmp_path, **changes))]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.split()[0] in changes)
    assert verdict in line


def test_a_folder_of_an_unknown_kind_is_reported_as_not_covered(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("name: x\nvocoder: {channels: 3}\n")
    assert conformance.main([str(tmp_path)]) == 1
    assert "not covered: vocoder; only folders of gpt or semantic_codec" in capsys.readouterr().out


def test_the_codec_vectors_are_reproduced(shared, capsys):
    assert conformance.main([str(shared / "vectors/codec_a")]) == 0
    assert "8 arrays compared, 0 of them differ or are unknown" in capsys.readouterr().out


def test_the_codec_vectors_of_2_5_are_reproduced(shared, capsys):
    assert conformance.main([str(shared / "vectors/codec25_a")]) == 0
    assert "86 arrays compared, 0 of them differ or are unknown" in capsys.readouterr().out


def test_a_codec_array_that_differs_or_is_unknown_fails(shared, tmp_path, capsys):
    for name in ("config.yaml", "weights.safetensors"):
        shutil.copy(shared / "vectors/codec_a" / name, tmp_path)
    arrays = dict(np.load(shared / "vectors/codec_a/io.npz"))
    codes = (arrays["codes"] + 1) % 64
    np.savez(tmp_path / "io.npz", **(arrays | {"codes": codes, "mystery": codes}))
    assert conformance.main([str(tmp_path)]) == 1
    report = capsys.readouterr().out
    assert "4 of them differ or are unknown" in report  # codes and the two embeddings made from them
    assert "unknown: no rule says what this array is" in report


@pytest.mark.parametrize(
    ("name", "num_arrays"),
    [
        ("length_regulator_a", 21),
        ("dit_a", 39),
        ("cfm_a", 20),
        ("s2mel_a", 8),
        ("s2mel25_a", 19),
        ("campplus_a", 22),
        ("mel_a", 9),
        ("fbank_a", 12),
        ("bigvgan_a", 18),
    ],
)
def test_the_acoustic_vectors_are_reproduced(shared, capsys, name, num_arrays):
    assert conformance.main([str(shared / "vectors" / name)]) == 0
    assert f"{num_arrays} arrays compared, 0 of them differ or are unknown" in capsys.readouterr().out


def test_the_reference_texts_of_the_tokenizer_of_2_5_are_reproduced(shared, capsys):
    assert conformance.main([str(shared / "vectors/tokenizer25")]) == 0
    assert "40 arrays compared, 0 of them differ or are unknown" in capsys.readouterr().out


def test_reference_texts_with_other_ids_fail(shared, tmp_path, capsys):
    folder = tmp_path / "tokenizer25"
    shutil.copytree(shared / "vectors/tokenizer25", folder, copy_function=shutil.copyfile)
    for name in ("cases", "frontend"):
        path = folder / f"{name}.json"
        cases = json.loads(path.read_text(encoding="utf-8"))
        cases[5]["small" if name == "cases" else "ids"] = [1]
        path.chmod(0o600)
        path.write_text(json.dumps(cases), encoding="utf-8")
    assert conformance.main([str(folder)]) == 1
    assert ", 2 of them differ or are unknown" in capsys.readouterr().out


def test_acoustic_arrays_that_differ_or_are_unknown_fail(shared, tmp_path, capsys):
    for name in ("config.yaml", "weights.safetensors"):
        shutil.copy(shared / "vectors/cfm_a" / name, tmp_path)
    arrays = dict(np.load(shared / "vectors/cfm_a/io.npz"))
    moved = arrays["main_out"] + 1e-3 * np.abs(arrays["main_out"]).max()
    np.savez(tmp_path / "io.npz", **(arrays | {"main_out": moved, "mystery": moved}))
    assert conformance.main([str(tmp_path)]) == 1
    assert "2 of them differ or are unknown" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["noise", "ref_mel"])
def test_an_acoustic_folder_without_an_input_is_a_one_line_error(shared, tmp_path, capsys, missing):
    for name in ("config.yaml", "weights.safetensors"):
        shutil.copy(shared / "vectors/s2mel_a" / name, tmp_path)
    arrays = dict(np.load(shared / "vectors/s2mel_a/io.npz"))
    del arrays[missing]
    np.savez(tmp_path / "io.npz", **arrays)
    assert conformance.main([str(tmp_path)]) == 2
    assert f"no array {missing}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["config.yaml", "weights.safetensors", "io.npz"])
@pytest.mark.parametrize("content", [None, b"", b"broken: [\x00"])
def test_a_missing_or_corrupt_file_is_a_one_line_error_with_status_2(tmp_path, capsys, name, content):
    folder = write_folder(tmp_path)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    assert conformance.main([str(folder)]) == 2
    error = capsys.readouterr().err
    assert name in error
    assert error.count("\n") == 1
