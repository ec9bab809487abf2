"""Pairs of another project in tab 6: adds its files, with a share, to the fields of the pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.pairs_file import PairsFile, parse_files
from indextts.errors import UserError
from indextts.projects.project import Project, project_names, read_project
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.layout import fields, labelled
from indextts.webui.page import Page

DEFAULT_SHARE = 0.15
MANIFESTS = ("train_manifest", "val_manifest")


def other_data_group(page: Page, form: Mapping[str, Component]) -> None:
    """Build the section and connect it to the fields of the pairs."""
    gr.Markdown(t("training.other_data"), elem_classes="group-name")
    with fields():
        other = gr.Dropdown([], **labelled("training.other_project", "train-other"))
        share = gr.Number(DEFAULT_SHARE, **labelled("training.other_share", "train-other-share"))
        add = gr.Button(t("training.add_other"), size="sm", elem_id="train-add-other")

    def added(own: Project, chosen: str | None, typed_share: float | None, *typed: str) -> list[str]:
        if chosen not in others_with_pairs(page.workspace, own):
            raise UserError(t("training.no_other_project"))
        if not typed_share or not 0 < typed_share < 1:
            raise UserError(t("training.invalid_share"))
        project = Project(page.workspace / chosen)
        language = read_project(project).language
        code = "" if language == read_project(own).language else language
        train, val = (parse_lines(text) for text in typed)
        return [
            "\n".join(map(str, with_share(train, PairsFile(project.pairs("train"), code, typed_share)))),
            "\n".join(map(str, with_file(val, PairsFile(project.pairs("val"), code)))),
        ]

    manifests = [form[name] for name in MANIFESTS]
    on([add.click], added, [page.project, other, share, *manifests], manifests)
    # the names are the version: a project gets its pairs in another tab, without a file of this one changing
    page.watch(
        lambda project: " ".join(others_with_pairs(page.workspace, project)),
        # without a value: the user's choice stays
        lambda project: gr.Dropdown(choices=others_with_pairs(page.workspace, project)),
        [other],
    )


def others_with_pairs(workspace: Path, own: Project) -> list[str]:
    """Return the names of the other projects that have pairs."""
    return [
        other
        for other in project_names(workspace)
        if other != own.root.name
        and all(Project(workspace / other).pairs(split).is_file() for split in ("train", "val"))
    ]


def parse_lines(text: str) -> tuple[PairsFile, ...]:
    """Return the files of a field, one in a line; a UserError for an invalid one."""
    try:
        return parse_files([line.strip() for line in text.splitlines() if line.strip()])
    except ValueError as error:
        raise UserError(str(error)) from None


def with_file(files: Sequence[PairsFile], added: PairsFile) -> list[PairsFile]:
    """Return the files and the added one, in place of an earlier one with its path."""
    return [*(file for file in files if file.path != added.path), added]


def with_share(files: Sequence[PairsFile], added: PairsFile) -> list[PairsFile]:
    """Return the training files with the added one, whose share is of all; the others keep their proportions.

    Raises:
        UserError: there are several files and none has a share, so that their proportions are unknown.
    """
    others = [file for file in files if file.path != added.path]
    shares: list[Any] = [file.share for file in others]
    if len(others) == 1:
        shares = [1.0]
    if None in shares or added.share is None:
        raise UserError(t("training.shares_first"))
    rest = 1 - added.share
    scaled = [
        replace(file, share=round(rest * share / sum(shares), 4))
        for file, share in zip(others, shares, strict=True)
    ]
    return [*scaled, added]
