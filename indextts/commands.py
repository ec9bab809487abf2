"""Every command line of the project: one frozen model each.

The terminal, the forms of the page and the argument vectors that are launched all come from here:

    command_line.py    terminal to model, model to terminal
    commands_page.py   docs/commands.md

A flag is a field: its default, bounds, choices and help live in the field and nowhere else.
"""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    NonNegativeInt,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from indextts.errors import UserError
from indextts.normalizer_options import NormalizerOptions
from indextts.quality import QualityLimits
from indextts.sampling_options import Sampling


class Command(BaseModel):
    """What all commands share: frozen, no unknown fields, a UserError for a value out of bounds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    program: ClassVar[str]

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_flag(cls, values: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(values)
        except ValidationError as error:
            problems = [_problem(details) for details in error.errors()]
            raise UserError("; ".join(problems)) from None


Device = Literal["auto", "cpu", "cuda"]
Engine = Literal["local", "ray"]
PublishedSet = Literal["training", "speech", "all"]
ImportLayout = Literal["auto", "table", "common-voice", "fleurs", "jsonl", "files"]
Stage = Literal["data", "tokenizer", "preprocess", "pairs", "train", "export"]
Weights = Literal["raw", "averaged"]

RAY_ADDRESS = "ray: HOST:PORT of a running cluster; without it, one of this machine is started."
CHOSEN_WEIGHTS = "Of a checkpoint: its weights, or their moving average (--ema-decay of the training)."


class DownloadCheckpoints(Command):
    """Fetch the published files; goes on where it was interrupted, and checks what is there."""

    program: ClassVar[str] = "tools/download_checkpoints.py"
    output_dir: Path = Field(Path("checkpoints"), description="Folder of the published files.")
    what: PublishedSet = Field(
        "training", description="training: base model and speech features; speech: what makes sound."
    )


class ImportDataset(Command):
    """Bring recordings with their texts into a project; what cannot be used is listed, the rest goes on."""

    program: ClassVar[str] = "tools/import_dataset.py"
    manifest: Path | None = Field(None, description="JSON lines with audio, text, speaker.")
    source: list[Path] = Field([], description="Folder, file or zip archive with recordings and texts.")
    url: list[str] = Field([], description="Address whose recordings and subtitles yt-dlp fetches first.")
    layout: ImportLayout = Field("auto", description="How the sources are laid out; auto looks.")
    speaker: str = Field("", description="Who speaks where the data do not say so.")
    speaker_from: Literal["data", "folder", "file"] = Field(
        "data", description="What names the speaker: the data's column, each folder, or each file."
    )
    language: str = Field("am", description="Language where the data do not say so.")
    min_clip_s: float = Field(1.0, gt=0, description="Shortest clip cut from a long recording, in seconds.")
    max_clip_s: float = Field(20.0, gt=0, description="Longest clip cut from a long recording, in seconds.")
    prune: bool = Field(
        False, description="Forget what a source held at an earlier import and holds no more."
    )
    audio_root: list[Path] = Field([], description="Read recordings below these folders only.")
    max_unpacked_gb: float = Field(50.0, gt=0, description="Largest content of a zip archive, in GB.")
    num_workers: int = Field(0, ge=0, description="Recordings worked on at a time; 0: one for each core.")
    output_dir: Path = Field(description="Folder that gets manifest.jsonl, audio/ and rejected.jsonl.")


class CheckData(Command, QualityLimits, NormalizerOptions):
    """Report on a manifest or on pairs; exit status 1 if they are not fit to train on.

    Without a file to check: those of preprocessed_amharic/, or of the only project in the workspace.
    """

    program: ClassVar[str] = "check_amharic_data.py"
    train_manifest: Path | None = Field(None, description="Utterances: raw or preprocessed.")
    train_pairs: Path | None = Field(None, description="Pairs, as the trainer reads them.")
    val_pairs: Path | None = Field(None, description="Pairs to validate on.")
    report_dir: Path | None = Field(
        None,
        description="Folder for the report's files; check/ beside the manifest makes its verdicts count.",
    )
    workspace: Path = Field(Path("workspace"), description="Where to look for the only project.")
    num_workers: int = Field(0, ge=0, description="Processes; 0 for as many as are worth it.")
    engine: Engine = Field(
        "local", description="Where recordings are listened to; ray: on the machines of a cluster."
    )
    ray_address: str = Field("", description=RAY_ADDRESS)


class NormalizeText(Command, NormalizerOptions):
    """Write the lines of standard input as the tokenizer sees them, in spoken form."""

    program: ClassVar[str] = "indextts/text/normalize.py"
    explain: bool = Field(False, description="Also write what each rule did.")


class ExtendTokenizer(Command, NormalizerOptions):
    """Append Amharic pieces to a SentencePiece model, which also keeps how texts are read; old ids stay."""

    program: ClassVar[str] = "tools/extend_bpe.py"
    base_model: Path = Field(Path("checkpoints/bpe.model"), description="The published tokenizer.")
    manifests: list[Path] = Field(min_length=1, description="Manifests whose texts are learned from.")
    output_model: Path = Field(description="The extended tokenizer to write.")
    target_size: int = Field(
        0, ge=0, description="Pieces of the extended tokenizer; 0 for what the hours of speech advise."
    )


class VerifyTraining(Command):
    """Check that tokenizer, config, base checkpoint and texts fit together; exit status 1 if not."""

    program: ClassVar[str] = "verify_amharic_training.py"
    tokenizer: Path | None = Field(
        None,
        description="The extended tokenizer; without it tokenizers/amharic_extended_bpe.model, else that of "
        "the only project of workspace/.",
    )
    config: Path = Field(Path("checkpoints/config.yaml"), description="The model's config.")
    base_checkpoint: Path = Field(Path("checkpoints/gpt.pth"), description="The published weights.")
    manifest: list[Path] = Field([], description="Texts on which unknown pieces are counted.")
    max_unknown_percent: float = Field(0.1, ge=0, le=100, description="Unknown pieces allowed, in percent.")


class Preprocess(Command):
    """Turn recordings into codes, conditioning and emotion vectors; goes on where it stopped."""

    program: ClassVar[str] = "tools/preprocess_data.py"
    manifest: Path = Field(description="Utterances to encode.")
    output_dir: Path = Field(description="Folder that gets features/ and the two manifests.")
    config: Path = Field(Path("checkpoints/config.yaml"), description="The model's config.")
    gpt_checkpoint: Path = Field(
        Path("checkpoints/gpt.pth"), description="Base weights, whose encoders make the conditioning."
    )
    backend: Literal["builtin", "indextts2"] = Field(
        "builtin", description="Speech encoder and codec; indextts2 is that of the published weights."
    )
    speech_encoder: Path = Field(
        Path("checkpoints/w2v-bert-2.0"),
        description="indextts2: folder of w2v-BERT 2.0; without the default one, the hub's cache.",
    )
    semantic_codec: Path = Field(
        Path("checkpoints/semantic_codec/model.safetensors"), description="indextts2: the semantic codec."
    )
    stats: Path = Field(
        Path("checkpoints/wav2vec2bert_stats.pt"), description="indextts2: scaling of the speech features."
    )
    latents: Literal["float16", "bfloat16", "float32"] = Field(
        "float16", description="What the conditioning latents are stored as; docs/data.md has the loss of it."
    )
    val_ratio: float = Field(0.05, ge=0, lt=1, description="Share of each speaker kept for validation.")
    val_speakers: Literal["auto"] | NonNegativeInt = Field(
        "auto", description="Speakers kept for validation wholly; auto: one of 20, if there are 10 or more."
    )
    seed: int = Field(17, ge=0, le=2**63 - 1, description="Seed of the split and of the clustering.")
    device: Device = Field("auto", description="Where the encoders run.")
    batch_seconds: float = Field(
        0,
        ge=0,
        description="Audio in a batch, with its padding; 0: from a card's memory, on a CPU clip by clip.",
    )
    num_workers: int = Field(0, ge=0, description="Processes that read recordings; 0: from the cores.")
    amp: bool = Field(
        False, description="On a card: bfloat16 where it is native; faster, and some codes differ."
    )
    engine: Engine = Field(
        "local",
        description="Where the encoders run; ray: on the machines of a cluster, docs/several-machines.md.",
    )
    ray_address: str = Field("", description=RAY_ADDRESS)


class ImportFeatures(Command):
    """With --import-features: take over features that the predecessor made, checked and packed."""

    program: ClassVar[str] = "tools/preprocess_data.py"
    import_features: Path = Field(description="Folder with its train_manifest.jsonl and .npy files.")
    output_dir: Path = Field(description="Folder that gets features/ and the two manifests.")
    config: Path = Field(Path("checkpoints/config.yaml"), description="The model's config.")
    tokenizer: Path | None = Field(None, description="Tokenizer that the text ids are compared with.")
    latents: Literal["float16", "bfloat16", "float32"] = Field(
        "float16", description="What the conditioning latents are stored as; docs/data.md has the loss of it."
    )
    val_ratio: float = Field(0.05, ge=0, lt=1, description="Share of each speaker kept for validation.")
    val_speakers: Literal["auto"] | NonNegativeInt = Field(
        "auto", description="Speakers kept for validation wholly; auto: one of 20, if there are 10 or more."
    )
    seed: int = Field(17, ge=0, le=2**63 - 1, description="Seed of the split.")


class BuildPairs(Command):
    """Pair prompt and target utterances of one speaker."""

    program: ClassVar[str] = "tools/build_gpt_prompt_pairs.py"
    manifest: Path = Field(description="A manifest that preprocessing wrote.")
    output: Path = Field(description="The pairs file to write.")
    pairs_per_target: int = Field(2, ge=1, description="Prompts for each target.")
    max_pairs: int = Field(0, ge=0, description="Upper limit of pairs; 0 for none.")
    max_pairs_per_speaker: int = Field(
        0, ge=0, description="Upper limit for each speaker: fewer prompts, then fewer targets; 0 for none."
    )
    min_text_len: int = Field(1, ge=1, description="Shortest target text, in characters.")
    min_code_len: int = Field(1, ge=1, description="Shortest target, in codes.")
    seed: int = Field(2025, ge=0, le=2**63 - 1, description="Seed of the choice of prompts.")


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


class RunPipeline(Command):
    """Run all stages of a project, each only if it is not done or its input changed."""

    program: ClassVar[str] = "tools/run_pipeline.py"
    workspace: Path = Field(Path("workspace"), description="Folder of all projects.")
    demo: bool = Field(False, description="The embedded demo: a few minutes on a CPU, nothing downloaded.")
    config: Path | None = Field(None, description="A project of your own, as a YAML file.")
    until: Stage = Field("export", description="The last stage to run.")
    max_steps: int = Field(0, ge=0, description="Stop the training at this step; 0 for its end.")


class ServeTensorboard(Command):
    """Serve TensorBoard over a run's event files, to this machine only; the page passes it on."""

    program: ClassVar[str] = "tools/serve_tensorboard.py"
    logdir: Path = Field(description="Folder with event files: logs/ of a run directory.")
    address_file: Path = Field(description="File that gets the port and the process.")
    path_prefix: str = Field("", description="What its addresses begin with, such as /tensorboard/demo.")
    reload_s: int = Field(10, ge=1, description="Seconds between two looks at the event files.")


class WebUI(Command):
    """Open the page: eight tabs over the same commands, trainings in the background."""

    program: ClassVar[str] = "webui_amharic.py"
    workspace: Path = Field(Path("workspace"), description="Folder of all projects.")
    root: list[Path] = Field([], description="Folders besides the workspace that the page may read.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(7863, ge=1, le=65535, description="Port to listen on.")
    max_upload_mb: int = Field(2000, ge=1, description="Largest file that may be uploaded, in MB.")
    share: bool = Field(False, description="Open a public link, with a password.")
    auth_file: Path | None = Field(None, description="File with one line: user:password.")
    allowed_host: list[str] = Field(
        [], description="Host names besides this machine's that may be asked for."
    )


class MakeBaseCheckpoint(Command):
    """Write a base checkpoint of a config's full structure with seeded random weights."""

    program: ClassVar[str] = "demo/make_base_checkpoint.py"
    config: Path = Field(description="The model's config.")
    output: Path = Field(description="The checkpoint to write.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Seed of the weights.")


COMMANDS: tuple[type[Command], ...] = (
    DownloadCheckpoints,
    ImportDataset,
    CheckData,
    NormalizeText,
    ExtendTokenizer,
    VerifyTraining,
    Preprocess,
    ImportFeatures,
    BuildPairs,
    Train,
    ExportModel,
    Synthesize,
    Evaluate,
    RunPipeline,
    ServeTensorboard,
    WebUI,
    MakeBaseCheckpoint,
)


def _problem(details: ErrorDetails) -> str:
    """Return one problem of a validation, with the flag as typed and the value."""
    flag = flag_of(str(details["loc"][0])) if details["loc"] else "the command"
    return f"{flag}: {details['msg']}, got {details['input']!r}"


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")
