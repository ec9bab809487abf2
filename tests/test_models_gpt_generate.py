from dataclasses import replace

import pytest
import torch

from demo.make_base_checkpoint import random_model
from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.decoder import Decoder, make_prefix
from indextts.models.gpt.generate import Generation, Prompt, code_states, generate, set_precision
from tests.tiny_gpt import TINY, tiny_batch

STOP = TINY.stop_mel_token
TEXTS = [torch.tensor([5, 6, 7, 2]), torch.tensor([11, 3]), torch.tensor([4, 4, 4])]


@pytest.fixture
def model():
    model = random_model(TINY, seed=3).eval()
    with torch.no_grad():  # a random model gives all codes almost the same logit
        model.mel_head.weight *= 40
    return model


@pytest.fixture
def prompts():
    batch = tiny_batch()
    rows = [0, 1, 0]
    return [
        Prompt(batch.condition[row], batch.emo_vec[row], text, seed)
        for row, text, seed in zip(rows, TEXTS, (4, 9, 2), strict=True)
    ]


SETTINGS = [
    Sampling(do_sample=False, num_beams=1, repetition_penalty=1, max_codes=12),
    Sampling(num_beams=1, repetition_penalty=1.5, max_codes=12, top_k=0, top_p=1, temperature=4),
    Sampling(do_sample=False, num_beams=3, max_codes=12),
    Sampling(
        num_beams=3, repetition_penalty=1, max_codes=12, top_k=0, top_p=1, temperature=8, length_penalty=1
    ),
]


@pytest.mark.parametrize("sampling", SETTINGS, ids=["greedy", "draws", "beams", "drawn beams"])
def test_each_prompt_of_a_batch_gets_the_codes_that_it_gets_alone(model, prompts, sampling):
    many = [replace(prompt, seed=prompt.seed + more) for more in range(0, 40, 10) for prompt in prompts]
    together = generate(model, many, sampling)
    assert len({tuple(found.codes.tolist()) for found in together}) > (4 if sampling.do_sample else 1)
    assert len({len(found.codes) for found in together}) > 1  # some leave the batch early
    for found, prompt in zip(together, many, strict=True):
        [alone] = generate(model, [prompt], sampling)
        assert torch.equal(alone.codes, found.codes)
        assert alone.has_stopped == found.has_stopped
        assert alone.score == (found.score if found.score is None else pytest.approx(found.score, abs=1e-5))


@pytest.mark.parametrize("sampling", SETTINGS, ids=["greedy", "draws", "beams", "drawn beams"])
def test_a_prompt_that_joins_a_batch_gets_the_codes_that_it_gets_alone(model, prompts, sampling):
    """Whether it takes a free place or a new one, before longer and shorter texts."""
    generation = Generation(model, sampling)
    many = [replace(prompts[row], seed=seed) for seed, row in enumerate((1, 2, 0, 1, 0, 2, 1, 0))]
    waiting, found = list(enumerate(many)), {}
    generation.join([waiting.pop(0), ("dropped", many[0])])
    while generation.keys:
        found.update(generation.step())
        if generation.num_steps == 2:
            generation.drop(["dropped"])
        if waiting and generation.num_steps % 3:
            generation.join([waiting.pop(0)])
    assert len(found) == len(many)
    for number, prompt in enumerate(many):
        [alone] = generate(model, [prompt], sampling)
        assert torch.equal(alone.codes, found[number].codes)
        assert alone.has_stopped == found[number].has_stopped


@pytest.mark.parametrize("sampling", SETTINGS[:3:2], ids=["greedy", "beams"])
def test_each_prompt_has_the_language_of_its_own(sampling):
    model = random_model(replace(TINY, base="2.5", num_language_rows=3, style_dim=6), seed=3).eval()
    with torch.no_grad():
        model.mel_head.weight *= 40
    styles = torch.randn(3, 1, 6, generator=torch.Generator().manual_seed(0))
    emo_vec = tiny_batch().emo_vec[0]
    prompts = [Prompt(styles[0], emo_vec, TEXTS[0], language=row) for row in (2, 0, 1)]
    prompts += [Prompt(style, emo_vec, text, language=2) for style, text in zip(styles, TEXTS, strict=True)]
    together = generate(model, prompts, sampling)
    assert len({tuple(found.codes.tolist()) for found in together[:3]}) > 1
    for found, prompt in zip(together, prompts, strict=True):
        [alone] = generate(model, [prompt], sampling)
        assert torch.equal(alone.codes, found.codes)


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", SETTINGS, ids=["greedy", "draws", "beams", "drawn beams"])
def test_a_gpu_generates_the_codes_of_the_cpu(model, prompts, sampling):
    """With a CUDA graph for each shape; prompts leave the batch at different steps."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    wanted = generate(model, prompts, sampling)
    on_gpu = [replace(p, **{n: v.cuda() for n, v in vars(p).items() if n != "seed"}) for p in prompts]
    for found, one in zip(generate(model.cuda(), on_gpu, sampling), wanted, strict=True):
        assert torch.equal(found.codes.cpu(), one.codes)
        assert found.has_stopped == one.has_stopped


def test_a_row_ends_at_its_stop_and_the_other_rows_continue(model, prompts):
    """Try seeds until the rows of one batch end at different steps."""
    sampling = SETTINGS[1]
    for seed in range(30):
        found = generate(model, [replace(prompt, seed=seed) for prompt in prompts], sampling)
        lengths = {len(one.codes) for one in found}
        for one in found:
            assert STOP not in one.codes
            assert one.has_stopped or len(one.codes) == sampling.max_codes
        if len(lengths) == 3 and any(one.has_stopped for one in found):
            return
    pytest.fail("no seed gave rows of different lengths")


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, -1.0])
def test_enough_beams_find_the_best_of_all_sequences(model, prompts, length_penalty):
    """Of all sequences of at most 2 codes, each scored on its own."""
    sampling = Sampling(
        do_sample=False, num_beams=10, repetition_penalty=1, max_codes=2, length_penalty=length_penalty
    )
    for prompt in prompts:
        best = max(all_sequences(model, prompt, length_penalty), key=lambda found: found[1])
        found = generate(model, [prompt], sampling)[0]
        assert found.codes.tolist() == [code for code in best[0] if code != STOP]
        assert found.score == pytest.approx(best[1], abs=1e-4)


def all_sequences(model, prompt, length_penalty):
    prefix = make_prefix(
        model, model.prefix(prompt.condition[None], prompt.emo_vec[None]).detach(), [prompt.text_ids]
    )
    first = Decoder(model, "published").start(prefix)[0].log_softmax(-1)
    yield [STOP], float(first[STOP])
    for code in set(range(TINY.number_mel_codes)) - {STOP}:
        decoder = Decoder(model, "published")
        decoder.start(prefix)
        second = decoder.step(torch.tensor([[code]]))[0, 0].log_softmax(-1)
        for last in range(TINY.number_mel_codes):
            yield [code, last], float(first[code] + second[last]) / 2**length_penalty


def test_the_second_pass_gives_the_states_that_predict_each_code(model, prompts):
    codes = torch.tensor([1, 4, 2])
    states, *_ = code_states(model, prompts, [codes, torch.tensor([5]), torch.tensor([], dtype=torch.long)])
    assert states.shape == (3, TINY.model_dim)
    decoder = Decoder(model, "training")
    conditions = model.prefix(prompts[0].condition[None], prompts[0].emo_vec[None]).detach()
    scores = [decoder.start(make_prefix(model, conditions, [prompts[0].text_ids]))]
    scores += [decoder.step(code[None, None])[:, 0] for code in codes[:-1]]
    with torch.inference_mode():
        torch.testing.assert_close(model.mel_head(states), torch.cat(scores), rtol=1e-4, atol=1e-4)


def test_half_precision_changes_the_states_by_its_rounding_only(model, prompts):
    codes = [torch.tensor([1, 4, 2]), torch.tensor([5]), torch.tensor([3, 3])]
    wanted = torch.cat(code_states(model, prompts, codes))
    set_precision(model, torch.bfloat16)
    states = torch.cat(code_states(model, prompts, codes))
    assert states.dtype == torch.float32
    error = (states - wanted).norm() / wanted.norm()
    assert 0 < error < 0.02  # bfloat16 has 8 bits
    found = generate(model, prompts, SETTINGS[2])  # greedy beams
    assert all(len(each.codes) and each.codes.max() < TINY.number_mel_codes for each in found)


@pytest.mark.parametrize("sampling", SETTINGS, ids=["greedy", "draws", "beams", "drawn beams"])
@pytest.mark.parametrize("against_stop", [8, 1000])
def test_a_stream_of_codes_leads_to_the_same_result_and_never_takes_codes_back(
    model, prompts, sampling, against_stop
):
    with torch.no_grad():
        model.mel_head.bias[STOP] -= against_stop
    sampling = sampling.model_copy(update={"max_codes": 28})
    num_early = 0
    for prompt in prompts:
        generation, early = Generation[int](model, sampling), []
        generation.join([(0, prompt)])
        while not (done := generation.step()):
            early.append(generation.settled(0))
        [(_, last)] = done
        [wanted] = generate(model, [prompt], sampling)
        assert torch.equal(last.codes, wanted.codes)
        for codes in early:
            assert torch.equal(codes, wanted.codes[: len(codes)])
        num_early += sum(len(codes) > 0 for codes in early)
    assert num_early > 0 or against_stop == 8
