import dataclasses

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from indextts.models.gpt.weights import random_model
from tests import conformance
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


@pytest.mark.parametrize(
    ("name", "num_arrays"),
    [
        ("codec_a", 8),
        ("codec25_a", 86),
        ("tokenizer25", 40),
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
def test_the_other_vectors_are_reproduced(shared, capsys, name, num_arrays):
    assert conformance.main([str(shared / "vectors" / name)]) == 0
    assert f"{num_arrays} arrays compared, 0 of them differ or are unknown" in capsys.readouterr().out
