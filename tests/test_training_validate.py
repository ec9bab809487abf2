"""Tests of indextts/training/validate.py: equal pairs give equal losses."""

from dataclasses import replace
from pathlib import Path

import pytest

from demo.make_base_checkpoint import random_model
from indextts.commands.pairs_file import PairsFile
from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.pair_columns import PairColumns
from indextts.models.gpt.config import config_with_text_tokens
from indextts.models.gpt.model import UnifiedVoice
from indextts.training.batches import PairDataset
from indextts.training.distributed.ranks import Ranks
from indextts.training.losses import LossMeans
from indextts.training.run import Inputs, load_inputs
from indextts.training.validate import Validation, ValidationSettings, validate
from tests.tiny_run import BASE_SIZE, CONFIG, dataset_of, make_tiny_run

Tiny = tuple[UnifiedVoice, PairDataset, Inputs]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    inputs = load_inputs(parse(Train, make_tiny_run(tmp_path_factory.mktemp("validate") / "tiny").flags()))
    config = config_with_text_tokens(CONFIG, inputs.tokenizer.size)
    return random_model(config, seed=0).train(), inputs.val_set, inputs


def validation(tiny: Tiny, batch_size: int = 2, max_batches: int = 0, **changes: object) -> Validation | None:
    model, dataset, inputs = tiny
    settings = ValidationSettings(inputs, batch_size, max_batches, BASE_SIZE)
    return validate(model, dataset, settings, **{"should_stop": lambda: False, **changes})  # type: ignore[arg-type]


def losses(tiny: Tiny, **changes: object) -> LossMeans | None:
    found = validation(tiny, **changes)
    return None if found is None else found.means


def test_dropout_is_off_during_validation_and_on_afterwards(tiny: Tiny):
    assert tiny[0].config.dropout > 0
    assert losses(tiny) == losses(tiny)
    assert tiny[0].training


def test_max_batches_limits_the_validation(tiny: Tiny):
    asked: list[None] = []
    assert losses(tiny, max_batches=2, should_stop=lambda: bool(asked.append(None))) != losses(tiny)
    assert len(asked) == 2


def test_a_stopped_validation_has_no_result(tiny: Tiny):
    answers = iter([False, True])
    assert losses(tiny, should_stop=lambda: next(answers)) is None
    assert tiny[0].training


def test_seen_and_unseen_speakers_have_separate_means(tiny: Tiny):
    model, dataset, inputs = tiny
    speakers = ["known", "new", "known", "new", "known", "known", "known"]
    pairs = [replace(pair, speaker=name) for pair, name in zip(dataset.pairs, speakers, strict=True)]
    mixed = dataset_of(dataset, pairs)
    alone = {name: mixed.subset([n for n in range(7) if speakers[n] == name]) for name in ("known", "new")}

    found = validation((model, mixed, inputs), trained_speakers={"known", "other"})
    assert list(found.by_speakers) == ["seen", "unseen"]
    for part, name in (("seen", "known"), ("unseen", "new")):
        expected = losses((model, alone[name], inputs))
        assert found.by_speakers[part].mel_loss == pytest.approx(expected.mel_loss, abs=1e-5)
    whole = losses((model, mixed, inputs))
    assert found.means.mel_loss == pytest.approx(whole.mel_loss, abs=1e-5)

    same = validation((model, mixed, inputs), trained_speakers={"known", "new"})
    assert same == Validation(whole, {})


def test_languages_have_separate_means_beside_those_of_speakers(tiny: Tiny):
    model, dataset, inputs = tiny
    parts = [dataset.pairs.take(range(3)), dataset.pairs.take(range(3, len(dataset.pairs)))]
    files = [PairsFile(Path("own")), PairsFile(Path("other"), "en")]
    mixed = PairDataset(PairColumns.joined(parts), dataset.stores, files)
    found = validation((model, mixed, inputs))
    for code, pairs in zip(("", "en"), parts, strict=True):
        expected = losses((model, PairDataset(pairs, dataset.stores), inputs))
        assert found.by_language[code].mel_loss == pytest.approx(expected.mel_loss, abs=1e-5)
    assert found.by_speakers == {}
    assert validation(tiny, trained_speakers=None).by_language == {}  # type: ignore[union-attr]


def test_the_identity_of_the_validation_set_depends_on_the_pairs_read(tmp_path, monkeypatch):
    inputs = load_inputs(parse(Train, make_tiny_run(tmp_path / "tiny").flags()))
    read: list[int] = []
    item = PairDataset.__getitem__
    monkeypatch.setattr(
        PairDataset, "__getitem__", lambda self, index: read.append(index) or item(self, index)
    )
    model = random_model(config_with_text_tokens(CONFIG, inputs.tokenizer.size), seed=0)

    def identity(world_size: int = 1, **settings: int) -> str:
        ranks = Ranks(world_size=world_size)
        now = replace(inputs, command=inputs.command.model_copy(update=settings), ranks=ranks)
        if world_size == 1:
            read.clear()
            batch_size = now.command.validation_batch_size
            changes = {"batch_size": batch_size, "max_batches": now.command.max_val_batches}
            assert validation((model, inputs.val_set, inputs), **changes) is not None
            assert now.validation_set == inputs.val_set.subset(sorted(read)).digest(0)
        return now.validation_set

    whole = identity()
    assert whole == inputs.val_set.digest(0)
    assert whole == identity(batch_size=1) == identity(world_size=2) == identity(max_val_batches=2)
    limited = identity(max_val_batches=1, val_batch_size=2)
    assert limited != whole
    assert limited == identity(max_val_batches=2, val_batch_size=1)
    assert limited == identity(max_val_batches=1, batch_size=1)  # twice the batch size
    assert limited == identity(max_val_batches=1, val_batch_size=1, world_size=2)
    assert limited != identity(max_val_batches=1, val_batch_size=2, world_size=2)
