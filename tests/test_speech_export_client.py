"""Tests of indextts/speech/export/client.py and of the card: what an official class does with an export."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from demo.make_base_checkpoint import random_model
from indextts.commands.bases import BASE_2_5
from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import ExportModel, Synthesize
from indextts.errors import UserError
from indextts.models.checkpoint import read_weights
from indextts.models.gpt.config import config_for, config_with_text_tokens, load_config
from indextts.models.gpt.generate import Prompt, generate
from indextts.models.gpt.weights import load_model
from indextts.speech.export.model_folder import export
from indextts.speech.synthesis.synthesize import resolve_sampling
from indextts.speech.synthesis.trained_model import load_trained
from indextts.text.special_tokens import LANGUAGES
from tests.official_front_end import official_ids_of_2_5
from tests.test_speech_export_text_package import TEXTS
from tests.tiny_run import TinyRun, make_tiny_run

SAMPLING = Sampling(do_sample=False, num_beams=1, repetition_penalty=1, max_codes=5)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """A run of IndexTTS-2.5, with random weights for its tokenizer at latest.pth."""
    run = make_tiny_run(tmp_path_factory.mktemp("client") / "tiny", model="2.5")
    tokenizer = run.tokenizer
    entry = {"fingerprint": tokenizer.vocabulary.fingerprint, "pieces": list(tokenizer.pieces)}
    entry |= {"model": tokenizer.model_bytes, "normalizer": tokenizer.options.record}
    config = load_config(run.folder / "base/config.yaml")
    sizes = config_with_text_tokens(config_for(config, BASE_2_5.weight_names), tokenizer.size)
    run.output.mkdir()
    weights = random_model(sizes, 0).state_dict()
    for name, tensor in weights.items():  # so that texts and languages have different codes
        if re.match(r"gpt\.h\..*weight|mel_head.weight|text_embedding", name) and tensor.dim() == 2:
            tensor *= 25
    weights["mel_head.bias"][8:] = -1e4  # start and stop
    torch.save({"model": weights, "tokenizer": entry}, run.output / "latest.pth")
    return run


def exported(run: TinyRun, output: Path, **changes: Any) -> Path:
    config = run.folder / "base/config.yaml"
    fields = {"checkpoint": run.output / "latest.pth", "config": config, "output_dir": output}
    return export(ExportModel(**fields, **changes)).parent


def official_codes(folder: Path, language: str, texts: list[str]) -> list[list[int]]:
    """Return the codes of texts as the official class computes them from the files of a folder."""
    weights = read_weights(folder / "gpt.pth")
    config = config_for(load_config(folder / "config.yaml"), weights)
    model = load_model(config, weights, "gpt.pth").eval()
    random = torch.Generator().manual_seed(0)
    voice = [torch.randn(size, generator=random) for size in (config.condition_shape, (config.model_dim,))]
    ranks = (folder / BASE_2_5.tokenizer_file).read_bytes()
    ids = [torch.tensor(official_ids_of_2_5(text, ranks, language)) for text in texts]
    row = LANGUAGES.index(language)
    found = generate(model, [Prompt(voice[0], voice[1], each, 0, row) for each in ids], SAMPLING)
    return [each.codes.tolist() for each in found]


@pytest.mark.long
def test_a_language_of_the_menu_speaks_the_texts_of_the_model(run: TinyRun, tmp_path: Path):
    usual, paged = exported(run, tmp_path / "usual"), exported(run, tmp_path / "ar", page_language="ar")
    spoken = [run.tokenizer.normalize(text) for text in TEXTS]
    spoken = [text for text in spoken if len(run.tokenizer.encode(text)) <= 120]
    assert len(spoken) > 200
    codes = official_codes(usual, "am", spoken)
    assert len(set(map(tuple, codes))) > 10
    assert official_codes(paged, "ar", spoken) == codes
    assert official_codes(usual, "ar", spoken[:40]) != codes[:40]
    ours, theirs = load_trained(usual, CPU).gpt.state_dict(), load_trained(paged, CPU).gpt.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert "Choose `ar` in its menu" in (paged / "README.md").read_text("utf-8")
    assert "`--page-language ar`, which costs Arabic" in (usual / "README.md").read_text("utf-8")


@pytest.mark.parametrize("changes", [{}, {"page_language": "ar"}])
def test_the_python_of_the_card_gives_the_official_class_the_tokens_of_the_training(
    run: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
):
    folder = exported(run, tmp_path / "model", **changes)
    heard: list[tuple[list[int], int]] = []

    class Official:
        def infer(self, spk_audio_prompt: str, text: str, output_path: str, lang: str) -> None:
            ids = official_ids_of_2_5(text, (folder / BASE_2_5.tokenizer_file).read_bytes(), lang)
            heard.append((ids, LANGUAGES.index(lang)))

    card = (folder / "README.md").read_text("utf-8")
    [snippet] = re.findall(r"(?:^    .*\n)+", card[card.index("A program with") :], re.MULTILINE)[:1]
    monkeypatch.syspath_prepend(folder)
    exec(re.sub("(?m)^    ", "", snippet), {"tts": Official()})
    for name in [name for name in sys.modules if name.partition(".")[0] == "spoken_text"]:
        del sys.modules[name]
    [(ids, row)] = heard
    language = changes.get("page_language", "am")
    expected = run.tokenizer.encode("በ2017 ዓ.ም። 50% ነው።")[1:]
    assert [run.tokenizer.official_order[token] for token in ids[1:-1]] == expected  # type: ignore[attr-defined]
    assert row == LANGUAGES.index(language)


def test_an_export_has_a_default_numbering_that_a_flag_changes(run: TinyRun, tmp_path: Path):
    folder = exported(run, tmp_path / "model", positions="training")
    assert "for this folder is `training`" in (folder / "README.md").read_text("utf-8")
    positions = load_trained(folder, CPU).positions
    asked = {"checkpoint": folder, "text": ["x"], "voice": "x"}
    assert resolve_sampling(Synthesize(**asked), "indextts2", positions).positions == "training"
    typed = Synthesize(**asked, positions="published")
    assert resolve_sampling(typed, "indextts2", positions).positions == "published"


@pytest.mark.parametrize(("language", "menu"), [("fr", "en, zh, ja, es, ar"), ("am", "en, zh, ja, es, ar")])
def test_a_language_outside_the_menu_is_refused(run: TinyRun, tmp_path: Path, language: str, menu: str):
    with pytest.raises(UserError, match=f"--page-language {language}: the menu of IndexTTS-2.5 has {menu}"):
        exported(run, tmp_path / "model", page_language=language)
