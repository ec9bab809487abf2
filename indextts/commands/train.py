"""The training command: every flag of `trainers/train_gpt_v2.py`."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from indextts.commands.base import Automatic, Command
from indextts.commands.pairs_file import PairsFile, parse_files


class Train(Command):
    """Train the GPT on pairs; stop with Ctrl-C and continue with --resume auto."""

    program: ClassVar[str] = "trainers/train_gpt_v2.py"

    # Fields of the process: a resume takes them from the command, typed or not, because paths, cores and GPUs
    # differ between machines. All other fields belong to the run.
    of_process: ClassVar[frozenset[str]] = frozenset(
        {
            "train_manifest",
            "val_manifest",
            "tokenizer",
            "config",
            "base_checkpoint",
            "output_dir",
            "resume",
            "resume_tokenizer",
            "accept_lost_rows",
            "plan",
            "num_workers",
            "allow_cpu",
            "listen_asr",
        }
    )

    # A new run chooses its `Automatic` fields for its machine and pairs (planning/proposal.py); a resume
    # keeps the values of its run, except those of the process.
    train_manifest: list[Path] = Field(min_length=1, title="Training pairs")
    """Files with the pairs to train on, with an optional language and share of an epoch: PATH@0.85,
    PATH@en@0.15."""
    val_manifest: list[Path] = Field(min_length=1, title="Validation pairs")
    """Files with the pairs to validate on, with an optional language, whose losses are then reported:
    PATH@en."""
    tokenizer: Path = Field(title="Tokenizer")
    """Path of the extended tokenizer."""
    config: Path = Field(Path("checkpoints/config.yaml"), title="Model config")
    """Path of the model's config.yaml."""
    base_checkpoint: Path = Field(Path("checkpoints/gpt.pth"), title="Base checkpoint")
    """Path of the published weights."""
    output_dir: Path = Field(Path("trained_ckpts"), title="Run directory")
    """Folder for checkpoints, logs and metrics."""
    resume: str = Field("", title="Resume from")
    """Checkpoint to resume from, or auto for the newest in the run directory."""
    resume_tokenizer: Path | None = Field(None, title="Old tokenizer")
    """Tokenizer of a checkpoint of another program, to move its text rows by piece."""
    accept_lost_rows: bool = Field(False, title="Accept lost rows")
    """Resume a checkpoint of unknown tokenizer without the text rows that it learned."""
    language_row_init: Literal["ar", "en", "es", "ja", "zh", "own"] = Field(
        "ar", title="Initial language row"
    )
    """Language whose row a new language starts from; own keeps the published row; IndexTTS-2.5 only."""
    plan: bool = Field(False, title="Restore plan only")
    """Print what --resume would restore, and exit."""
    epochs: int = Field(10, ge=1, title="Epochs")
    """Number of passes over the training pairs."""
    max_steps: int = Field(0, ge=0, title="Maximum steps")
    """Step at which training stops; 0 trains all epochs."""
    step_pairs: Automatic[int] = Field(32, ge=1, title="Pairs per step")
    """Number of pairs in an optimizer step, over all ranks; batch tokens and gradient accumulation follow
    from it. Automatic: 32, or 64 where that was measured to be much faster; one batch if the batch size is
    set."""
    batch_size: Automatic[int] = Field(8, ge=1, title="Batch size")
    """Number of pairs in a micro-step of each rank, instead of automatic batch tokens."""
    batch_tokens: Automatic[int] = Field(0, ge=0, title="Batch tokens")
    """Maximum number of positions in a micro-step of each rank; replaces the batch size unless it is 0;
    automatic for the memory and the pairs per step."""
    grad_accumulation: Automatic[int] = Field(1, ge=1, title="Gradient accumulation")
    """Number of micro-steps in an optimizer step; automatic for the pairs per step."""
    learning_rate: float = Field(2e-5, gt=0, le=1, title="Learning rate")
    """Peak of the learning-rate schedule."""
    warmup_steps: int = Field(1000, ge=0, title="Warm-up steps")
    """Steps of linear warm-up, after which the rate follows a cosine."""
    min_lr_ratio: float = Field(0.0, ge=0, le=1, title="Final rate")
    """Rate at the end of the cosine, as a share of the peak; IndexTTS-2.5 was taught new languages with
    0.08."""
    rewarm: float = Field(0.0, ge=0, le=1, title="Rewarm to")
    """On a resume, warm up again over the warm-up steps from the current rate to this peak, then follow the
    cosine. 0 is off. The same value at the next resume does not warm up again."""
    new_row_lr_scale: float = Field(1.0, gt=0, le=1000, title="Rate of new rows")
    """Learning rate of the rows of new text pieces, and of the language row of a language that the base was
    not trained on, as a multiple of the learning rate."""
    new_row_init: Literal["mean", "romanised"] = Field("mean", title="Start of new rows")
    """mean starts the row of a new text piece from all rows of the base; romanised from the rows of the base
    pieces that write it in Latin letters."""
    train_text_rows: Literal["new", "used", "all"] = Field("new", title="Trained text rows")
    """new keeps the rows of the base's pieces bit-identical; used also trains those whose pieces occur in the
    training texts; all trains every row."""
    freeze_body_steps: int = Field(0, ge=0, title="Steps with a frozen body")
    """Number of steps at the start of the run that train only the new rows; 0 trains all weights from the
    first step."""
    weight_decay: float = Field(0.01, ge=0, le=1, title="Weight decay")
    """AdamW weight decay of the weight matrices."""
    grad_clip: float = Field(1.0, gt=0, title="Gradient clipping")
    """Maximum gradient norm."""
    text_loss_weight: float = Field(0.2, ge=0, title="Text loss weight")
    """Weight of the text loss in the total loss."""
    mel_loss_weight: float = Field(0.8, gt=0, title="Mel loss weight")
    """Weight of the loss of the speech codes in the total loss."""
    emotion_from: Literal["prompt", "target", "mixed"] = Field("mixed", title="Emotion from")
    """Clip of a training pair that gives the emotion vector; the voice always comes from the prompt; mixed
    takes the target's in a share of the pairs."""
    emotion_target_share: float = Field(0.75, ge=0, le=1, title="Share of target emotion")
    """Share of the pairs that take the emotion vector of the target, if it is mixed."""
    emotion_dropout: float = Field(0.0, ge=0, le=1, title="Emotion dropout")
    """Probability that a pair is trained without an emotion vector, drawn again in each epoch."""
    style_noise: float = Field(0.0, ge=0, title="Style noise")
    """Standard deviation of noise that is added to the speaker condition in training, such as 0.01."""
    log_interval: int = Field(100, ge=1, title="Log interval")
    """Number of steps between [Train] lines in the log."""
    val_interval: int = Field(1000, ge=0, title="Validation interval")
    """Number of steps between validations; 0 validates once an epoch, and the default grows if validation
    would take over 1/20 of the training."""
    val_batch_size: int = Field(0, ge=0, title="Validation batch size")
    """Number of pairs in a validation batch; 0 takes twice the batch size."""
    max_val_batches: int = Field(0, ge=0, title="Maximum validation batches")
    """Maximum number of batches in a validation; 0 uses all."""
    patience: int = Field(0, ge=0, title="Patience")
    """Number of validations without a better loss, or better speech where the trainer listens, after which
    training stops; 0 never stops early."""
    ema_decay: float = Field(0.0, ge=0, lt=1, title="EMA decay")
    """Decay of an exponential moving average of the weights, such as 0.999; 0 turns it off."""
    save_interval: int = Field(1000, ge=1, title="Checkpoint interval")
    """Number of steps between checkpoints."""
    keep_checkpoints: int = Field(3, ge=1, title="Checkpoints to keep")
    """Number of newest checkpoints to keep besides the best."""
    listen_interval: int = Field(1000, ge=0, title="Listening interval")
    """Number of steps after which the next validation speaks held-out sentences and judges them; 0 turns it
    off."""
    listen_sentences: int = Field(24, ge=1, le=500, title="Sentences to listen to")
    """Number of sentences of the validation pairs, always the same."""
    listen_share: float = Field(0.05, gt=0, le=1, title="Maximum share of time for listening")
    """Share of the time that listening may take: it is skipped while it would take more; 1 sets no limit."""
    listen_asr: str = Field("", title="Recognizer for listening")
    """Folder of a speech recognizer, or its name OWNER/NAME on the Hugging Face hub; without it, length,
    silence, loops and similarity of the voice are judged."""
    num_workers: Automatic[int] = Field(0, ge=0, title="Data workers")
    """Number of data-loading processes; 0 loads in the trainer; automatic: up to 2 for a GPU, 0 without."""
    lora_rank: int = Field(0, ge=0, le=1024, title="LoRA rank")
    """Rank of LoRA adapters, such as 32: only these and the rows of new pieces are trained; 0 trains all
    weights."""
    lora_alpha: float = Field(64.0, gt=0, title="LoRA alpha")
    """The adapters' output is scaled by alpha divided by the rank."""
    lora_targets: Literal["all", "attention", "mlp"] = Field("all", title="LoRA targets")
    """Matrices of each block that get adapters."""
    lora_code_head: bool = Field(False, title="Code head beside LoRA")
    """Train the head of the speech codes in full beside the adapters."""
    optimizer_state: Literal["float32", "bfloat16"] = Field("float32", title="Optimizer state")
    """Precision of the AdamW moments; bfloat16 halves their memory with stochastic rounding."""
    padding: Literal["none", "reference"] = Field("none", title="Padding")
    """none packs samples end to end; reference pads them as the published trainer does."""
    grad_checkpointing: Automatic[bool] = Field(False, title="Gradient checkpointing")
    """Recompute activations: saves memory, and steps take about a third longer; automatic: on where the
    memory requires it."""
    compile: bool = Field(False, title="Compile")
    """Compile the blocks into one graph on a GPU, which takes minutes at the first start."""
    amp: Automatic[bool] = Field(False, title="Mixed precision")
    """Compute in bfloat16 where the hardware supports it natively, else on a GPU in float16; automatic: on
    for a GPU, and for a CPU with native bfloat16."""
    tracker: Literal["none", "trackio", "wandb"] = Field("none", title="Tracker")
    """Trackio or Weights & Biases, which get the metrics besides TensorBoard; requires the packages of the
    extra trackers."""
    seed: int = Field(1234, ge=0, le=2**63 - 1, title="Seed")
    """Random seed of data order, dropout and new rows."""
    allow_cpu: bool = Field(False, title="Allow CPU")
    """Train on the CPU if the machine has a GPU but CUDA does not work."""

    @field_validator("train_manifest")
    @classmethod
    def _all_have_shares_or_none(cls, typed: list[Path]) -> list[Path]:
        shares = [file.share for file in parse_files(typed)]
        if None in shares and any(shares):
            raise ValueError("either each file has a share, such as PATH@0.85, or none")
        return typed

    @field_validator("val_manifest")
    @classmethod
    def _none_has_a_share(cls, typed: list[Path]) -> list[Path]:
        if any(file.share for file in parse_files(typed)):
            raise ValueError("a validation uses all pairs; leave out the share")
        return typed

    @property
    def train_files(self) -> tuple[PairsFile, ...]:
        return parse_files(self.train_manifest)

    @property
    def val_files(self) -> tuple[PairsFile, ...]:
        return parse_files(self.val_manifest)

    @property
    def validation_batch_size(self) -> int:
        """Pairs in a validation batch of a rank."""
        return self.val_batch_size or 2 * self.batch_size
