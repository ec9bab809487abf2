"""Tests of indextts/webui/forms.py: forms from the fields of commands and back, and their drafts."""

from pathlib import Path

import gradio as gr
import pytest

from indextts.commands.data import Preprocess
from indextts.commands.speech import ExportModel
from indextts.commands.train import Train
from indextts.projects.project import Project
from indextts.webui.forms import (
    MAX_DRAFT_BYTES,
    as_shown,
    component_for,
    fields_from,
    read_draft,
    store_draft,
)
from indextts.webui.training.training_form import FIELDS, GROUPED, NO_FORM, OTHERS, PATHS


def test_every_flag_of_the_trainer_has_a_place_on_the_page():
    assert sorted([*GROUPED, *OTHERS, *PATHS, *NO_FORM]) == sorted(Train.model_fields)
    assert len(set(FIELDS)) == len(FIELDS)


def test_default_and_help_come_from_the_field():
    epochs = component_for(Train, "epochs")
    assert (epochs.value, epochs.precision) == (10, 0)
    assert epochs.minimum is None  # the command reports a wrong value at its field
    assert epochs.info == Train.model_fields["epochs"].description
    assert isinstance(component_for(Train, "allow_cpu"), gr.Checkbox)
    dtype = component_for(ExportModel, "dtype")
    assert [choice for choice, _ in dtype.choices] == ["float32", "float16", "bfloat16"]
    backend = component_for(Preprocess, "backend")
    assert [choice for choice, _ in backend.choices] == ["auto", "builtin", "indextts2"]
    assert backend.value == "auto"


def test_an_automatic_field_is_empty_until_a_value_is_set():
    assert component_for(Train, "batch_tokens").value is None
    assert component_for(Train, "batch_tokens").placeholder
    amp = component_for(Train, "amp")
    assert (amp.value, [value for _, value in amp.choices]) == ("", ["", "on", "off"])
    assert fields_from(Train, ["batch_tokens", "amp"], [None, ""]) == {}
    assert fields_from(Train, ["batch_tokens", "amp", "grad_checkpointing"], [0, "on", "off"]) == {
        "batch_tokens": 0,
        "amp": True,
        "grad_checkpointing": False,
    }


@pytest.mark.parametrize("name", FIELDS)
def test_the_values_of_a_form_give_the_same_command(name: str):
    command = Train(
        train_manifest=[Path("a b"), Path("ሰላም")],
        val_manifest=[Path("v")],
        tokenizer=Path("t"),
        learning_rate=3e-5,
    )
    shown = as_shown(getattr(command, name))
    fields = {"train_manifest": [Path("x")], "val_manifest": [Path("v")], "tokenizer": Path("t")}
    again = Train(**{**fields, **fields_from(Train, [name], [shown])})
    assert getattr(again, name) == getattr(command, name)


DRAFTED = ("learning_rate", "resume", "path")
VALUES = {"learning_rate": 2e-5, "resume": True, "path": "ሰላም"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def file_of(project: Project) -> Path:
    return project.root / "drafts/train.json"


def test_a_draft_is_read_back(project: Project):
    assert read_draft(project, "train", DRAFTED) == {}
    store_draft(project, "train", VALUES)
    assert read_draft(project, "train", DRAFTED) == VALUES
    assert read_draft(project, "pairs", DRAFTED) == {}
    store_draft(project, "train", {})
    assert read_draft(project, "train", DRAFTED) == {}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"values": [1]}', b"[" * 100_000],
    ids=["empty", "cut", "no text", "list", "no values", "deep"],
)
def test_an_invalid_draft_counts_as_absent(project: Project, content: bytes):
    file_of(project).parent.mkdir()
    file_of(project).write_bytes(content)
    assert read_draft(project, "train", DRAFTED) == {}


def test_a_huge_value_keeps_the_previous_draft(project: Project):
    store_draft(project, "train", VALUES)
    store_draft(project, "train", {"path": "x" * (MAX_DRAFT_BYTES + 1)})
    store_draft(project, "train", {"path": "\ud800"})
    assert read_draft(project, "train", DRAFTED) == VALUES
