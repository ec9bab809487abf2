"""A run has the codes of a single codebook, from its start to its end."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.data.feature_store import IMPORTED
from indextts.data.manifest import read_pairs, write_pairs
from indextts.errors import RESUME_REFUSED, UserError
from tests.tiny_run import TinyRun, write_features

OTHER = ("test", "other")


def regenerate(run: TinyRun, backend: tuple[str, str], splits: tuple[str, ...] = ("train", "val")) -> Path:
    """Compute the features of the splits with another backend; return their store."""
    store = write_features(run.folder / "features", 30, backend=backend, config=run.config)
    for split in splits:
        path = run.folder / f"{split}_pairs.jsonl"
        write_pairs(path, [replace(pair, features=store) for pair in read_pairs(path)])
    return store


def reason(run: TinyRun) -> str:
    text: str = json.loads((run.output / "exit.json").read_text())["reason"]
    return text


@pytest.mark.failure(67)
def test_a_resume_with_the_codes_of_another_codebook_is_refused(tiny: TinyRun):
    assert tiny.train(max_steps=2) == 0
    before = sorted(path.name for path in tiny.output.glob("*.pth"))
    store = regenerate(tiny, OTHER)
    with pytest.raises(UserError, match=r"model_step2\.pth") as refused:  # the program prints it and exits
        tiny.train(resume="auto", plan="")
    assert refused.value.exit_status == RESUME_REFUSED
    assert str(store) in str(refused.value)
    assert tiny.train(resume="auto") == RESUME_REFUSED
    assert str(store) in reason(tiny)
    assert "model_step2.pth" in reason(tiny)
    assert sorted(path.name for path in tiny.output.glob("*.pth")) == before


@pytest.mark.long
@pytest.mark.failure(67)
def test_a_checkpoint_whose_meta_file_names_no_codebook_is_refused_too(tiny: TinyRun):
    assert tiny.train(max_steps=2) == 0
    for path in tiny.output.glob("*.json"):
        if "codebook" in (meta := json.loads(path.read_text())):
            del meta["codebook"]
            path.write_text(json.dumps(meta))
    store = regenerate(tiny, OTHER)
    assert tiny.train(resume=tiny.output / "model_step2.pth") == RESUME_REFUSED
    assert str(store) in reason(tiny)


@pytest.mark.long
@pytest.mark.failure(67)
def test_training_and_validation_with_different_codebooks_are_refused(tiny: TinyRun):
    first = read_pairs(tiny.folder / "train_pairs.jsonl")[0].features
    second = regenerate(tiny, OTHER, ("val",))
    assert tiny.train() == RESUME_REFUSED
    assert str(first) in reason(tiny)
    assert str(second) in reason(tiny)


@pytest.mark.long
@pytest.mark.failure(67)
@pytest.mark.parametrize(
    "backend", [("test", "backend in torch.bfloat16"), (IMPORTED, "unverified, from /x")]
)
def test_the_same_codebook_in_another_precision_or_an_unknown_one_resumes(
    tiny: TinyRun, backend: tuple[str, str]
):
    assert tiny.train(max_steps=2) == 0
    store = regenerate(tiny, backend)
    assert tiny.train(resume="auto", plan="") == 0
    assert tiny.train(resume="auto", max_steps=4) == 0
    warned = any("[Warn]" in line and str(store) in line for line in tiny.log.splitlines())
    assert warned == (backend[0] == IMPORTED)
