"""Commands that use a checkpoint: export, synthesis, evaluation."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import (
    Field,
)

from indextts.commands.base import Command, Device
from indextts.commands.sampling_options import Sampling

Weights = Literal["raw", "averaged"]


CHOSEN_WEIGHTS = "Of a checkpoint: its weights, or their moving average (--ema-decay of the training)."


class ExportModel(Command):
    """Write a model folder (gpt.pth, bpe.model, config.yaml, model card) from a checkpoint, and check it."""

    program: ClassVar[str] = "tools/export_gpt.py"
    checkpoint: Path = Field(description="A checkpoint of a run.")
    config: Path = Field(Path("checkpoints/config.yaml"), description="The config it was trained with.")
    output_dir: Path = Field(description="The model folder to write.")
    dtype: Literal["float32", "float16", "bfloat16"] = Field("float32", description="Type of the weights.")
    format: Literal["pth", "safetensors", "both"] = Field(
        "pth", description="gpt.pth, which IndexTTS2 loads; gpt.safetensors; or both."
    )
    average_last: int = Field(
        1, ge=1, description="Take the mean of the checkpoint and those saved before it, so many together."
    )
    weights: Weights = Field("raw", description=CHOSEN_WEIGHTS)


class Synthesize(Command, Sampling):
    """Speak texts with a checkpoint, in the voice of a recording.

    What speaks follows from the checkpoint: its tokenizer stands in it, and its codes are made sound by the
    backend that made the features it was trained on.
    """

    program: ClassVar[str] = "tools/synthesize.py"
    checkpoint: Path = Field(description="A checkpoint of a run, the run, or an exported model folder.")
    weights: Weights = Field("raw", description=CHOSEN_WEIGHTS)
    text: list[str] = Field([], description="What to say.")
    text_file: Path | None = Field(None, description="UTF-8 file with a text in each line.")
    voice: str = Field(description="Recording to speak like, or the id of an utterance in a --manifest.")
    manifest: list[Path] = Field(
        [], description="Where --voice is looked up; none: the manifests beside the pairs of the run."
    )
    output: Path = Field(
        Path("spoken"),
        description="Of one text a file NAME.wav; else a folder, which gets 001.wav and so on, and "
        "spoken.jsonl.",
    )
    features: Path | None = Field(
        None, description="Features that the run was trained on; none: those that its pairs name."
    )
    models: Path = Field(
        Path("checkpoints"), description="Folder of the published files that make sound of indextts2's codes."
    )
    emotion_voice: Path | None = Field(None, description="Recording whose emotion is taken.")
    emotion_alpha: float = Field(1.0, ge=0, le=1, description="How far to go to that emotion.")
    emotion: str = Field(
        "", description="indextts2: emotions by weight, such as happy=0.6,calm=0.2; their sum at most 1."
    )
    solver_steps: int = Field(25, ge=1, le=1000, description="indextts2: steps from noise to mel.")
    guidance: float = Field(
        0.7, ge=0, le=10, description="indextts2: how much voice and text are exaggerated."
    )
    device: Device = Field(
        "auto", description="Where to compute; auto: the card, but the CPU while the run is being trained."
    )


class Evaluate(Command, Sampling):
    """Score checkpoints on held-out sentences, beside the recordings of the same sentences.

    Each sentence is spoken in the voice of another clip of its speaker.
    """

    program: ClassVar[str] = "tools/evaluate.py"
    checkpoint: list[Path] = Field(
        min_length=1, description="A checkpoint of a run, the run, or an exported model folder."
    )
    weights: Weights = Field("raw", description=CHOSEN_WEIGHTS)
    manifest: Path = Field(description="Utterances held out, such as val_manifest.jsonl.")
    output_dir: Path = Field(description="Folder that gets report.md, scores.png and the sounds.")
    asr: list[Path] = Field(
        [], description="Folder of a CTC model that writes down what it hears, for the character error rate."
    )
    num_clips: int = Field(100, ge=0, description="Sentences to render, in turn of each speaker; 0 for all.")
    features: Path | None = Field(
        None, description="Features that the runs were trained on; none: those that their pairs name."
    )
    models: Path = Field(
        Path("checkpoints"), description="Folder of the published files; its CAM++ compares the voices."
    )
    solver_steps: int = Field(25, ge=1, le=1000, description="indextts2: steps from noise to mel.")
    device: Device = Field(
        "auto", description="Where to compute; auto: the card, but the CPU while the run is being trained."
    )
