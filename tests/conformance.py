"""Comparison of the models with folders of reference vectors (`reference_vectors` draws one).

Axes: B rows, N text tokens, M codes, V+1 rows of the text head, C semantic codes.

A folder of the byte-level tokenizer has other files:

    config.yaml          pattern, languages, ranks and sizes of each rank file
    special_tokens.json  names in the order of their ids
    cases.json           texts with the ids of each rank file, the decoded text, and tokens
    frontend.json        texts with their official preparation and ids
    NAME/FILE.tiktoken   a rank file; the published one lies in ../../data/indextts25_tokenizer/
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from indextts.features.semantic_codec import HalvingCodec, SemanticCodec, load_codec, load_codec_config
from indextts.models.gpt.generate import Prompt, code_states
from indextts.models.gpt.model import GPTBatch, UnifiedVoice
from indextts.text.byte_level import PATTERN, ByteLevelTokenizer
from indextts.text.official_front_end import prepare
from indextts.text.special_tokens import COMMON_ROW, LANGUAGES, SPECIAL_TOKENS, language_tag
from tests.conformance_acoustic import INPUTS_OF_KIND, acoustic_results, read_acoustic
from tests.conformance_generation import generation_results
from tests.reference_vectors import (
    INPUTS,
    INPUTS_OF_STYLE,
    Arrays,
    Vectors,
    folder_kind,
    read_arrays,
    read_vectors,
)


def compared(folder: Path) -> dict[str, str]:
    """The difference of each array of a folder that can be reproduced, "" where it agrees."""
    kind = folder_kind(folder)
    if kind == "tokenizer":
        return {name: f"{num} differ" if num else "" for name, num in tokenizer_results(folder)}
    inputs: set[str] = set()
    if kind == "gpt":
        vectors = read_vectors(folder)
        arrays, results = vectors.arrays, dict(all_results(vectors))
        inputs = (INPUTS | INPUTS_OF_STYLE) - results.keys()
    elif kind == "semantic_codec":
        codec = load_codec(load_codec_config(folder / "config.yaml"), folder / "weights.safetensors")
        arrays = read_arrays(folder)
        reproduce = halving_codec_results if isinstance(codec, HalvingCodec) else codec_results
        results = dict(reproduce(codec, arrays))  # type: ignore[arg-type]
        inputs = {name for name in arrays if name == "x" or name.endswith("_x")}
    else:
        kind, arrays = read_acoustic(folder)
        results, inputs = acoustic_results(folder, kind, arrays), INPUTS_OF_KIND[kind]
    return {
        name: difference(name, results.get(name), wanted)
        for name, wanted in arrays.items()
        if name not in inputs
    }


def difference(name: str, result: Any, wanted: np.ndarray[Any, Any]) -> str:
    """How a result differs from its array; "" if it does not."""
    if result is None:
        return "unknown: no rule says what this array is"
    found = result.detach().numpy() if isinstance(result, Tensor) else np.asarray(result)
    if found.shape != wanted.shape:
        return f"shape {found.shape}, expected {wanted.shape}"
    if not np.issubdtype(wanted.dtype, np.floating):
        num_wrong = int((found != wanted).sum())
        return f"{num_wrong} differ" if num_wrong else ""
    absolute, relative = tolerance_of(name)
    error = np.abs(found.astype(np.float64) - wanted)
    agrees = bool((error <= absolute + relative * np.abs(wanted)).all())  # NaN disagrees
    return "" if agrees else f"error {float(error.max(initial=0.0)):.2e}, atol {absolute:g} rtol {relative:g}"


def tolerance_of(name: str) -> tuple[float, float]:
    """The largest absolute difference of an array, and that relative to the reference's size."""
    if name.endswith(("_loss", "_losses", "_top1")):
        return 1e-5, 0
    if name.startswith("grad/") or name.endswith("grad_norms"):
        return 1e-6, 1e-3  # the gradient of a bias of keys is 0 but for rounding
    if name in ("fbank", "fbank_minus_mean", "knf_fbank"):
        # Natural logarithms. A rounding of `log` in the mel scale, which differs between CPUs, moves a filter
        # weight by 1.5e-5; narrow filters have weights of 0.1, so their logarithms move by 1.5e-4.
        return 5e-4, 0
    return 1e-4, 1e-4


def all_results(vectors: Vectors) -> Iterator[tuple[str, Any]]:
    """Name and value of every array that can be reproduced."""
    model = vectors.model(vectors.config)
    with torch.no_grad():
        yield from conditioning_results(vectors, model)
        yield from training_results(vectors, model)
        yield from latent_results(vectors, model)
        yield from single_sample_results(vectors, model)
        yield from duration_control_results(vectors, model)
        yield from generation_results(vectors, model)
    yield from gradient_results(vectors)


@torch.no_grad()
def codec_results(codec: SemanticCodec, arrays: Arrays) -> Iterator[tuple[str, Any]]:
    """Name and value of every array of a codec; its own channels are the last axis but one."""
    x = torch.from_numpy(arrays["x"])
    quantizer = codec.quantizer.quantizers[0]
    codes = codec.quantize(x)
    embeddings = codec.embed(codes)
    encoded = codec.encode(x)
    projected = quantizer.in_project(encoded)
    rows = F.normalize(quantizer.codebook.weight, dim=-1)
    best = (F.normalize(projected, dim=-1) @ rows.T).topk(2).values
    yield from {"codes": codes, "quantized": embeddings, "encoder_out": encoded}.items()
    yield from {"z_e": projected.mT, "cos_margin": best[..., 0] - best[..., 1]}.items()
    yield from {"vq2emb": embeddings.mT, "vq2emb_infer_call": embeddings[:1].mT}.items()
    decoded = codec.decode(embeddings)
    yield from {"decoded": decoded, "reconstruction": decoded}.items()


@torch.no_grad()
def halving_codec_results(codec: HalvingCodec, arrays: Arrays) -> Iterator[tuple[str, Any]]:
    """Name and value of every array of a codec with 25 codes a second, for each input NAME_x."""
    for name in [name.removesuffix("_x") for name in arrays if name.endswith("_x")]:
        x = torch.from_numpy(arrays[f"{name}_x"])
        codes = codec.quantize(x)
        encoded, embeddings = codec.encode(x), codec.embed(codes)
        projected = codec.quantizer.quantizers[0].in_project(encoded)
        rows = F.normalize(codec.quantizer.quantizers[0].codebook.weight, dim=-1)
        best = (F.normalize(projected, dim=-1) @ rows.T).topk(2).values
        found = {"codes": codes, "codes_shape_as_returned": codes.shape}
        found |= {"down": codec.down(x.mT), "encoder_out": encoded, "z_e": projected.mT}
        found |= {"quantized_as_returned": embeddings, "vq2emb": embeddings.mT}
        found |= {"cos_margin": best[..., 0] - best[..., 1], "decoded": codec.decode(embeddings)}
        found |= {"decoder_out": SemanticCodec.decode(codec, embeddings)}
        even = x[:, : x.shape[1] // 2 * 2]  # the training forward drops the last frame of an odd length
        if f"{name}_fwd_codes" in arrays:
            trained = codec.quantize(even)
            rebuilt = codec.decode(codec.embed(trained))
            found |= {"fwd_codes": trained, "fwd_reconstruction": rebuilt}
            found |= {"fwd_reconstruction_loss": F.mse_loss(rebuilt, even)}
        yield from ((f"{name}_{what}", value) for what, value in found.items())


def conditioning_results(vectors: Vectors, model: UnifiedVoice) -> Iterator[tuple[str, Any]]:
    feat, lengths = vectors.tensor("feat"), vectors.tensor("feat_lens")
    emo_feat, emo_lengths = vectors.tensor("emo_feat"), vectors.tensor("emo_feat_lens")
    if not model.reads_style:
        states, keep = model.conditioning_encoder(feat, lengths)
        yield from {"cond_conformer_out": states, "cond_conformer_mask": keep[:, None]}.items()
        yield "condition", model.conditioning(feat, lengths)
        yield "condition_nomask", model.conditioning(feat)
        for row, length in enumerate(lengths):
            yield f"gen_condition_{row}", model.conditioning(feat[row : row + 1, :length])
    if model.reads_style:
        yield "spk_row", model.spk_emb_proj(vectors.tensor("style"))[:, None]
    states, keep = model.emo_conditioning_encoder(emo_feat, emo_lengths)
    yield from {"emo_conformer_out": states, "emo_conformer_mask": keep[:, None]}.items()
    yield "emo_raw", model.emo_perceiver_encoder(states, keep).squeeze(1)
    clips = [clip[None, :length] for clip, length in zip(emo_feat, emo_lengths, strict=True)]
    yield "emo_vec_alone_nomask", torch.cat([model.emotion(clip) for clip in clips])
    speaker, emotion = model.emotion(feat, lengths), model.emotion(emo_feat, emo_lengths)
    yield "emo_vec_of_feat", speaker
    yield "emo_vec", emotion
    for name in vectors.arrays:
        if match := re.fullmatch(r"merge_emovec_alpha(\d+)p(\d+)", name):
            yield name, torch.lerp(speaker, emotion, float(f"{match[1]}.{match[2]}"))


def training_results(vectors: Vectors, model: UnifiedVoice) -> Iterator[tuple[str, Any]]:
    batch = vectors.batch()
    text = model.frame_text(batch.text_ids, batch.text_lengths)
    codes = model.frame_codes(batch.codes, batch.code_lengths)
    yield from {"text_inputs": text.inputs, "text_targets": text.targets}.items()
    yield from {"mel_inputs": codes.inputs, "mel_targets": codes.targets}.items()
    prefix = model.prefix(batch.condition, batch.emo_vec)
    sequence = model.embed_sequence(prefix, text.inputs, codes.inputs, batch.languages)
    parts = torch.split(sequence, [prefix.shape[1], text.inputs.shape[1], codes.inputs.shape[1]], dim=1)
    yield from zip(("train_conds", "train_text_emb", "train_mel_emb"), parts, strict=True)
    yield "train_gpt_out", model.gpt(sequence)
    output = model(batch)
    yield "train_text_logits", output.text_logits.transpose(1, 2)  # (B, V+1, N+2)
    yield "train_mel_logits", output.mel_logits.transpose(1, 2)  # (B, C, M+2)
    total_loss, sums = vectors.loss(output)
    means = sums.means()
    yield from {"text_loss": means.text_loss, "mel_loss": means.mel_loss, "mel_top1": means.mel_top1}.items()
    yield "total_loss", total_loss


def latent_results(vectors: Vectors, model: UnifiedVoice) -> Iterator[tuple[str, Any]]:
    """States at the codes without the last two: what inference of 2.0 passes on to the acoustic model."""
    if model.reads_style:
        yield from no_language_results(vectors, model)
        return
    yield "latent_batch", latents(model, vectors.batch())
    row = single_row(vectors.batch(), 0)
    prompt = Prompt(row.condition[0], row.emo_vec[0], row.text_ids[0])
    yield "latent0", code_states(model, [prompt], [row.codes[0]])[0][None]


def latents(model: UnifiedVoice, batch: GPTBatch) -> Tensor:
    text = model.frame_text(batch.text_ids, batch.text_lengths)
    codes = model.frame_codes(batch.codes, batch.code_lengths)
    prefix = model.prefix(batch.condition, batch.emo_vec)
    return model.states(prefix, text.inputs, codes.inputs, batch.languages)[1][:, :-2]


def no_language_results(vectors: Vectors, model: UnifiedVoice) -> Iterator[tuple[str, Any]]:
    """Yield the results of the official forward() of 2.5, which adds no language row."""
    rows = model.lang_embedding.weight
    trained = rows.clone()
    rows.zero_()
    means = vectors.loss(model(vectors.batch()))[1].means()
    yield from {"nolang_text_loss": means.text_loss, "nolang_mel_loss": means.mel_loss}.items()
    yield "latent_batch_official_forward", latents(model, vectors.batch())
    rows.copy_(trained)


def single_sample_results(vectors: Vectors, model: UnifiedVoice) -> Iterator[tuple[str, Any]]:
    batch = vectors.batch()
    rows = [single_row(batch, row) for row in range(len(batch.text_ids))]
    means = [vectors.loss(model(row))[1].means() for row in rows]
    yield "single_sample_losses", [[mean.text_loss, mean.mel_loss] for mean in means]


def single_row(batch: GPTBatch, row: int) -> GPTBatch:
    """One row of the batch without its padding, as a batch."""
    rows = slice(row, row + 1)
    return GPTBatch(
        condition=batch.condition[rows],
        emo_vec=batch.emo_vec[rows],
        text_ids=batch.text_ids[rows, : batch.text_lengths[row]],
        text_lengths=batch.text_lengths[rows],
        codes=batch.codes[rows, : batch.code_lengths[row]],
        code_lengths=batch.code_lengths[rows],
        languages=None if batch.languages is None else batch.languages[rows],
    )


def duration_control_results(vectors: Vectors, model: UnifiedVoice) -> Iterator[tuple[str, Any]]:
    """A variant of training of 2.0 in which the first speed row tells the number of codes."""
    if model.reads_style:
        return
    batch = vectors.batch()
    prefix = model.prefix(batch.condition, batch.emo_vec)
    durations = model.mel_pos_embedding(batch.code_lengths.clamp(max=model.config.num_mel_positions - 1))
    prefix = torch.cat([prefix[:, :-2], durations[:, None], prefix[:, -1:]], dim=1)
    means = vectors.loss(model.predict(prefix, batch))[1].means()
    yield from {"durctl_text_loss": means.text_loss, "durctl_mel_loss": means.mel_loss}.items()


def gradient_results(vectors: Vectors) -> Iterator[tuple[str, Any]]:
    """Losses and gradients in training mode without dropout: from cached vectors, then from features."""
    model = vectors.model(replace(vectors.config, dropout=0.0)).train()
    loss, sums = vectors.loss(model(vectors.batch()))
    means = sums.means()
    yield from {"trainmode_text_loss": means.text_loss, "trainmode_mel_loss": means.mel_loss}.items()
    gradients = gradients_of(loss, model)
    yield from norms("", gradients, vectors.arrays)
    yield from ((f"grad/{name}", gradient) for name, gradient in gradients.items())
    live = replace(
        vectors.batch(),
        condition=model.conditioning(
            vectors.tensor("feat"), vectors.tensor("feat_lens"), style=vectors.style
        ),
        emo_vec=model.emotion(vectors.tensor("emo_feat"), vectors.tensor("emo_feat_lens")),
    )
    yield from norms("e2e_", gradients_of(vectors.loss(model(live))[0], model), vectors.arrays)


def gradients_of(loss: Tensor, model: UnifiedVoice) -> dict[str, Tensor]:
    """Gradients by name, of the parameters that the loss reaches."""
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def norms(prefix: str, gradients: Mapping[str, Tensor], arrays: Arrays) -> Iterator[tuple[str, Any]]:
    """The parameters that have a gradient, in the file's order where the file has them, and the norms."""
    given = [str(name) for name in arrays.get(f"{prefix}grad_names", np.array([], dtype=str))]
    names = [name for name in given if name in gradients] + [n for n in gradients if n not in set(given)]
    yield f"{prefix}grad_names", names
    yield f"{prefix}grad_norms", torch.stack([gradients[name].norm() for name in names])


PUBLISHED = "data/indextts25_tokenizer"


def tokenizer_results(folder: Path) -> Iterator[tuple[str, int]]:
    """Name of each comparison and the number of values that differ."""
    config = yaml.safe_load((folder / "config.yaml").read_bytes())
    cases, frontend, names = (
        json.loads((folder / f"{name}.json").read_bytes()) for name in ("cases", "frontend", "special_tokens")
    )
    yield "pattern", int(config["pattern"] != PATTERN)
    yield "languages", int(tuple(config["languages"]) != LANGUAGES)
    yield "special_tokens", int(tuple(names) != SPECIAL_TOKENS)
    tokenizers = {}
    for name in (name for name in config if isinstance(config[name], dict) and "ranks" in config[name]):
        path = (folder.parents[1] / PUBLISHED if name == "published" else folder / name) / config["file"]
        content = path.read_bytes()
        tokenizer = tokenizers[name] = ByteLevelTokenizer(content, path)
        yield f"{name}: ranks", int(not fits(tokenizer, content, config[name]))
        encoding = tokenizer.encoding
        ids = [encoding.encode(case["text"], allowed_special="all") for case in cases]
        yield f"{name}: cases", sum(found != case[name] for found, case in zip(ids, cases, strict=True))
        first_time = encoding.encode_single_token("<|0.00|>")
        decoded = [encoding.decode([token for token in row if token < first_time]) for row in ids]
        yield f"{name}: decoded", sum(a != case["decoded"] for a, case in zip(decoded, cases, strict=True))
    for number, case in enumerate(frontend):
        yield f"frontend {number}", front_end_differences(tokenizers[case["tokenizer"]], case)


def fits(tokenizer: ByteLevelTokenizer, content: bytes, expected: dict[str, Any]) -> bool:
    digest = expected.get("sha256")
    return (
        len(tokenizer.ranked) == expected["ranks"]
        and tokenizer.size == expected["vocabulary"]
        and tokenizer.pieces.index("<|am|>") == expected["am"]
        and digest in (None, hashlib.sha256(content).hexdigest())
    )


def front_end_differences(tokenizer: ByteLevelTokenizer, case: dict[str, Any]) -> int:
    """The number of prepared text, ids and language row that differ; no ids of a text that is cut."""
    language, encoding = case["lang"].lower(), tokenizer.encoding
    prepared, tag = prepare(case["text"], language), language_tag(language)
    found = {
        "prepared": prepared,
        "lang_row": LANGUAGES.index(language) if language in LANGUAGES else COMMON_ROW,
    }
    if len(case["segments"]) == 1:
        found["ids"] = [[*encoding.encode(tag + prepared, allowed_special="all"), 1]]
    return sum(case[name] != value for name, value in found.items())
