import dataclasses

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from indextts.models.gpt.weights import random_model
from tests.conformance import compared
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


@pytest.mark.parametrize(
    ("name", "num_arrays"),
    [
        ("gpt_a", 71),
        ("gpt25_a", 77),
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
def test_the_reference_vectors_are_reproduced(shared, name, num_arrays):
    found = compared(shared / "vectors" / name)
    assert {array: problem for array, problem in found.items() if problem} == {}
    assert len(found) == num_arrays


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mystery": np.zeros(3)}, "unknown"),
        ({"text_loss": np.float32(99)}, "error"),
        ({"text_loss": np.float32("nan")}, "error"),
        ({"emo_raw": np.zeros((1, 2))}, "shape (2, 10), expected (1, 2)"),
        ({"grad_names": np.array(["mel_head.bias"])}, "shape"),
    ],
)
def test_an_array_that_differs_or_is_unknown_is_named(tmp_path, changes, problem):
    [name] = changes
    assert compared(write_folder(tmp_path, **changes))[name].startswith(problem)
