"""Comparison of settings of a fine-tuning for a new language, one factor at a time.

    python -m benchmarks.tried_settings --folder DIR [--steps 500] [--seeds 0 --seeds 1 ...]

DIR is a folder of benchmarks/learns_to_speak.py with a base and a recognizer; what is missing is made. Every
setting starts from the base, learns Amharic phrases for the same number of steps, and speaks held-out
sentences, to which the recognizer listens. The same command continues after a kill.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from benchmarks.frame import publish, table
from benchmarks.learns_to_speak import (
    FINE_TUNING,
    SIZES,
    FromTrainedBase,
    Studio,
    amharic_pairs,
    curve,
    held_out_texts,
    make_base,
    make_speech,
    spread,
    train,
    trained_recognizer,
    training,
)
from indextts.commands.terminal import parse, run

DEFAULT = "as in learns_to_speak"  # learning rate 3e-3, text loss weight 0.05
SETTINGS: Mapping[str, Mapping[str, object]] = {
    DEFAULT: {},
    "learning rate 1e-3": {"learning_rate": 1e-3},
    "learning rate 6e-3": {"learning_rate": 6e-3},
    "rate of new rows x 3": {"new_row_lr_scale": 3.0},
    "rate of new rows x 10": {"new_row_lr_scale": 10.0},
    "body frozen for 100 steps": {"freeze_body_steps": 100},
    "text loss weight 0.01": {"text_loss_weight": 0.01, "mel_loss_weight": 0.99},
    "text loss weight 0.2": {"text_loss_weight": 0.2, "mel_loss_weight": 0.8},
    "text loss weight 0.5": {"text_loss_weight": 0.5, "mel_loss_weight": 0.5},
}


class TriedSettings(FromTrainedBase):
    """Compare settings of a fine-tuning by the error rate of what the model speaks."""

    program: ClassVar[str] = "benchmarks.tried_settings"


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(TriedSettings, argv)
    studio = Studio(command.folder.resolve(), SIZES[command.size])
    make_base(studio)
    recognizer = trained_recognizer(studio)
    held_out = make_speech(studio.folder / "held_out", [("am", text) for text in held_out_texts()])
    pairs, tokenizer = amharic_pairs(studio)
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in command.seeds:
        for name, changes in SETTINGS.items():
            run_dir = studio.folder / "settings" / f"{name.replace(' ', '_')}_{command.steps}_{seed}"
            run_dir.parent.mkdir(exist_ok=True)
            train(
                studio,
                training(
                    studio,
                    pairs,
                    studio.base,
                    tokenizer,
                    run_dir,
                    command.steps,
                    seed,
                    **{**FINE_TUNING, **changes},
                ),
            )
            [(_, mel_loss, heard)] = curve(studio, run_dir, recognizer, held_out, only_last=True)
            found.setdefault(name, []).append((mel_loss, heard))
    header = ["setting", "validation mel loss", "character error rate", "difference to the first line"]
    text = (
        f"{command.steps} steps each; mean over the seeds (smallest to largest). The difference is between "
        "runs of the same seed, that is of the same pairs in the same order."
    )
    publish(
        command,
        "Settings of a fine-tuning",
        [text, "", *table(header, [row(name, found) for name in SETTINGS])],
    )
    return 0


def row(name: str, found: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    losses, heard = zip(*found[name], strict=True)
    pairs = zip(found[name], found[DEFAULT], strict=True)
    return [name, spread(losses), spread(heard), spread([own[1] - base[1] for own, base in pairs])]


if __name__ == "__main__":
    run(main)
