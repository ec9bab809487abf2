"""The model card: what somebody who finds the folder later must know about it.

What goes with a model that was made from the published weights; facts, in our words.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indextts.data.manifest import read_pairs
from indextts.errors import UserError
from indextts.runs.directory import CheckpointMeta, FileIdentity, identify
from indextts.speech.export.source import Source

# Settings of the run that say where, not what.
PLACES = frozenset(
    {"train_manifest", "val_manifest", "tokenizer", "config", "base_checkpoint", "output_dir", "resume"}
)
BESIDE = "s2mel.pth, wav2vec2bert_stats.pt, feat1.pt, feat2.pt and the folder qwen0.6bemo4-merge"


@dataclass(frozen=True)
class Checked:
    """How an exported file compares with its checkpoint.

    Args:
        name: of the file.
        dtype: of its weights.
        difference: of the logits, as a share of their size.
        allowed: the largest that passes.
    """

    name: str
    dtype: str
    difference: float
    allowed: float


def model_card(source: Source, checked: list[Checked]) -> str:
    """Return the card as Markdown; names of files, but no path of this machine."""
    sections = [_head(source, checked)]
    if source.meta is not None:
        sections += [_data(source.meta), _training(source.meta), _settings(source.meta)]
    sections.append(_identity(source))
    return "\n\n".join(sections) + "\n"


def _head(source: Source, checked: list[Checked]) -> str:
    names = ", ".join(path.name for path in source.paths)
    what = names if len(source.paths) == 1 else f"the mean of {names}"
    if source.ema_decay is not None:
        what = f"the moving average of the weights (decay {source.ema_decay:g}) in {names}"
    lines = [
        "---",
        "language: am",
        "license: other",
        "pipeline_tag: text-to-speech",
        "---",
        "",
        "# A voice for IndexTTS-2",
        "",
        f"The GPT of IndexTTS-2 with more text pieces, from {what}.",
        "",
        "IndexTTS-2 loads this folder as its `checkpoints/` once the published files that no training "
        f"changes lie in it too: {BESIDE}. It reads gpt.pth; a gpt.safetensors holds the same for other "
        "programs. What may be done with the model: LICENSE-NOTE.txt.",
        "",
    ]
    lines += [
        f"* {file.name}: {file.dtype}; read back, its logits on fixed inputs differ from the checkpoint's by "
        f"{file.difference:.1e} of their size (allowed: {file.allowed:g})"
        for file in checked
    ]
    return "\n".join(lines)


def _data(meta: CheckpointMeta) -> str:
    num_train = len(meta.settings.get("train_manifest", []))
    lines = ["## Data", "", "| pairs file | use | utterances | speakers | hours |", "|---|---|---|---|---|"]
    for number, file in enumerate(meta.manifests):
        use = "training" if number < num_train else "validation"
        lines.append(f"| {Path(file.path).name} | {use} | {_counts(file)} |")
    return "\n".join(lines)


def _counts(file: FileIdentity) -> str:
    """Return utterances, speakers and hours of a pairs file; "not known" if it is no more what it was."""
    path = Path(file.path)
    try:
        if identify(path).digest != file.digest:
            return "not known: the file was changed | |"
        pairs = read_pairs(path)
    except (OSError, UserError):
        return "not known: the file is not there any more | |"
    duration_s = {pair.target_key: pair.target_duration_s for pair in pairs}
    speakers = {pair.speaker for pair in pairs}
    return f"{len(duration_s):,} | {len(speakers):,} | {sum(duration_s.values()) / 3600:.2f}"


def _training(meta: CheckpointMeta) -> str:
    rows = {
        "step": meta.step,
        "epoch": meta.epoch,
        "part of the run": meta.part,
        "best of its part when it was saved": "yes" if meta.is_best else "no",
        **{f"last {name.replace('_', ' ')}": f"{loss:.4f}" for name, loss in meta.losses.items()},
        **meta.environment,
    }
    return "## Training\n\n" + _table(rows)


def _settings(meta: CheckpointMeta) -> str:
    rows = {name: value for name, value in meta.settings.items() if name not in PLACES}
    return "## Settings\n\n" + _table({name: _shown(value) for name, value in rows.items()})


def _identity(source: Source) -> str:
    rows: dict[str, Any] = {
        "tokenizer's fingerprint": source.tokenizer.get("fingerprint", "not known"),
        "pieces": len(source.tokenizer.get("pieces", ())) or "not known",
        "pieces of the base": source.tokenizer.get("base_size", "not known"),
    }
    if source.meta is not None:
        base = source.meta.base
        rows["base model"] = f"{Path(base.path).name}, {base.num_bytes:,} bytes, digest {base.digest}"
    normalizer = source.tokenizer.get("normalizer") or {}
    rows |= {f"normaliser: {name}": _shown(value) for name, value in normalizer.items()}
    return "## Tokenizer and base\n\n" + _table(rows)


def _table(rows: dict[str, Any]) -> str:
    lines = ["| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(lines)


def _shown(value: Any) -> Any:
    return "none" if value in (None, "", []) else value


def _cell(value: Any) -> str:
    return " ".join(str(value).replace("|", "\\|").split())


LICENCE_NOTE = """\
Licence of this model
=====================

This is a note, not the licence. If gpt.pth was trained from the published weights of IndexTTS-2, the bilibili
Model Use License that comes with those weights applies to it. Read that text before you pass anything on;
where this note and the text differ, the text holds. A base with weights of your own is not concerned.

* A fine-tuned model counts as a derivative work of the published one (1.4), so the same terms hold for it.
* Keep the licence text and all notices that came with the base model, and put them into this folder.
* Where you offer the model or what uses it, state the sentence that 4.1a prescribes; take it from the text.
* Pass the terms on: whoever gets the model from you is bound by them too.
* The model and what it makes may not be used to improve other AI models, non-commercial ones excepted (3.4c).
* Above 100 million monthly users, or 1 billion RMB of revenue, a separate licence is needed (2.2).

The recordings have rights of their own: say whose voice it is, and that its owner agrees to what you do.
"""
