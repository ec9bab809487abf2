"""Card of a published model: the card of its export, with base and licence, losses, scores and samples.

The YAML at its top is what the hub reads: languages, licence, base model, data sets.
"""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure

from indextts.commands.bases import Base
from indextts.errors import UserError
from indextts.runs.directory import read_metrics
from indextts.speech.evaluation.scores import Row, markdown_table
from indextts.system.json_lines import read_json_lines

BASE_LICENCE = "bilibili-model-use-license"
LICENCE_NAME, CURVE_NAME = "LICENSE.txt", "losses.png"
MAX_SAMPLES = 10
HEAD = re.compile(r"^---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
DATASET = re.compile(r"\]\(https?://[^/)]+/datasets/([\w.-]+/[\w.-]+)\)")


def hub_card(
    base: Base,
    exported: str,
    repository: str,
    *,
    statement: str,
    scores: Sequence[Row],
    samples: Mapping[Path, str],
    has_curve: bool,
    is_adapter: bool,
) -> str:
    """Return the card as Markdown.

    Args:
        statement: the sentence that the base's licence requires; "" for a model with a base of its own.
        scores: of checkpoints and recordings; empty if none are known.
        samples: texts by the files that speak them.
    """
    found = HEAD.match(exported)
    head: dict[str, Any] = (yaml.safe_load(found[1]) if found else None) or {}
    body = exported[found.end() :] if found else exported
    datasets = sorted(set(DATASET.findall(body)))
    if datasets:
        head["datasets"] = datasets
    if statement:
        head |= {
            "license": "other",
            "license_name": BASE_LICENCE,
            "license_link": LICENCE_NAME,
            "base_model": base.repository,
        }
    sections = [body.strip(), _use(base, repository, is_adapter)]
    if statement:
        sections.append(
            f"## Base model and licence\n\nTrained from the weights of {base.repository}, whose licence "
            f"applies to this model: [{LICENCE_NAME}]({LICENCE_NAME}). LICENSE-NOTE.txt summarises its "
            "terms.\n\n"
            f"> {statement}"
        )
    if has_curve:
        sections.append(f"## Losses\n\n![Losses of training and validation]({CURVE_NAME})")
    if scores:
        sections.append("\n".join(["## Scores on held-out sentences", "", *markdown_table(scores)]))
    if samples:
        lines = [f"* [{text}](samples/{path.name})" for path, text in samples.items()]
        sections.append("\n".join(["## Samples", "", *lines]))
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(sections) + "\n"


def _use(base: Base, repository: str, is_adapter: bool) -> str:
    usage = (
        "## Use\n\nIn a checkout of the program that made this model:\n\n"
        f"    python tools/synthesize.py --checkpoint={repository} --voice=VOICE.wav --text=TEXT"
    )
    if is_adapter:
        return f"{usage} --models={base.folder}"
    return (
        f"{usage}\n\nThe official page of {base.title} loads gpt.pth, which is the same weights:\n\n"
        "    python -c \"import torch, safetensors.torch as s; torch.save(s.load_file('gpt.safetensors'), "
        "'gpt.pth')\""
    )


def read_samples(folder: Path) -> dict[Path, str]:
    """Return the first sound files of a folder of tools/synthesize.py with their texts.

    Raises:
        UserError: the folder has no valid spoken.jsonl, or an audio file is missing.
    """
    path = folder / "spoken.jsonl"
    samples: dict[Path, str] = {}
    for number, line in read_json_lines(path):
        name = line.get("file")
        if name is None or len(samples) == MAX_SAMPLES:
            continue
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise UserError(f"{path}:{number}: {name} is not a file in this folder; synthesize again")
        samples[folder / name] = " ".join(str(line.get("text", "")).split())
    return samples


def draw_losses(run_dir: Path, part: int | None, step: int | None) -> bytes:
    """Return a PNG of the losses of a run up to a step.

    Raises:
        UserError: the run has no metrics of this part.
    """
    path = run_dir / "metrics.jsonl"
    lines = [
        line
        for line in (read_metrics(path) if path.is_file() else [])
        if part in (None, line["part"]) and (step is None or line["step"] <= step)
    ]
    if not any(line["kind"] == "train" for line in lines):
        raise UserError(f"{path}: no metrics up to step {step} of part {part}; pass the run's directory")
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, loss, title in zip(axes, ("mel_loss", "text_loss"), ("semantic codes", "text"), strict=True):
        for kind, label in (("train", "training"), ("val", "validation")):
            points = [(line["step"], line[loss]) for line in lines if line["kind"] == kind]
            if points:
                axis.plot(*zip(*points, strict=True), label=label)
        axis.set(title=title, xlabel="step", ylabel="nats per token")
        axis.legend()
    png = io.BytesIO()
    figure.savefig(png, dpi=100, format="png")
    return png.getvalue()
