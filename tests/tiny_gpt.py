"""Tiny GPT for tests, and a padded batch for it."""

import torch

from indextts.models.gpt.config import ConditionModuleConfig, GPTConfig
from indextts.models.gpt.model import GPTBatch

MODULE = ConditionModuleConfig(
    output_size=8, linear_units=16, attention_heads=2, num_blocks=1, input_layer="conv2d2", perceiver_mult=2
)
TINY = GPTConfig(
    model_dim=16,
    layers=2,
    heads=2,
    max_mel_tokens=30,
    max_text_tokens=20,
    number_text_tokens=12,
    number_mel_codes=10,
    start_mel_token=8,
    stop_mel_token=9,
    start_text_token=0,
    stop_text_token=1,
    condition_module=MODULE,
    emo_condition_module=MODULE,
    feature_dim=12,
    emo_perceiver_dim=10,
    num_latents=3,
    pe_length=50,
)


def tiny_batch() -> GPTBatch:
    """Rows of 4 and 2 tokens, 3 and 5 codes; what stands behind them is out of every range."""
    generator = torch.Generator().manual_seed(0)
    return GPTBatch(
        condition=torch.randn(2, TINY.num_latents, TINY.model_dim, generator=generator),
        emo_vec=torch.randn(2, TINY.model_dim, generator=generator),
        text_ids=torch.tensor([[5, 6, 7, 12], [11, 3, 999, -1]]),
        text_lengths=torch.tensor([4, 2]),
        codes=torch.tensor([[1, 2, 7, 999, -1], [4, 4, 0, 6, 5]]),
        code_lengths=torch.tensor([3, 5]),
    )
