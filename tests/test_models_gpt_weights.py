import logging
from dataclasses import replace

import pytest
import torch

from benchmarks.workload import PUBLISHED
from demo.make_base_checkpoint import random_model
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.gpt.config import GPTConfig, config_for
from indextts.models.gpt.weights import ENCODERS, check_fit, empty_model, load_encoders, load_model
from indextts.models.weight_names import published_names
from indextts.training.optim import select_trained, weight_device
from tests.tiny_gpt import TINY, tiny_batch


def test_loaded_weights_are_an_exact_float32_copy():
    original = random_model(TINY, seed=3).half().float().eval()
    weights = {name: tensor.half() for name, tensor in original.state_dict().items()}
    model = load_model(TINY, weights, "gpt.pth").eval()
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    output, expected = model(tiny_batch()), original(tiny_batch())
    torch.testing.assert_close(output.mel_logits, expected.mel_logits, rtol=0, atol=0)


@pytest.mark.failure(6)
@pytest.mark.parametrize(
    ("config", "without", "message"),
    [
        (TINY, ("text_head.bias", "gpt.ln_f.weight"), r"\b2 of \d+ .*: gpt\.ln_f\.weight, text_head"),
        (replace(TINY, number_text_tokens=24), (), r".*text_embedding\.weight .*\(13, 16\).*\(25, 16\)"),
        (replace(TINY, layers=3), (), r".*2 blocks gpt\.h\.N.*gpt\.layers .*3; "),
    ],
    ids=["missing", "of another size", "of fewer layers"],
)
def test_weights_that_do_not_fit_the_config_are_named(
    config: GPTConfig, without: tuple[str, ...], message: str
):
    weights = random_model(TINY, seed=0).state_dict()
    for name in without:
        del weights[name]
    with pytest.raises(UserError, match=rf"^gpt\.pth: .*{message}"):
        load_model(config, weights, "gpt.pth")


def test_unexpected_weights_are_named_and_refused(caplog):
    weights = random_model(TINY, seed=0).state_dict()
    with pytest.raises(UserError, match=r"^gpt\.pth: 1 .*: vocoder\.weight; "):
        load_model(TINY, {**weights, "vocoder.weight": torch.zeros(1)}, "gpt.pth")
    assert caplog.messages == ["[Warn] Unexpected keys in checkpoint: ['vocoder.weight']"]


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_weight_that_is_not_finite_is_named_and_refused(value):
    weights = random_model(TINY, seed=0).state_dict()
    weights["gpt.h.1.mlp.c_fc.weight"][3, 5] = value
    for load in (load_model, load_encoders):
        if load is load_encoders:
            weights["emo_layer.weight"][0, 0] = value
        with pytest.raises(UserError, match=r"^gpt\.pth: 1 of \d+ .*: (gpt\.h\.1\.mlp\.c_fc|emo_layer)"):
            load(TINY, weights, "gpt.pth")


def test_a_smaller_text_table_fits_and_one_of_another_width_does_not():
    weights = random_model(TINY, seed=0).state_dict()
    check_fit(replace(TINY, number_text_tokens=24), weights, "gpt.pth")
    weights["text_head.weight"] = weights["text_head.weight"][:, 1:]
    with pytest.raises(UserError, match=r"text_head\.weight .*\(13, 15\).*\(25, 16\)"):
        check_fit(replace(TINY, number_text_tokens=24), weights, "gpt.pth")


@torch.inference_mode()
def test_the_encoders_alone_give_the_same_conditioning_and_no_other_weight_is_loaded():
    complete = random_model(TINY, seed=3).eval()
    weights = complete.state_dict()
    encoders = load_encoders(replace(TINY, number_text_tokens=99), weights, "gpt.pth")
    features = torch.randn(2, 20, TINY.feature_dim, generator=torch.Generator().manual_seed(0))
    for name in ("conditioning", "emotion"):
        found, expected = getattr(encoders, name)(features), getattr(complete, name)(features)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    loaded = {name for name, tensor in encoders.state_dict().items() if not tensor.is_meta}
    assert loaded == {name for name in weights if name.startswith(ENCODERS)}
    # float32 weights are not copied
    assert all(encoders.state_dict()[name].data_ptr() == weights[name].data_ptr() for name in loaded)


def test_a_training_puts_527_of_866_million_parameters_on_the_gpu():
    gpu = torch.device("cuda")
    model = empty_model(PUBLISHED)
    trained = select_trained(model, base_size=PUBLISHED.number_text_tokens)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    on_gpu = {name for name in model.state_dict() if weight_device(name, gpu) == gpu}
    assert sum(sizes.values()) == 865_980_639
    assert sum(sizes[name] for name in on_gpu) == 527_083_235
    assert on_gpu == set(trained.parameters)


def test_fine_tuned_variants_load_under_the_published_names(caplog):
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
        cleaned = published_names(variant)
    assert cleaned.keys() == weights.keys()
    skipped, adapters = caplog.messages
    assert "5 tensors" in skipped
    assert "inference_model.lm_head.0.weight" in skipped
    assert "1 LoRA tensor" in adapters
    load_model(TINY, variant, "gpt.pth")


@pytest.mark.parametrize(("own", "other"), [("2.0", "2.5"), ("2.5", "2.0")])
def test_the_weights_of_another_base_are_refused_with_status_3(own: str, other: str):
    weights = random_model(replace(TINY, base=other), seed=0).state_dict()
    with pytest.raises(UserError, match=rf"gpt\.pth: .*IndexTTS-{other}.*IndexTTS-{own}") as refusal:
        load_model(replace(TINY, base=own), weights, "gpt.pth")
    assert refusal.value.exit_status == RESUME_REFUSED


@pytest.mark.parametrize("wrapper", ["_fsdp_wrapped_module.", "module.", "_orig_mod.", "module._orig_mod."])
def test_the_name_of_a_wrapper_is_no_part_of_that_of_a_weight(wrapper: str):
    weights = random_model(replace(TINY, base="2.5"), seed=0).state_dict()
    wrapped = {
        f"{wrapper}{n.replace('gpt.h.0.', f'gpt.h.0.{wrapper}' if wrapper[0] == '_' else 'gpt.h.0.')}": t
        for n, t in weights.items()
    }
    config = config_for(TINY, published_names(wrapped))
    assert config.base == "2.5"
    loaded = load_model(config, wrapped, "gpt.pth").state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in weights.items())


def test_a_weight_with_two_names_is_refused():
    weights = random_model(TINY, seed=0).state_dict()
    weights["text_head.base_layer.bias"] = weights["text_head.bias"]
    with pytest.raises(UserError, match=r"text_head\.base_layer\.bias: "):
        published_names(weights)
