"""Verification of an exported file of weights: every tensor, and the logits of the model.

Axes: T feature vectors, F their width, N text tokens, M codes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from indextts.errors import CHECK_FAILED, UserError
from indextts.models.checkpoint import read_weights
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.model import GPTBatch, UnifiedVoice
from indextts.models.gpt.weights import load_model
from indextts.system.amounts import counted, listed

NUM_FEATURES, NUM_TOKENS, NUM_CODES = 100, 64, 100

# The largest relative difference of logits. Rounding the weights of the trained demo changes them by 4e-4
# (float16) and 3e-3 (bfloat16); deeper models add up to more. Wrong weights already fail the exact
# comparison.
TOLERANCES = {torch.float32: 1e-6, torch.float16: 0.01, torch.bfloat16: 0.08}


@torch.no_grad()
def logits_on_fixed_inputs(
    config: GPTConfig, weights: Mapping[str, Tensor], source: str, order: Sequence[int] = ()
) -> Tensor:
    """Return all logits for fixed features, text and codes: (n,).

    Args:
        weights: by published name, of any floating-point type; the arithmetic is float32.
        order: the token in `weights` that each token of the text and of the text logits is; empty if the
            weights have the order of the export.

    Raises:
        UserError: the weights do not fit the config, or are not finite.
    """
    model = load_model(config, weights, source).eval()
    features = torch.randn(1, NUM_FEATURES, config.feature_dim, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([*(order or range(config.number_text_tokens)), config.number_text_tokens])
    outputs = model(_fixed_batch(model, features, rows))
    return torch.cat([outputs.text_logits[..., rows].flatten(), outputs.mel_logits.flatten()])


def compare(
    path: Path, config: GPTConfig, weights: Mapping[str, Tensor], dtype: torch.dtype, logits: Tensor
) -> float:
    """Read the file at `path` and return the relative difference of its logits to `logits`.

    Args:
        dtype: the expected type of floating-point tensors in the file.
        logits: of `weights`, from `logits_on_fixed_inputs`.

    Raises:
        UserError: with status 1 if a tensor is missing, added or changed, or the difference is too large.
    """
    written = read_weights(path)
    differing = [
        name
        for name in sorted({*written, *weights})
        if name not in written
        or name not in weights
        or not torch.equal(written[name], weights[name].to(dtype))
    ]
    if differing:
        raise UserError(
            f"{path.name}: {counted(len(differing), 'tensor')} differ after reading back: "
            f"{listed(differing)}; check the disk and export again",
            CHECK_FAILED,
        )
    found = logits_on_fixed_inputs(config, written, path.name)
    difference = float((found - logits).norm() / logits.norm())
    if not difference <= TOLERANCES[dtype]:
        raise UserError(
            f"{path.name}: the logits differ from the checkpoint's: relative difference {difference:.2g} "
            f"exceeds {TOLERANCES[dtype]:g}, the tolerance for {str(dtype).removeprefix('torch.')}; "
            "export as float32",
            CHECK_FAILED,
        )
    return difference


def _fixed_batch(model: UnifiedVoice, features: Tensor, rows: Tensor) -> GPTBatch:
    """Return a batch with tokens and codes spread over the tables, so that old and new rows are covered."""
    config = model.config
    num_tokens = min(NUM_TOKENS, config.max_text_tokens)
    num_codes = min(NUM_CODES, config.max_mel_tokens)
    tokens = rows[torch.linspace(2, config.number_text_tokens - 1, num_tokens).long()]
    codes = torch.linspace(0, config.number_mel_codes - 3, num_codes).long()
    return GPTBatch(
        condition=model.conditioning(features, style=torch.linspace(-1, 1, config.style_dim)[None]),
        emo_vec=model.emotion(features),
        text_ids=tokens[None],
        text_lengths=torch.tensor([num_tokens]),
        codes=codes[None],
        code_lengths=torch.tensor([num_codes]),
        languages=torch.tensor([config.num_language_rows - 1]),
    )
