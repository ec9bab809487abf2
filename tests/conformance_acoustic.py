"""Comparison of the acoustic model with its reference vectors: name and value of every array.

A folder's kind is its section in config.yaml; in a folder with a section s2mel, the arrays show which part of
the model they belong to.

Axes: B rows, T time, D width.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from indextts.features import mel_spectrogram as front_end
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig
from indextts.features.semantic_codec import HalvingCodec, SemanticCodecConfig, without_weight_norm
from indextts.features.weights import fill_weights
from indextts.speech.synthesis.bases import AcousticPath
from indextts.speech.synthesis.bigvgan import BigVGAN
from indextts.speech.synthesis.config import BigVGANConfig, FlowConfig, LengthRegulatorSection, S2MelConfig
from indextts.speech.synthesis.dit import DiT, rotary_table
from indextts.speech.synthesis.s2mel import (
    FlowMatching,
    LengthRegulator,
    MelTarget,
    S2Mel,
    SolverSettings,
    target_frames,
)
from tests.reference_vectors import Arrays, folder_kind, read_arrays

Results = Iterator[tuple[str, Any]]

# Arrays that are given, per kind; all others are results.
INPUTS_OF_KIND = {
    "length_regulator": {"up_x", "up_ylens", "down_x", "down_ylens", "batch_x", "batch_ylens"}
    | {"near_x", "near_ylens", "eps_groupnorm_in"},
    "dit": {"x", "prompt_x", "x_lens", "t", "style", "cond", "eps_in"},
    "cfm": {"mu", "prompt", "style", "x_lens"}
    | {f"{run}_{what}" for run in ("main", "nocfg", "cfg05") for what in ("noise", "settings")},
    "s2mel": {"latent", "code_embeddings", "S_ref", "ref_mel", "style", "code_lens", "noise"},
    "s2mel of 2.5": {"raw_codes", "spk_cond_emb", "ref_mel", "style"}
    | {f"{run}_{what}" for run in ("d0p8", "d1p0", "d1p25") for what in ("factor", "noise")},
    "campplus": {"x"},
    "mel": {"wave"},
    "fbank": {"wave_22k"},
    "bigvgan": {"mel"},
}


def read_acoustic(folder: Path) -> tuple[str, Arrays]:
    """The kind of a folder and its arrays."""
    kind, arrays = folder_kind(folder).split(",")[0], read_arrays(folder)
    if kind == "s2mel" and "raw_codes" in arrays:
        kind = "s2mel of 2.5"
    elif kind == "s2mel" and "latent" not in arrays:
        kind = "cfm" if "mu" in arrays else "dit"
    return kind, arrays


@torch.no_grad()
def acoustic_results(folder: Path, kind: str, arrays: Arrays) -> dict[str, Any]:
    """Name and value of every array of a folder that can be reproduced."""
    config = yaml.safe_load((folder / "config.yaml").read_bytes())
    return dict(
        RESULTS_OF_KIND[kind](
            folder, config, {name: torch.from_numpy(array) for name, array in arrays.items()}
        )
    )


def regulator_results(folder: Path, config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    section = LengthRegulatorSection.model_validate(config["length_regulator"])
    regulator = loaded(LengthRegulator(section), folder)
    with recorded(regulator) as seen:
        yield "up_out", regulator(arrays["up_x"], arrays["up_ylens"])
    yield "up_proj", seen["content_in_proj"]
    yield "up_interp", regulator.stretch(arrays["up_x"], int(arrays["up_ylens"]))
    yield from ((f"up_model_{i}", seen[f"model.{i}"]) for i in range(len(regulator.model)))
    for name in ("down", "batch", "near"):
        yield f"{name}_out", regulator(arrays[f"{name}_x"], arrays[f"{name}_ylens"])
    yield "batch_sample1_alone_out", regulator(arrays["batch_x"][1:2], arrays["batch_ylens"][1:2])
    yield "eps_groupnorm_out", regulator.model[1](arrays["eps_groupnorm_in"])


def dit_results(folder: Path, config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    dit = loaded(DiT(FlowConfig.model_validate(config["s2mel"])), folder)
    x, prompt, lengths, t, style, cond = (
        arrays[name] for name in ("x", "prompt_x", "x_lens", "t", "style", "cond")
    )
    with recorded(dit) as seen:
        yield "out", dit(x, prompt, lengths, t, style, cond)
    yield "t_freq_emb", dit.t_embedder.waves(t)
    sizes = dit.transformer.layers[0].attention
    head_dim = sizes.wo.in_features // sizes.num_heads
    yield from zip(("rope_cos", "rope_sin"), rotary_table(x.shape[2], head_dim, x.device), strict=True)
    names = {"t1": "t_embedder", "t2": "t_embedder2", "cond_proj": "cond_projection"}
    names |= {"merged": "cond_x_merge_linear", "transformer_out": "transformer", "conv1_out": "conv1"}
    names |= {"skip_linear_out": "skip_linear", "wavenet_cond": "wavenet.cond_layer"}
    names |= {"wavenet_in0": "wavenet.in_layers.0", "wavenet_rs0": "wavenet.res_skip_layers.0"}
    names |= {"wavenet_out": "wavenet", "res_projection_out": "res_projection"}
    names |= {"final_norm": "final_layer.norm_final", "final_layer_out": "final_layer"}
    first = "transformer.layers.0"
    names |= {f"layer0_{part}": f"{first}.{part}" for part in ("attention", "feed_forward")}
    names |= {f"layer0_{part}": f"{first}.{part}" for part in ("attention_norm", "ffn_norm")}
    names |= {"layer0_wqkv": f"{first}.attention.wqkv"}
    for number in range(len(dit.transformer.layers)):
        names[f"layer{number}_out"] = f"transformer.layers.{number}"
        names[f"layer{number}_skip_in"] = f"transformer.layers.{number}.skip_in_linear"
    yield from ((name, seen[module]) for name, module in names.items() if module in seen)
    n = int(lengths[1])
    yield (
        "sample1_alone_out",
        dit(x[1:, :, :n], prompt[1:, :, :n], lengths[1:], t[1:], style[1:], cond[1:, :n]),
    )
    alone = (x[:1], prompt[:1], lengths[:1], t[:1], style[:1], cond[:1])
    empty = (x[:1], 0 * prompt[:1], lengths[:1], t[:1], 0 * style[:1], 0 * cond[:1])
    yield "null_out_sample0", dit(*empty)
    hidden = dit.merge(x[:1], 0 * prompt[:1], 0 * style[:1], 0 * dit.cond_projection(cond[:1]))
    yield "mask_content_out_sample0", dit.from_merged(hidden, x[:1], lengths[:1], t[:1])
    rows = [torch.cat([a, b]) for a, b in zip(alone, empty, strict=True)]
    yield "stacked_out", dit(*rows[:2], lengths[:1], *rows[3:])
    for n in (1, 2, 3):
        short = (x[:1, :, -n:], prompt[:1, :, :n], torch.tensor([n]), t[:1], style[:1], cond[:1, :n])
        yield f"short{n}_out", dit(*short)
    yield (
        "eps_adaptive_norm_out",
        dit.transformer.layers[0].attention_norm(arrays["eps_in"], seen["t_embedder"]),
    )
    yield "eps_final_norm_out", dit.final_layer.norm_final(arrays["eps_in"])


def cfm_results(folder: Path, config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    flow = loaded(FlowMatching(FlowConfig.model_validate(config["s2mel"])), folder)
    for run in ("main", "nocfg", "cfg05"):
        steps, rate, temperature = arrays[f"{run}_settings"].tolist()
        calls: list[tuple[Any, Tensor]] = []
        hook = flow.estimator.register_forward_hook(lambda _, given, out, to=calls: to.append((given, out)))
        yield (
            f"{run}_out",
            flow(
                arrays["mu"],
                arrays["prompt"],
                arrays["style"],
                arrays[f"{run}_noise"],
                SolverSettings(int(steps), rate, temperature),
            ),
        )
        hook.remove()
        yield f"{run}_t", torch.stack([given[3][0] for given, _ in calls])
        for number, (given, out) in enumerate(calls, start=1):
            yield f"{run}_x_in_step{number}", given[0]
            yield f"{run}_estimator_step{number}", out


def s2mel_results(folder: Path, config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    section = S2MelConfig.model_validate(config["s2mel"])
    model = loaded(S2Mel(section, arrays["latent"].shape[2]), folder)
    yield "gpt_layer_out", model.gpt_layer(arrays["latent"])
    content = model.content(arrays["code_embeddings"], arrays["latent"])
    yield "S_infer", content
    yield "target_lengths", [target_frames(int(n)) for n in arrays["code_lens"]]
    prompt = model.stretched(arrays["S_ref"], arrays["ref_mel"].shape[2])
    stretched = model.stretched(content, target_frames(content.shape[1]))
    yield from {
        "prompt_condition": prompt,
        "cond": stretched,
        "cat_condition": torch.cat([prompt, stretched], 1),
    }.items()
    conditions = (arrays["ref_mel"], arrays["style"], arrays["noise"])
    yield "mel_full", model.cfm(torch.cat([prompt, stretched], 1), *conditions, SolverSettings())
    yield "mel", model.mels([MelTarget(prompt, content, *conditions)], SolverSettings())[0]


def decoding_s2mel_results(folder: Path, config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    """From codes to mel as in 2.5; the folder has no gpt_layer."""
    weights = load_file(folder / "weights.safetensors")
    given = {name: weights[name] for name in weights if not name.startswith("semantic_codec.")}
    model = S2Mel(S2MelConfig.model_validate(config["s2mel"]), 1)
    given |= {f"gpt_layer.{name}": tensor for name, tensor in model.gpt_layer.state_dict().items()}
    plain = without_weight_norm(given)
    fill_weights(model, plain, "s2mel", "give a complete folder", torch.device("cpu"))
    codec = HalvingCodec(SemanticCodecConfig(**config["semantic_codec"]))
    of_codec = {name.removeprefix("semantic_codec."): weights[name] for name in weights.keys() - given.keys()}
    fill_weights(codec, of_codec, "semantic_codec", "give a complete folder", torch.device("cpu"))
    path = AcousticPath(codec, model)
    codes = arrays["raw_codes"][0]
    codes = codes[: int((codes == config["stop_mel_token"]).nonzero()[0])]
    yield from {"codes": codes[None], "vq2emb": codec.embed(codes)[None].mT}.items()
    mel, style = arrays["ref_mel"], arrays["style"]
    prompt = model.stretched(path.prompt_content(arrays["spk_cond_emb"][0]), mel.shape[2])
    content = path.content(codes, torch.zeros(len(codes), 0))
    yield from {"prompt_condition": prompt, "S_infer": content}.items()
    for name in [name.removesuffix("_factor") for name in arrays if name.endswith("_factor")]:
        num_frames = path.num_frames(len(codes), float(arrays[f"{name}_factor"]))
        stretched, noise = model.stretched(content, num_frames), arrays[f"{name}_noise"]
        yield from {f"{name}_target_lengths": [num_frames], f"{name}_cond": stretched}.items()
        both = torch.cat([prompt, stretched], 1)
        yield f"{name}_cat_condition", both
        yield f"{name}_mel_full", model.cfm(both, mel, style, noise, SolverSettings())
        target = MelTarget(prompt, content, mel, style, noise)
        yield f"{name}_mel", model.mels([target], SolverSettings())[0]


def campplus_results(folder: Path, config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    network = loaded(CAMPPlus(CAMPPlusConfig(**config["campplus"])), folder)
    x = arrays["x"]
    with recorded(network) as seen:
        yield "out", network(x)
    yield "out_short", network(x[:1, :90])
    yield "out_exact200", network(x[1:2, :400])
    yield from {"stats": seen["xvector.stats"], "dense": seen["xvector.dense"]}.items()
    firsts = {name: f"xvector.{name}" for name in ("tdnn", "block1", "transit1", "transit2", "transit3")}
    layer = "xvector.block1.tdnnd1"
    firsts |= {"out_nonlinear": "xvector.out_nonlinear", "b2d1": "xvector.block2.tdnnd1"}
    firsts |= {"b1d1_nonlinear1": f"{layer}.nonlinear1", "b1d1_linear1": f"{layer}.linear1"}
    firsts |= {"b1d1_local": f"{layer}.cam_layer.linear_local", "b1d1_cam": f"{layer}.cam_layer"}
    yield from ((name, seen[module][:1]) for name, module in firsts.items())
    yield "b1d1_sigmoid", seen[f"{layer}.cam_layer.sigmoid"]
    yield "head_out_sub", seen["head"][:1, :, ::8]
    for name, module in {
        "bn1": "bn1",
        "layer1_0": "layer1.0",
        "layer1": "layer1",
        "layer2": "layer2",
    }.items():
        yield f"head_{name}_sub", seen[f"head.{module}"][:1, :8, :, ::16]


def mel_results(_folder: Path, _config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    wave = arrays["wave"]
    yield "mel", front_end.reference_mel(wave)
    yield "mel_basis", front_end.mel_basis()
    yield "window", torch.hann_window(front_end.MEL_WINDOW)
    yield "magnitude", front_end.magnitudes(wave)[:, :, ::4]
    for name in arrays:
        if name.startswith("frames_for_"):
            yield name, front_end.reference_mel(torch.zeros(1, int(name.split("_")[-1]))).shape[2]


def fbank_results(_folder: Path, _config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    wave_22k, wave_16k = arrays["wave_22k"], arrays["wave_16k"]
    kernel = front_end.resampling_kernel(441, 320)
    yield from {"wave_16k": front_end.resample(wave_22k, 22_050, 16_000), "resample_kernel": kernel}.items()
    yield "resample_width", (kernel.shape[2] - 441) // 2
    count = arrays["resample_rows_24k_to_16k"].shape[1] * 3 // 2
    yield "resample_rows_24k_to_16k", front_end.resample(wave_22k[:, :count], 24_000, 16_000)
    frames = front_end.kaldi_frames(wave_16k[0])
    yield from {"fbank": frames, "knf_fbank": frames}.items()
    yield "fbank_minus_mean", frames - frames.mean(dim=0)
    yield from {"mel_banks": front_end.kaldi_banks(), "window": front_end.povey_window()}.items()
    for name in arrays:
        if name.startswith("frames_for_"):
            yield name, len(front_end.kaldi_frames(torch.zeros(int(name.split("_")[-1]))))


def bigvgan_results(folder: Path, config: dict[str, Any], arrays: dict[str, Tensor]) -> Results:
    vocoder = loaded(BigVGAN(BigVGANConfig.model_validate(config["bigvgan"])), folder)
    with recorded(vocoder) as seen:
        yield "wav", vocoder(arrays["mel"])
    yield "clipped_fraction", (seen["conv_post"].abs() > 1).double().mean()
    names = {name: name for name in ("conv_pre", "activation_post", "conv_post")}
    names |= {f"up{number}": f"ups.{number}.0" for number in range(len(vocoder.ups))}
    names |= {f"stage0_resblock{number}": f"resblocks.{number}" for number in range(3)}
    names |= {"act0_up": "resblocks.0.activations.0.upsample", "act0_snake": "resblocks.0.activations.0.act"}
    names |= {"act0_out": "resblocks.0.activations.0", "rb0_convs1_0": "resblocks.0.convs1.0"}
    yield from ((name, seen[module]) for name, module in names.items())


RESULTS_OF_KIND: dict[str, Callable[[Path, dict[str, Any], dict[str, Tensor]], Results]] = {
    "length_regulator": regulator_results,
    "dit": dit_results,
    "cfm": cfm_results,
    "s2mel": s2mel_results,
    "s2mel of 2.5": decoding_s2mel_results,
    "campplus": campplus_results,
    "mel": mel_results,
    "fbank": fbank_results,
    "bigvgan": bigvgan_results,
}


def loaded(module: nn.Module, folder: Path) -> Any:
    """The module with the folder's weights."""
    path = folder / "weights.safetensors"
    weights = without_weight_norm(load_file(path))
    fill_weights(module, weights, str(path), "give a complete folder", torch.device("cpu"))
    return module


@contextmanager
def recorded(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """While it is open: what each part of `module`, by its name, put out first."""
    seen: dict[str, Tensor] = {}

    def hook(name: str) -> RemovableHandle:
        return module.get_submodule(name).register_forward_hook(
            lambda _, __, out: None if name in seen else seen.update({name: out})
        )

    hooks = [hook(name) for name, _ in module.named_modules()]
    yield seen
    for handle in hooks:
        handle.remove()
