"""What a run that goes on finds different from what its checkpoint was made with: which value holds, and why.

No torch here, and no decision: `indextts.runs.restore` decides, this says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from indextts.commands.train import Train
from indextts.runs.directory import CheckpointMeta, FileIdentity

# What another value changes; of a setting that is not here: from the next step on, and no more.
EFFECTS = {
    "learning_rate": "the peak of the schedule",
    "warmup_steps": "the beginning of the schedule",
    "epochs": "the length of the run and of the schedule",
    "max_steps": "the length of the run and of the schedule",
    "batch_size": "the samples of a step, the steps of an epoch and so the schedule",
    "batch_tokens": "the samples of a step, the steps of an epoch and so the schedule",
    "grad_accumulation": "the samples of a step, the steps of an epoch and so the schedule",
    "text_loss_weight": "the gradient; the logged losses stay comparable",
    "mel_loss_weight": "the gradient; the logged losses stay comparable",
    "amp": "the rounding, from the next step on",
    "optimizer_state": "the rounding of the moments, from the next step on",
    "ema_decay": "the averaged weights; what is trained does not depend on them",
    "padding": "whether a sample's loss depends on its batch; losses before and after are not comparable",
    "seed": "order and dropout are drawn anew; the epoch starts at its beginning",
    "val_batch_size": "which samples are validated on, where --max-val-batches cuts them",
    "max_val_batches": "which samples are validated on: losses before and after are not comparable",
}
LAST_BITS = "the state is exact, results may differ in the last bits"
ENVIRONMENT_EFFECTS = {
    "torch": LAST_BITS,
    "device": LAST_BITS,
    "threads": LAST_BITS,
    "arithmetic": "the rounding, from the next step on",
    "processes": "the samples of a step and so the schedule, unless the batch of each makes up for it",
    "attention": "the rounding and, where one of them has none, the dropout of attention",
}
READ_OTHERWISE = "texts are read otherwise than before, so losses before and after are not comparable"
# Of the config, what no weight's shape depends on: it may change. The pieces are compared as such.
NO_SIZES = ("dropout", "pe_length", "number_text_tokens")


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    Args:
        name: a field of Train where it is one.
        before: in the checkpoint.
        now: in the command, or on this machine.
        holds: which of the two the run goes on with.
        effect: what the difference changes.
    """

    name: str
    before: str
    now: str
    holds: Literal["now", "checkpoint"]
    effect: str

    @property
    def values(self) -> str:
        return f"{self.before} -> {self.now}" if self.holds == "now" else f"{self.before} stays"

    def __str__(self) -> str:
        return f"{self.name}: {self.values}; {self.effect}"


def setting_differences(stored: Mapping[str, Any], asked: Train, holding: Train) -> list[Difference]:
    """Return the settings that differ between the checkpoint and the command.

    Args:
        stored: `CheckpointMeta.settings`.
        asked: the command as it was given, with defaults.
        holding: the command with the values that hold.
    """
    now, held = asked.model_dump(mode="json"), holding.model_dump(mode="json")
    found = []
    for name in Train.model_fields:
        if name in Train.of_process or name not in stored or stored[name] == now[name]:
            continue
        before, after = _shown(stored[name]), _shown(now[name])
        if held[name] == now[name]:
            effect = EFFECTS.get(name, "from the next step on")
            found.append(Difference(name, before, after, "now", effect))
        else:
            effect = f"the run's own, since it was not given now (the default is {after})"
            found.append(Difference(name, before, after, "checkpoint", effect))
    return found


def manifest_differences(
    meta: CheckpointMeta, command: Train, manifests: Sequence[FileIdentity], num_samples: int
) -> list[Difference]:
    """Return whether the pairs differ, by content and not by path.

    Args:
        manifests: of the command, train first and then val.
        num_samples: of an epoch now.
    """
    old, new = recorded_manifests(meta), split_manifests(manifests, len(command.train_manifest))
    effects = {
        "train_manifest": f"other samples, {meta.num_samples:,} before and {num_samples:,} now: "
        "the epoch starts at its beginning",
        "val_manifest": "validation losses before and after are of other samples",
    }
    return [
        Difference(name, _names(old[name]), _names(new[name]), "now", effect)
        for name, effect in effects.items()
        if [file.digest for file in old[name]] != [file.digest for file in new[name]]
    ]


def recorded_manifests(meta: CheckpointMeta) -> dict[str, list[FileIdentity]]:
    """Return the recorded manifests by the field that they were given in."""
    return split_manifests(meta.manifests, len(meta.settings["train_manifest"]))


def split_manifests(manifests: Sequence[FileIdentity], num_train: int) -> dict[str, list[FileIdentity]]:
    return {"train_manifest": list(manifests[:num_train]), "val_manifest": list(manifests[num_train:])}


def config_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return what differs in the config and is no size."""
    return [
        Difference(f"config {name}", _shown(old[name]), _shown(new[name]), "now", "from the next step on")
        for name in NO_SIZES
        if name != "number_text_tokens" and name in old and name in new and old[name] != new[name]
    ]


def normalizer_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return what differs in how texts are normalised; an older checkpoint does not know it."""
    return [
        Difference(f"normalizer {name}", _shown(old[name]), _shown(new[name]), "now", READ_OTHERWISE)
        for name in new
        if name in old and old[name] != new[name]
    ]


def size_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the sizes of the model that differ, one phrase each."""
    names = [name for name in {**old, **new} if name not in NO_SIZES]
    return [
        f"{name} is {old.get(name, 'absent')} in the checkpoint and {new.get(name, 'absent')} in the config"
        for name in names
        if old.get(name) != new.get(name)
    ]


def environment_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return what differs in the machine; what one side does not know is not compared."""
    old = {"processes": 1, **old}  # an older checkpoint does not know of more
    return [
        Difference(name, _shown(old[name]), _shown(new[name]), "now", effect)
        for name, effect in ENVIRONMENT_EFFECTS.items()
        if name in old and name in new and old[name] != new[name]
    ]


def _names(files: Sequence[FileIdentity]) -> str:
    return ", ".join(Path(file.path).name for file in files)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)
