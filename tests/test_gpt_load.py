import logging
from dataclasses import replace

import pytest
import torch

from indextts.errors import UserError
from indextts.gpt.initialise import random_model
from indextts.gpt.load import canonical_names, load_model
from tests.tiny_gpt import TINY, tiny_batch


def test_loaded_weights_are_an_exact_float32_copy():
    original = random_model(TINY, seed=3).half().float().eval()
    weights = {name: tensor.half() for name, tensor in original.state_dict().items()}
    model = load_model(TINY, weights, "gpt.pth").eval()
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    output, expected = model(tiny_batch()), original(tiny_batch())
    torch.testing.assert_close(output.mel_logits, expected.mel_logits, rtol=0, atol=0)


def test_training_the_model_leaves_the_given_weights_alone():
    weights = random_model(TINY, seed=3).state_dict()
    before = weights["mel_head.bias"].clone()
    with torch.no_grad():
        load_model(TINY, weights, "gpt.pth").mel_head.bias.add_(1)
    assert torch.equal(weights["mel_head.bias"], before)


def test_missing_weights_are_counted_and_named():
    weights = random_model(TINY, seed=0).state_dict()
    for name in ("text_head.bias", "gpt.ln_f.weight"):
        del weights[name]
    with pytest.raises(
        UserError, match=r"^gpt\.pth: 2 of \d+ weights are missing: gpt\.ln_f\.weight, text_head"
    ):
        load_model(TINY, weights, "gpt.pth")


def test_weights_of_another_size_are_named_with_both_shapes():
    weights = random_model(TINY, seed=0).state_dict()
    with pytest.raises(UserError, match=r"text_embedding\.weight is \(13, 16\), expected \(25, 16\)"):
        load_model(replace(TINY, number_text_tokens=24), weights, "gpt.pth")


def test_unexpected_weights_are_warned_about_and_ignored(caplog):
    weights = random_model(TINY, seed=0).state_dict()
    load_model(TINY, {**weights, "vocoder.weight": torch.zeros(1)}, "gpt.pth")
    assert caplog.messages == ["[Warn] Unexpected keys in checkpoint: ['vocoder.weight']"]


def test_variants_of_fine_tuners_load_as_the_published_names(caplog):
    weights = random_model(TINY, seed=0).state_dict()
    variant = {
        name.replace("c_attn.weight", "c_attn.base_layer.weight"): tensor for name, tensor in weights.items()
    }
    extra = (
        "inference_model.lm_head.0.weight",
        "gpt.wte.weight",
        "gpt.h.0.attn.bias",
        "gpt.h.1.attn.masked_bias",
        "gpt.h.0.attn.c_attn.lora_A.default.weight",
    )
    variant.update({name: torch.zeros(1) for name in extra})
    with caplog.at_level(logging.INFO):
        cleaned = canonical_names(variant)
    assert cleaned.keys() == weights.keys()
    assert caplog.messages[0].startswith("5 tensors are no weights of the GPT and are left out: ")
    assert caplog.messages[1] == "1 LoRA tensors are left out: only the base weights are loaded"
    load_model(TINY, variant, "gpt.pth")
