"""The training command: every flag of `trainers/train_gpt_v2.py`."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import (
    Field,
)

from indextts.commands.base import Command


class Train(Command):
    """Train the GPT on pairs; stop it with Ctrl-C and go on with --resume auto."""

    program: ClassVar[str] = "trainers/train_gpt_v2.py"

    # The process and not the run: on a resume these are the command's, typed or not. What a path means, how
    # many cores there are and whether there is a card differs between machines. All else belongs to the run.
    of_process: ClassVar[frozenset[str]] = frozenset(
        {
            "train_manifest",
            "val_manifest",
            "tokenizer",
            "config",
            "base_checkpoint",
            "output_dir",
            "resume",
            "plan",
            "num_workers",
            "allow_cpu",
        }
    )

    train_manifest: list[Path] = Field(min_length=1, description="Pairs to train on.")
    val_manifest: list[Path] = Field(min_length=1, description="Pairs to validate on.")
    tokenizer: Path = Field(description="The extended tokenizer.")
    config: Path = Field(Path("checkpoints/config.yaml"), description="The model's config.")
    base_checkpoint: Path = Field(Path("checkpoints/gpt.pth"), description="The published weights.")
    output_dir: Path = Field(Path("trained_ckpts"), description="The run directory.")
    resume: str = Field("", description="'auto', or the checkpoint to go on from.")
    plan: bool = Field(False, description="Print what --resume would restore, and end.")
    epochs: int = Field(10, ge=1, description="Passes over the pairs.")
    max_steps: int = Field(0, ge=0, description="Stop at this step; 0 for the end of the epochs.")
    batch_size: int = Field(8, ge=1, description="Pairs in a micro-step.")
    batch_tokens: int = Field(
        0, ge=0, description="Positions in a micro-step at most, instead of --batch-size; 0 for none."
    )
    grad_accumulation: int = Field(1, ge=1, description="Micro-steps in a step.")
    learning_rate: float = Field(2e-5, gt=0, le=1, description="Peak learning rate.")
    warmup_steps: int = Field(1000, ge=0, description="Steps of linear warm-up; cosine to 0 after.")
    weight_decay: float = Field(0.01, ge=0, le=1, description="AdamW's decay of matrices.")
    grad_clip: float = Field(1.0, gt=0, description="Largest norm of the gradient.")
    text_loss_weight: float = Field(0.2, ge=0, description="Weight of the text loss.")
    mel_loss_weight: float = Field(0.8, gt=0, description="Weight of the loss of the codes.")
    log_interval: int = Field(100, ge=1, description="Steps between [Train] lines.")
    val_interval: int = Field(
        1000,
        ge=0,
        description="Steps between validations; 0 for once an epoch. Not given, more where validations "
        "would take over 1/20 of the training.",
    )
    val_batch_size: int = Field(0, ge=0, description="Pairs in a validation batch; 0 for twice the batch.")
    max_val_batches: int = Field(0, ge=0, description="Validation batches at most; 0 for all.")
    patience: int = Field(0, ge=0, description="Validations without a better one that end the run; 0: none.")
    ema_decay: float = Field(
        0.0, ge=0, lt=1, description="Decay of a moving average of the weights, such as 0.999; 0 for none."
    )
    save_interval: int = Field(1000, ge=1, description="Steps between checkpoints.")
    keep_checkpoints: int = Field(3, ge=1, description="Newest checkpoints kept, besides the best.")
    sample_interval: int = Field(
        0,
        ge=0,
        description="Steps between samples, spoken at a validation; 0 for none.",
    )
    num_workers: int = Field(
        0, ge=0, description="Processes that load data; 0: the trainer itself, enough for packed features."
    )
    optimizer_state: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of AdamW's moments; bfloat16 halves their memory, rounding at random."
    )
    padding: Literal["none", "reference"] = Field(
        "none", description="none: samples end to end; reference: padded, as the published trainer computes."
    )
    grad_checkpointing: bool = Field(
        False, description="Compute the blocks twice to save memory; slower by about a third."
    )
    compile: bool = Field(False, description="Compile the blocks; slow to start, not for the CPU.")
    amp: bool = Field(False, description="bfloat16 arithmetic, where the hardware has it natively.")
    seed: int = Field(1234, ge=0, le=2**63 - 1, description="Seed of data order, dropout and new rows.")
    allow_cpu: bool = Field(False, description="Train on the CPU where CUDA does not work on the card.")
