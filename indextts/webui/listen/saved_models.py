"""Checkpoints and voices that tab 8 can choose from. No Gradio or torch here.

A voice is `upload:NAME`, an uploaded recording, or `clip:ID`, a clip of the data set. A request can name
anything, so every choice is looked up, and a recording outside the allowed folders is refused.
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from pydantic import ValidationError

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.data.manifest import Utterance
from indextts.errors import UserError
from indextts.features.audio import MAX_REFERENCE_S
from indextts.projects.project import Project
from indextts.runs.checkpoints import meta_of, validation_losses
from indextts.runs.directory import CheckpointMeta, checkpoint_files
from indextts.webui.data.uploads import VOICES_NAME
from indextts.webui.language import t
from indextts.webui.monitor.metrics_reader import RUNS
from indextts.webui.serving.security import Roots
from indextts.webui.view_versions import utterances_of

LABEL = "listen.label"
LABEL_WITH_LOSS = "listen.label_with_loss"


def names(project: Project) -> list[str]:
    """Return the names of the run's checkpoints, best first."""
    found = [path.name for path in checkpoint_files(project.run_dir)]
    return sorted(found, key=lambda name: (name != "best.pth", name != "latest.pth", name))


def choices(project: Project) -> list[tuple[str, str]]:
    """Return label (with step and validation loss) and name of each usable checkpoint."""
    losses = validation_losses(RUNS.of(project.run_dir).read())
    found = []
    for name in names(project):
        meta = _meta(project, name)
        if meta is None:
            continue
        loss = losses.get((meta.part, meta.step))
        values = {"name": name, "step": meta.step, "loss": loss, "pieces": meta.tokenizer_size}
        found.append((t(LABEL if loss is None else LABEL_WITH_LOSS, **values), name))
    return found


def normalizer_of(project: Project, name: str | None) -> NormalizerOptions:
    """Return the normaliser options of a checkpoint, or the defaults."""
    meta = _meta(project, name or "")
    try:
        record = {} if meta is None else dict(meta.normalizer)
        record.pop("version", None)
        return NormalizerOptions.model_validate(record)
    except ValidationError:  # written by a newer version
        return DEFAULT_OPTIONS


def _meta(project: Project, name: str) -> CheckpointMeta | None:
    if name not in names(project):
        return None
    return meta_of(project.run_dir / name)


CLIPS_OF_A_SPEAKER = 5
MAX_CLIPS = 200
UPLOAD, CLIP = "upload:", "clip:"
NOT_CHOSEN = "listen.no_voice"
UPLOADED = "listen.uploaded"


def voice_choices(project: Project) -> list[tuple[str, str]]:
    """Return label and value of each choice: the uploads, then the longest clips of each speaker to 15 s."""
    uploads = [(t(UPLOADED, name=path.name), UPLOAD + path.name) for path in _uploads(project)]
    clips = [
        (f"{clip.speaker}: {clip.id}, {clip.duration_s:.1f} s", CLIP + clip.id) for clip in _clips(project)
    ]
    return uploads + clips


def find_recording(project: Project, choice: str | None, roots: Roots) -> Path:
    """Return the recording of a choice.

    Raises:
        UserError: there is none, or it is outside the allowed folders.
    """
    choice = choice or ""
    for path in _uploads(project):
        if choice == UPLOAD + path.name:
            return path
    for clip in _utterances(project):
        if choice == CLIP + clip.id:
            return roots.inside(clip.audio, f"the recording of {clip.id}")
    raise UserError(t(NOT_CHOSEN))


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
