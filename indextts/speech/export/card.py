"""The model card of an exported model."""

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import indextts
from indextts.commands.bases import Base
from indextts.data.manifest import Pair, TextOrigin, read_pairs
from indextts.data.sources import read_sources
from indextts.errors import UserError
from indextts.models.adapter_file import PATH_SETTINGS
from indextts.runs.directory import CheckpointMeta, FileIdentity, identify
from indextts.speech.export.client import Client
from indextts.speech.export.official_files import files_of, replaces_model
from indextts.speech.export.source import Source
from indextts.text.languages import AMHARIC

logger = logging.getLogger(__name__)

ORIGINS: dict[TextOrigin, str] = {
    "given": "came with the recordings",
    "reviewed": "were confirmed or corrected by a person",
    "agreed": "were heard by two speech recognizers that agree",
    "aligned": "were aligned with the recordings by a program",
    "heard": "were heard by one speech recognizer",
}

# Texts of the card. The official front ends know no Ethiopic mark; that of 2.0 reads digits of a text without
# Latin letters in Chinese, and that of 2.5 leaves them as digits.
HERE = Path(__file__).parent

Logits = Mapping[str, Mapping[str, float]]  # of export.json: difference and tolerance by file


def model_card(base: Base, source: Source, dtype: str, logits: Logits, usage: str) -> str:
    """Return the card as Markdown, with file names but without paths of this machine.

    Args:
        usage: from `usage_of` or `official_usage`.
    """
    sections = [_head(base, source, usage)]
    sections[0] += "".join(
        f"\n* {name}: {dtype}; relative difference of its logits to the checkpoint's on fixed "
        f"inputs: {found['difference']:.1e} (tolerance {found['allowed']:g})"
        for name, found in logits.items()
    )
    if source.meta is not None:
        sections += [_data(source.meta), _training(source.meta), _settings(source.meta)]
    sections.append(_identity(source))
    return "\n\n".join(sections) + "\n"


def _head(base: Base, source: Source, usage: str) -> str:
    names = ", ".join(path.name for path in source.paths)
    what = names if len(source.paths) == 1 else f"the mean of {names}"
    if source.ema_decay is not None:
        what = f"the moving average of the weights (decay {source.ema_decay:g}) in {names}"
    lines = [
        "---",
        f"language: {_language(source)}",
        "license: other",
        "pipeline_tag: text-to-speech",
        "---",
        "",
        f"# A voice for {base.title}",
        "",
        f"The GPT of {base.title} with more text pieces, from {what}, made with {_program()}.",
        "",
        usage,
        "For the terms of use see LICENSE-NOTE.txt.",
        "",
    ]
    return "\n".join(lines)


def usage_of(kind: Literal["builtin", "adapter"], base: Base) -> str:
    """Return how this program speaks with a folder that the official one cannot load."""
    return (HERE / f"card_{kind}.txt").read_text(encoding="utf-8").format(folder=base.folder)


def official_usage(base: Base, source: Source, client: Client) -> str:
    """Return how the official program speaks with this folder."""
    language, chosen = _language(source), client.page_language
    menu = (
        f"Choose `{chosen}` in its menu: in this export {language} and {chosen} have changed places, so that "
        f"it speaks no {chosen} any more; without `--page-language`, `tools/export_gpt.py` writes one that "
        f"keeps {chosen}, for the class."
        if chosen
        else f"Its menu has {', '.join(base.trained_languages)} only. To speak {language} there, export with "
        f"`--page-language ar`, which costs Arabic: both change places, and ar in the menu speaks {language}."
    )
    usage = (HERE / f"card_{base.name}.txt").read_text(encoding="utf-8")
    return (
        (HERE / "card_official.txt")
        .read_text(encoding="utf-8")
        .format(
            usage=usage.format(page=base.official_page, menu=menu, language=chosen or language),
            needed=", ".join(file.place for file in files_of(base) if replaces_model(base, file)),
            positions=client.positions or "published",
        )
    )


def _language(source: Source) -> str:
    return (source.tokenizer.get("normalizer") or {}).get("language", AMHARIC)  # type: ignore[no-any-return]


def _program() -> str:
    """Return the name of this program, with its address where README.md has one."""
    readme = Path(indextts.__file__).parents[1] / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    found = re.search(r"git clone (https?://\S+)", text)
    return f"[IndexTTS2 Amharic]({found[1]})" if found else "IndexTTS2 Amharic"


def _data(meta: CheckpointMeta) -> str:
    num_train = len(meta.settings.get("train_manifest", []))
    head = "| pairs file | use | utterances | speakers | hours | texts |"
    lines = ["## Data", "", head, "|---|---|---|---|---|---|"]
    for number, file in enumerate(meta.manifests):
        use = "training" if number < num_train else "validation"
        lines.append(f"| {Path(file.path).name} | {use} | {_counts(file)} |")
    origins = _origins(meta)
    return "\n".join([*lines, "", *origins] if origins else lines)


def _origins(meta: CheckpointMeta) -> list[str]:
    """Return the data sets that the run's project was imported from, if they name a licence."""
    project = Path(meta.manifests[0].path).parent.parent if meta.manifests else Path()
    try:
        sources = read_sources(project / "dataset")
    except UserError as error:
        logger.warning("the model card lists no data sets: %s", error)
        return []
    return [
        ("* trained on: " + (f"[{source.name}]({source.url})" if source.url else source.name))
        + (f", subset {source.subset}" if source.subset else "")
        + (f", revision {source.revision[:12]}" if source.revision else "")
        + f"; licence: {source.shown_licence}"
        for source in sources.values()
    ]


def _counts(file: FileIdentity) -> str:
    """Return the amounts of a pairs file and where its texts come from; "unknown" if it has changed since."""
    path = Path(file.path)
    try:
        if identify(path).digest != file.digest:
            return "unknown: the file has changed | | |"
        pairs = read_pairs(path)
    except (OSError, UserError):
        return "unknown: the file no longer exists | | |"
    duration_s = {pair.target_key: pair.target_duration_s for pair in pairs}
    speakers = {pair.speaker for pair in pairs}
    texts = "; ".join(_origin_shares({pair.target_key: pair for pair in pairs}.values()))
    return f"{len(duration_s):,} | {len(speakers):,} | {sum(duration_s.values()) / 3600:.2f} | {texts}"


def _origin_shares(targets: Collection[Pair]) -> Iterator[str]:
    """Yield each origin of texts with its share of the speech."""
    total_s = sum(pair.target_duration_s for pair in targets)
    for origin, what in ORIGINS.items():
        found_s = sum(pair.target_duration_s for pair in targets if pair.target_text_origin == origin)
        if found_s:
            yield f"{100 * found_s / total_s:.1f} % {what}"


def _training(meta: CheckpointMeta) -> str:
    rows = {
        "step": meta.step,
        "epoch": meta.epoch,
        "part of the run": meta.part,
        "best of its run directory when saved": "yes" if meta.is_best else "no",
        **{f"last {name.replace('_', ' ')}": f"{loss:.4f}" for name, loss in meta.losses.items()},
        **meta.environment,
    }
    return "## Training\n\n" + _table(rows)


def _settings(meta: CheckpointMeta) -> str:
    recipe = {"recipe": meta.recipe} if meta.recipe else {}
    rows = recipe | {name: value for name, value in meta.settings.items() if name not in PATH_SETTINGS}
    return "## Settings\n\n" + _table({name: _shown(value) for name, value in rows.items()})


def _identity(source: Source) -> str:
    rows: dict[str, Any] = {
        "tokenizer fingerprint": source.tokenizer.get("fingerprint", "unknown"),
        "pieces": len(source.tokenizer.get("pieces", ())) or "unknown",
        "pieces of the base": source.tokenizer.get("base_size", "unknown"),
    }
    if source.meta is not None:
        base = source.meta.base
        rows["base model"] = f"{Path(base.path).name}, {base.num_bytes:,} bytes, digest {base.digest}"
    normalizer = source.tokenizer.get("normalizer") or {}
    rows |= {f"normaliser: {name}": _shown(value) for name, value in normalizer.items()}
    return "## Tokenizer and base\n\n" + _table(rows)


def _table(rows: dict[str, Any]) -> str:
    lines = ["| | |", "|---|---|"]
    for name, value in rows.items():
        cell = " ".join(str(value).replace("|", "\\|").split())
        lines.append(f"| {name} | {cell} |")
    return "\n".join(lines)


def _shown(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], list):
        return f"{len(value)} rows, in spoken_text/"
    return "none" if value in (None, "", []) else value
