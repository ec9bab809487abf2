import dataclasses

import pytest
import torch

from demo.make_base_checkpoint import random_model
from indextts.models.gpt.decoder import INITIAL_CAPACITY, Decoder, code_position, make_prefix
from tests.tiny_gpt import TINY, tiny_batch


@pytest.fixture
def model():
    return random_model(TINY, seed=3).eval()


@pytest.fixture
def conditions(model):
    batch = tiny_batch()
    return model.prefix(batch.condition, batch.emo_vec).detach()


TEXTS = [torch.tensor([5, 6, 7, 2]), torch.tensor([11, 3])]
CODES = torch.tensor([[1, 4], [2, 4], [7, 0], [7, 6]])  # four steps of two rows


def without_cache(model, conditions, text, codes, positions):
    """Return the logits after the last of `codes` without a cache, for one row without padding."""
    prefix = make_prefix(model, conditions, [text])
    inputs = torch.tensor([[TINY.start_mel_token, *codes]])
    sequence = torch.cat([prefix.embedded, model.embed_codes(inputs, torch.tensor(positions))], dim=1)
    return model.mel_head(model.final_norm(model.gpt(sequence)[:, -1]))


@pytest.mark.parametrize(
    ("positions", "places"), [("training", [0, 1, 2, 3, 4]), ("published", [0, 2, 3, 4, 5])]
)
def test_cache_and_padding_do_not_change_the_scores(model, conditions, positions, places):
    decoder = Decoder(model, positions)
    scores = [decoder.start(make_prefix(model, conditions, TEXTS))]
    scores += [decoder.step(codes[:, None])[:, 0] for codes in CODES]
    with torch.no_grad():
        for step, found in enumerate(scores):
            for row, text in enumerate(TEXTS):
                codes = CODES[:step, row].tolist()
                wanted = without_cache(model, conditions[[row]], text, codes, places[: step + 1])
                torch.testing.assert_close(found[[row]], wanted, rtol=1e-5, atol=1e-5)


def test_training_positions_give_the_scores_of_the_training_forward_pass(model):
    batch = tiny_batch()
    text, codes = batch.text_ids[0, :4].clamp(2, 11), batch.codes[1]
    conditions = model.prefix(batch.condition[:1], batch.emo_vec[:1]).detach()
    framed = model.frame_text(text[None], torch.tensor([4]))
    with torch.no_grad():
        states = model.states(
            conditions, framed.inputs, model.frame_codes(codes[None], torch.tensor([5])).inputs
        )[1]
        wanted = model.mel_head(states)[0]  # (M + 2, C)
    decoder = Decoder(model, "training")
    found = [decoder.start(make_prefix(model, conditions, [text]))]
    found += [decoder.step(code[None, None])[:, 0] for code in codes]
    torch.testing.assert_close(torch.cat(found), wanted[:-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block", [1, 8])
def test_beams_that_cross_have_the_scores_of_their_own_history(model, conditions, block):
    """Three beams of two padded prompts, each compared with its codes alone, without a cache."""
    generator = torch.Generator().manual_seed(0)
    decoder = Decoder(model, "published", num_beams=3, block=block)
    decoder.start(make_prefix(model, conditions, TEXTS))
    histories = [[[] for _ in range(3)] for _ in TEXTS]
    for _ in range(10):
        codes = torch.randint(8, (2, 3), generator=generator)
        found = decoder.step(codes)
        for row, text in enumerate(TEXTS):
            for beam, history in enumerate(histories[row]):
                history.append(int(codes[row, beam]))
                places = [0, *range(2, len(history) + 2)]
                with torch.no_grad():
                    wanted = without_cache(model, conditions[[row]], text, history, places)
                torch.testing.assert_close(found[row, [beam]], wanted, rtol=1e-4, atol=1e-5)
        beams = torch.randint(3, (2, 3), generator=generator)
        decoder.cross(beams)
        histories = [[list(own[beam]) for beam in row] for own, row in zip(histories, beams, strict=True)]


def test_the_cache_grows_when_it_is_full(conditions):
    config = dataclasses.replace(TINY, max_mel_tokens=INITIAL_CAPACITY + 100)
    model = random_model(config, seed=3).eval()
    text = TEXTS[0]
    decoder = Decoder(model, "training")
    codes = torch.arange(INITIAL_CAPACITY + 50) % 8
    decoder.start(make_prefix(model, conditions[:1], [text]))
    for code in codes:
        found = decoder.step(code[None, None])[:, 0]
    with torch.no_grad():
        wanted = without_cache(model, conditions[:1], text, codes.tolist(), list(range(len(codes) + 1)))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_texts_and_codes_beyond_the_positions_are_refused(model, conditions):
    with pytest.raises(ValueError, match=r"21 .*\b20\b"):
        make_prefix(model, conditions[:1], [torch.full((21,), 5)])
    decoder = Decoder(model, "published")
    decoder.start(make_prefix(model, conditions[:1], TEXTS[:1]))
    for _ in range(TINY.num_mel_positions - 2):
        decoder.step(torch.tensor([[1]]))
    assert code_position(TINY.num_mel_positions - 1, "published") == TINY.num_mel_positions
    with pytest.raises(ValueError, match=r"\b33\b"):
        decoder.step(torch.tensor([[1]]))
