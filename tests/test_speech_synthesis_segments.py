from dataclasses import replace

import torch

from demo.make_base_checkpoint import random_model
from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.decoder import Decoder, make_prefix
from indextts.speech.synthesis import segments
from indextts.speech.synthesis.segments import choose_num_segments, segment_bytes
from tests.tiny_gpt import TINY, tiny_batch

BEAMS = Sampling(num_beams=3)


def test_the_cache_of_the_longest_speech_fits_into_the_estimate():
    config = replace(TINY, max_mel_tokens=600)
    model, batch = random_model(config, seed=3).eval(), tiny_batch()
    texts = [torch.full((config.max_text_tokens,), 5)] * 2
    decoder = Decoder(model, "training", BEAMS.num_beams)
    decoder.start(make_prefix(model, model.prefix(batch.condition, batch.emo_vec).detach(), texts))
    for _ in range(config.max_mel_tokens):
        decoder.step(torch.ones(2, BEAMS.num_beams, dtype=torch.long))
    cache_bytes = sum(each.nbytes for layer in decoder._cache for each in layer)
    assert 0.5 * segment_bytes(model, BEAMS) < cache_bytes / 2 < segment_bytes(model, BEAMS)
    assert segment_bytes(model.half(), BEAMS) < 0.6 * segment_bytes(model.float(), BEAMS)


def test_the_number_of_segments_follows_the_free_memory(monkeypatch):
    model = random_model(TINY, seed=3).eval()
    needed = segment_bytes(model, BEAMS)
    for free_bytes, wanted in ((0, 1), (7 * needed, 3), (10_000 * needed, segments.MAX_SEGMENTS)):
        monkeypatch.setattr(segments, "available_bytes", lambda free_bytes=free_bytes: free_bytes)
        assert choose_num_segments(model, BEAMS) == wanted
