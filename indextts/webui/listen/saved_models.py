"""The checkpoints of a run as choices, and how the texts of each are normalised. No Gradio, no torch here."""

from pydantic import ValidationError

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.projects.project import Project
from indextts.runs.checkpoints import meta_of, validation_losses
from indextts.runs.directory import CheckpointMeta, checkpoint_files
from indextts.webui.language import t
from indextts.webui.monitor.metrics_reader import RUNS

LABEL = "{name}: step {step}, {pieces:,} pieces"
LABEL_WITH_LOSS = "{name}: step {step}, validation mel loss {loss:.3f}, {pieces:,} pieces"


def names(project: Project) -> list[str]:
    """Return the names of the run's checkpoints, the best first."""
    found = [path.name for path in checkpoint_files(project.run_dir)]
    return sorted(found, key=lambda name: (name != "best.pth", name != "latest.pth", name))


def choices(project: Project) -> list[tuple[str, str]]:
    """Return label and name of each checkpoint that can speak: with its step and validation loss."""
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
    """Return how texts are read for a checkpoint; the default where it does not say so."""
    meta = _meta(project, name or "")
    try:
        record = {} if meta is None else dict(meta.normalizer)
        record.pop("version", None)
        return NormalizerOptions.model_validate(record)
    except ValidationError:  # of a newer version
        return DEFAULT_OPTIONS


def _meta(project: Project, name: str) -> CheckpointMeta | None:
    if name not in names(project):
        return None
    return meta_of(project.run_dir / name)
