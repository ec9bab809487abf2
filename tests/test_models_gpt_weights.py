import logging
from dataclasses import replace

import pytest
import torch

from benchmarks.workload import PUBLISHED
from indextts.errors import UserError
from indextts.models.gpt.weights import (
    ENCODERS,
    check_fit,
    empty_model,
    load_encoders,
    load_model,
    random_model,
)
from indextts.models.weight_names import canonical_names
from indextts.training.optim import select_trained, weight_device
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


@pytest.mark.failure(6)
def test_weights_of_another_size_are_named_with_both_shapes():
    weights = random_model(TINY, seed=0).state_dict()
    with pytest.raises(UserError, match=r"text_embedding\.weight is \(13, 16\), expected \(25, 16\)"):
        load_model(replace(TINY, number_text_tokens=24), weights, "gpt.pth")


def test_unexpected_weights_are_named_and_refused(caplog):
    weights = random_model(TINY, seed=0).state_dict()
    with pytest.raises(UserError, match=r"^gpt\.pth: 1 weights are unexpected: vocoder\.weight; "):
        load_model(TINY, {**weights, "vocoder.weight": torch.zeros(1)}, "gpt.pth")
    assert caplog.messages == ["[Warn] Unexpected keys in checkpoint: ['vocoder.weight']"]


@pytest.mark.parametrize("layers", [1, 3])
def test_a_config_with_other_layers_than_the_file_is_refused_and_says_so(layers):
    weights = random_model(TINY, seed=0).state_dict()
    with pytest.raises(
        UserError,
        match=rf"^gpt\.pth: the checkpoint has 2 blocks gpt\.h\.N, gpt\.layers in the config says {layers}; ",
    ):
        load_model(replace(TINY, layers=layers), weights, "gpt.pth")


def test_a_config_with_other_conformer_blocks_is_refused_and_says_so():
    weights = random_model(TINY, seed=0).state_dict()
    config = replace(TINY, emo_condition_module=replace(TINY.emo_condition_module, num_blocks=2))
    with pytest.raises(UserError, match=r"gpt\.emo_condition_module\.num_blocks in the config says 2"):
        load_model(config, weights, "gpt.pth")


@pytest.mark.failure(5)
def test_every_misfit_goes_to_the_log_and_the_sentence_counts_them(caplog):
    weights = random_model(TINY, seed=0).state_dict()
    missing = [name for name in weights if name.startswith("gpt.h.0.")]
    others = {f"other.{number}": torch.zeros(1) for number in range(5)}
    given = {name: tensor for name, tensor in weights.items() if name not in missing} | others
    given["mel_head.bias"] = torch.zeros(3)
    with pytest.raises(UserError, match=r"other\.2 and 2 more; 1 weights do not fit") as caught:
        load_model(TINY, given, "gpt.pth")
    assert "\n" not in str(caught.value)
    assert all(any(name in line for line in caplog.messages) for name in [*missing, *others, "mel_head.bias"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_not_finite_is_named_and_refused(value):
    weights = random_model(TINY, seed=0).state_dict()
    weights["gpt.h.1.mlp.c_fc.weight"][3, 5] = value
    for load in (load_model, load_encoders):
        if load is load_encoders:
            weights["emo_layer.weight"][0, 0] = value
        with pytest.raises(
            UserError, match=r"weights hold NaN or infinity: (gpt\.h\.1\.mlp\.c_fc|emo_layer)"
        ):
            load(TINY, weights, "gpt.pth")


def test_large_weights_whose_sum_runs_over_are_finite():
    weights = random_model(TINY, seed=0).state_dict()
    weights["mel_head.bias"] = torch.full((10,), 3e38)
    assert torch.equal(load_model(TINY, weights, "gpt.pth").mel_head.bias, weights["mel_head.bias"])


def test_weights_of_whole_numbers_are_refused():
    weights = random_model(TINY, seed=0).state_dict()
    weights["mel_head.bias"] = weights["mel_head.bias"].to(torch.int8)
    with pytest.raises(UserError, match=r"no floating-point numbers: mel_head\.bias \(torch\.int8\)"):
        load_model(TINY, weights, "gpt.pth")


def test_a_text_table_that_is_to_grow_fits_and_one_of_another_width_does_not():
    weights = random_model(TINY, seed=0).state_dict()
    check_fit(replace(TINY, number_text_tokens=24), weights, "gpt.pth")
    weights["text_head.weight"] = weights["text_head.weight"][:, 1:]
    with pytest.raises(UserError, match=r"text_head\.weight is \(13, 15\), expected \(25, 16\)"):
        check_fit(replace(TINY, number_text_tokens=24), weights, "gpt.pth")


@torch.inference_mode()
def test_the_encoders_alone_give_the_same_conditioning_and_nothing_else_is_held():
    whole = random_model(TINY, seed=3).eval()
    weights = whole.state_dict()
    encoders = load_encoders(replace(TINY, number_text_tokens=99), weights, "gpt.pth")
    features = torch.randn(2, 20, TINY.feature_dim, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(encoders.conditioning(features), whole.conditioning(features), rtol=0, atol=0)
    torch.testing.assert_close(encoders.emotion(features), whole.emotion(features), rtol=0, atol=0)
    held = {name for name, tensor in encoders.state_dict().items() if not tensor.is_meta}
    assert held == {name for name in weights if name.startswith(ENCODERS)}
    # float32 weights are not even copied
    assert all(encoders.state_dict()[name].data_ptr() == weights[name].data_ptr() for name in held)


def test_each_weight_goes_to_the_device_that_is_asked_for_its_name():
    weights = random_model(TINY, seed=0).state_dict()
    asked = []

    def device_of(name):
        asked.append(name)
        return torch.device("cpu")

    load_model(TINY, weights, "gpt.pth", device_of)
    assert sorted(asked) == sorted(weights)


def test_a_training_puts_527_of_866_million_parameters_on_the_card():
    card = torch.device("cuda")
    model = empty_model(PUBLISHED)
    trained = select_trained(model, base_size=PUBLISHED.number_text_tokens)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    on_the_card = {name for name in model.state_dict() if weight_device(name, card) == card}
    assert sum(sizes.values()) == 865_980_639
    assert sum(sizes[name] for name in on_the_card) == 527_083_235
    assert on_the_card == set(trained.parameters)


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


def test_a_weight_that_is_there_under_two_names_is_refused():
    weights = random_model(TINY, seed=0).state_dict()
    weights["text_head.base_layer.bias"] = weights["text_head.bias"]
    with pytest.raises(
        UserError, match=r"text_head\.base_layer\.bias: the file holds these weights a second"
    ):
        canonical_names(weights)
