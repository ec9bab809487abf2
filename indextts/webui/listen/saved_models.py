"""Models and voices that tab 8 can choose from. No Gradio or torch here.

A model is a saved state of the run. Several files can hold the same one: latest.pth and the best are links to
a numbered file, and a part of a run may save a step again. Such files are one choice.

An adapter is `adapter:PATH` with the path in the workspace: an uploaded file, or the export of a project. It
speaks with the base model.

A voice is `upload:NAME`, an uploaded recording, or `clip:ID`, a clip of the data set. A request can name
anything, so every choice is looked up, and a recording outside the allowed folders is refused.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.data.manifest import Utterance
from indextts.errors import UserError
from indextts.features.audio import MAX_REFERENCE_S
from indextts.projects.project import Project, project_names
from indextts.runs.checkpoints import meta_of, validation_losses
from indextts.runs.directory import LINKS, QUARANTINED, CheckpointMeta, checkpoint_files
from indextts.webui.data.uploads import ADAPTERS_NAME, VOICES_NAME
from indextts.webui.language import t
from indextts.webui.run_progress import read_run
from indextts.webui.running.outlook import LinkedError, made_by
from indextts.webui.serving.security import Roots
from indextts.webui.view_versions import utterances_of

ADAPTER = "adapter:"
ADAPTER_FILE, CODES_FILE = "adapter.safetensors", "builtin.npz"  # of an export


@dataclass(frozen=True)
class SavedModel:
    """A saved state of the run.

    Args:
        names: of the files that hold it, the numbered ones first.
        meta: of the first file.
        adapter: the file of an adapter, which is not of the run; its only name is the choice.
    """

    names: tuple[str, ...]
    meta: CheckpointMeta
    adapter: Path | None = None

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def has_strength(self) -> bool:
        """Whether it is a LoRA, whose strength can be chosen."""
        return bool(self.meta.settings.get("lora_rank"))

    @property
    def is_best(self) -> bool:
        return "best.pth" in self.names

    @property
    def title(self) -> str:
        """Step of how many, part from the second one on, and whether it is a best or the newest."""
        if self.adapter is not None:
            file = self.adapter
            is_upload = file.parent.name == ADAPTERS_NAME
            origin = t("listen.uploaded", name=file.name) if is_upload else file.parent.parent.name
            return t("listen.adapter_of", origin=origin, step=self.meta.step)
        step, total = self.meta.step, self.meta.schedule.get("total_steps", 0)
        text = t("listen.step_of" if total > step else "listen.step", step=step, total=total)
        if self.meta.part > 1:
            text = t("listen.step_of_part", step=self.meta.step, part=self.meta.part)
        of_links = {"best.pth": "best", "best_heard.pth": "best_heard", "latest.pth": "newest"}
        notes = [t(f"listen.{note}") for link, note in of_links.items() if link in self.names]
        return f"{text} ({', '.join(notes)})" if notes else text


def models(project: Project) -> list[SavedModel]:
    """Return each valid model of the run once, the best first, then the newest save first."""
    files: list[tuple[str, CheckpointMeta]] = []
    for path in checkpoint_files(project.run_dir):
        meta = None if path.name.startswith(QUARANTINED) else meta_of(path)
        with suppress(OSError):  # deleted since it was listed
            if meta is not None and path.stat().st_size == meta.num_bytes:
                files.append((path.name, meta))
    files.sort(key=lambda file: (file[0] in LINKS, -file[1].serial, file[0]))
    found: list[SavedModel] = []

    def is_same(one: CheckpointMeta, other: CheckpointMeta) -> bool:
        is_same_step = (one.part, one.step) == (other.part, other.step)
        return is_same_step or bool(one.digest and one.digest == other.digest)

    for name, meta in files:
        place = next((n for n, model in enumerate(found) if is_same(model.meta, meta)), None)
        if place is None:
            found.append(SavedModel((name,), meta))
        else:
            found[place] = SavedModel((*found[place].names, name), found[place].meta)
    return sorted(found, key=lambda model: (not model.is_best, -model.meta.serial))


def adapters(project: Project) -> list[Path]:
    """Return the files of the adapters: the uploads, then the exports of all projects."""
    workspace = project.root.parent
    exports = [Project(workspace / name).export / ADAPTER_FILE for name in project_names(workspace)]
    uploads = sorted((project.listen / ADAPTERS_NAME).glob("*.safetensors"))
    return [*uploads, *(path for path in exports if path.is_file())]


def speakers(project: Project) -> list[SavedModel]:
    """Return the models of the run, then the adapters whose record is valid."""
    found = models(project)
    for path in adapters(project):
        with suppress(UserError):
            choice = f"{ADAPTER}{path.relative_to(project.root.parent)}"
            found.append(SavedModel((choice,), adapter_meta(path), path))
    return found


def adapter_meta(path: Path) -> CheckpointMeta:
    """Return the record in the header of an adapter file; a UserError for another file."""
    try:
        if path.suffix != ".safetensors":
            raise ValueError
        with safe_open(path, framework="numpy") as file:
            entries = json.loads((file.metadata() or {})["checkpoint"])
        return CheckpointMeta.model_validate({**entries["meta"], "num_bytes": 0, "digest": ""})
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        raise UserError(t("listen.no_adapter", name=path.name)) from None


def fields_of(project: Project, model: SavedModel, strength: float | None, roots: Roots) -> dict[str, Any]:
    """Return the fields of `CheckpointSpeech` that the model decides, and its checkpoint.

    Args:
        strength: of a LoRA; ignored for another model.
        roots: contain the adapter, else a UserError.
    """
    features, path = project.preprocessed / "features", model.adapter
    fields: dict[str, Any] = (
        {} if strength is None or not model.has_strength else {"adapter_strength": strength}
    )
    if path is None:
        return fields | {"checkpoint": project.run_dir / model.name, "features": features}
    fields["checkpoint"] = roots.inside(path, t("listen.checkpoint"))
    if features.is_dir() and not (path.parent / CODES_FILE).is_file():  # else the codes of its export
        fields["features"] = features
    return fields


def find_model(project: Project, name: str | None) -> SavedModel:
    """Return the model in the file `name` of the run, or the adapter of this choice, else a UserError."""
    found = speakers(project)
    for model in found:
        if name in model.names:
            return model
    if not found:
        raise LinkedError(made_by("training", t("listen.no_checkpoint_yet")))
    raise UserError(t("listen.no_checkpoint"))


def model_or_best(project: Project, name: str | None) -> SavedModel:
    """Return the model of the file `name`, or while the menu is empty, the one it will select."""
    found = speakers(project)
    return found[0] if found and not name else find_model(project, name)


def speaker_choices(project: Project) -> list[tuple[str, str]]:
    """Return label (step, validation loss, files) and name of each model of the run and of each adapter."""
    losses = validation_losses(read_run(project.run_dir))
    found = []
    for model in speakers(project):
        if model.adapter:
            found.append((model.title, model.name))
            continue
        loss = losses.get((model.meta.part, model.meta.step))
        values = {"model": model.title, "loss": loss, "files": ", ".join(model.names)}
        found.append((t("listen.label" if loss is None else "listen.label_with_loss", **values), model.name))
    return found


def kept_choice(project: Project, now: str | None) -> str | None:
    """Return the choice of the model that `now` names, which may be another file of it; None without one."""
    return next((model.name for model in speakers(project) if now in model.names), None)


def normalizer_of(project: Project, name: str | None) -> NormalizerOptions:
    """Return the normaliser options of a checkpoint, or the defaults."""
    try:
        record = dict(find_model(project, name).meta.normalizer)
        record.pop("version", None)
        return NormalizerOptions.model_validate(record)
    except (UserError, ValidationError):  # no such checkpoint; written by a newer version
        return DEFAULT_OPTIONS


CLIPS_OF_A_SPEAKER = 5
MAX_CLIPS = 200
UPLOAD, CLIP = "upload:", "clip:"


def voice_choices(project: Project) -> list[tuple[str, str]]:
    """Return label and value of each choice: the uploads, then the longest clips of each speaker to 15 s."""
    uploads = [(t("listen.uploaded", name=path.name), UPLOAD + path.name) for path in _uploads(project)]
    clips = [
        (f"{clip.speaker}: {clip.id}, {clip.duration_s:.1f} s", CLIP + clip.id) for clip in _clips(project)
    ]
    return uploads + clips


def voice_named(project: Project, name: str) -> str:
    """Return the choice of the upload, or of the speaker's longest clip, with this name; "" without one."""
    uploads = [UPLOAD + path.name for path in _uploads(project) if path.stem == name]
    return next(iter(uploads + [CLIP + clip.id for clip in _clips(project) if clip.speaker == name]), "")


def find_recording(project: Project, choice: str | None, roots: Roots) -> Path:
    """Return the recording of a choice, or the first while the menu is empty, else a UserError."""
    choice = choice or next((value for _, value in voice_choices(project)), "")
    for path in _uploads(project):
        if choice == UPLOAD + path.name:
            return path
    for clip in _utterances(project):
        if choice == CLIP + clip.id:
            return roots.inside(clip.audio, f"the recording of {clip.id}")
    raise LinkedError(made_by("data", t("listen.no_voice")))


def _uploads(project: Project) -> list[Path]:
    folder = project.listen / VOICES_NAME
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if not path.name.startswith(".") and path.is_file())


def _clips(project: Project) -> list[Utterance]:
    fitting = [clip for clip in _utterances(project) if clip.duration_s <= MAX_REFERENCE_S]
    fitting.sort(key=lambda clip: (clip.speaker, -clip.duration_s, clip.id))
    chosen = []
    for _, clips in groupby(fitting, lambda clip: clip.speaker):
        chosen += list(clips)[:CLIPS_OF_A_SPEAKER]
    return chosen[:MAX_CLIPS]


def _utterances(project: Project) -> Sequence[Utterance]:
    try:
        return utterances_of(project.manifest)
    except UserError:  # not imported yet, or being imported
        return ()
