"""Commands that turn recordings into pairs: download, import, check, tokenizer, preprocessing, pairs."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import (
    Field,
    NonNegativeInt,
)

from indextts.commands.base import Command, Device
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.quality_limits import QualityLimits

Engine = Literal["local", "ray"]


PublishedSet = Literal["training", "speech", "all"]


ImportLayout = Literal["auto", "table", "common-voice", "fleurs", "jsonl", "files"]


RAY_ADDRESS = "ray: HOST:PORT of a running cluster; without it, one of this machine is started."


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
        description="Where the encoders run; ray: on the machines of a cluster, docs/distributed.md.",
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
