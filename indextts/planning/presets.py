"""Presets of the training form, each with the source of its values.

docs/training.md has the same values for 10, 50 and 200 hours as a table, and lists the recommendations of the
former system that they come from. No comparison of the presets has been published.
"""

from dataclasses import dataclass
from typing import Any

from indextts.commands.train import Train
from indextts.system.messages import Message

END_TO_END = Message("planning.from_end_to_end")
TWO_HUNDRED_HOURS = Message("planning.from_two_hundred_hours")
DEMO = Message("planning.from_demo")


@dataclass(frozen=True)
class Preset:
    """Values for fields of the Train command.

    Args:
        id: a stable name, for drafts and tests.
        label: the id of a message.
        fields: values by field, None for an automatic one; the other fields of the form keep theirs.
        source: the origin of the values, shown to the user.
    """

    id: str
    label: str
    fields: dict[str, Any]
    source: Message


_AUTOMATIC = {**dict.fromkeys(sorted(Train.automatic)), "step_pairs": 32}
_SET_C = {
    "learning_rate": 2e-5,
    "new_row_lr_scale": 1.0,
    "text_loss_weight": 0.2,
    "mel_loss_weight": 0.8,
    "weight_decay": 0.01,
    "val_interval": 1000,
    "save_interval": 1000,
    "keep_checkpoints": 3,
    "log_interval": 100,
    "max_steps": 0,
    **_AUTOMATIC,
}

PRESETS = (
    Preset(
        "hours_200",
        "planning.preset_hours_200",
        {
            **_SET_C,
            "learning_rate": 5e-5,
            "text_loss_weight": 0.3,
            "mel_loss_weight": 0.7,
            "warmup_steps": 4000,
            "epochs": 3,
            "val_interval": 500,
            "keep_checkpoints": 5,
        },
        TWO_HUNDRED_HOURS,
    ),
    Preset("hours_50", "planning.preset_hours_50", {**_SET_C, "warmup_steps": 1000, "epochs": 6}, END_TO_END),
    Preset(
        "hours_10",
        "planning.preset_hours_10",
        {**_SET_C, "warmup_steps": 400, "epochs": 10, "val_interval": 0},
        END_TO_END,
    ),
    Preset(
        "demo",
        "planning.preset_demo",
        {
            "epochs": 4,
            "batch_size": 4,
            "batch_tokens": 0,
            "step_pairs": None,
            "grad_accumulation": 1,
            "num_workers": 0,
            "grad_checkpointing": False,
            "compile": False,
            "learning_rate": 7e-4,
            "new_row_lr_scale": 5.0,
            "warmup_steps": 30,
            "log_interval": 10,
            "val_interval": 20,
            "save_interval": 40,
            "keep_checkpoints": 3,
            "text_loss_weight": 0.2,
            "mel_loss_weight": 0.8,
            "weight_decay": 0.01,
            "max_steps": 0,
            "amp": False,
        },
        DEMO,
    ),
)


def find_preset(id: str) -> Preset:
    """Return the preset with an id from PRESETS."""
    return next(preset for preset in PRESETS if preset.id == id)
