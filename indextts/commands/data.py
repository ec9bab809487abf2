"""Commands that turn recordings into pairs: download, import, check, tokenizer, preprocessing, pairs."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, NonNegativeInt

from indextts.commands.base import Automatic, Command, Device
from indextts.commands.bases import BaseName
from indextts.commands.normalizer_options import NormalizerFlags
from indextts.commands.options import Options, RecognizerFolder
from indextts.commands.quality_limits import QualityLimits

Engine = Literal["local", "ray"]
Quality = Literal["full", "fast"]
TextChoice = Literal["all", "agreed", "reviewed"]
Channel = Literal["auto", "left", "right", "mean"]
PublishedSet = Literal["training", "speech", "all"]
ImportLayout = Literal[
    "auto", "table", "common-voice", "fleurs", "jsonl", "parquet", "kaldi", "librispeech", "files"
]

RAY_ADDRESS = "Address HOST:PORT of a running Ray cluster; without it, Ray starts on this machine."


class DownloadCheckpoints(Command):
    """Download the published files; interrupted downloads resume and complete files are checked."""

    program: ClassVar[str] = "tools/download_checkpoints.py"
    output_dir: Path = Field(Path("checkpoints"), title="Download folder")
    """Folder for the published files."""
    base: BaseName = Field("2.0", title="Base model")
    """Published model whose files are downloaded."""
    what: PublishedSet = Field("training", title="Files to download")
    """training downloads the base model and the speech-feature models; speech downloads the models that
    synthesize audio; all also downloads what only the official page needs."""


class ImportDataset(Command, RecognizerFolder):
    """Import recordings with their texts into a project; unusable recordings are listed and skipped."""

    program: ClassVar[str] = "tools/import_dataset.py"
    manifest: Path | None = Field(None, title="Manifest")
    """JSON Lines file with the fields audio, text and speaker."""
    source: list[Path] = Field([], title="Source")
    """Folder, file or archive (zip, tar) with recordings and texts."""
    url: list[str] = Field([], title="URL")
    """URL of recordings and subtitles that yt-dlp downloads before the import."""
    hub: str = Field("", title="Data set")
    """Name OWNER/NAME of a data set on the Hugging Face hub that is downloaded and imported."""
    hub_subset: str = Field("", title="Subset")
    """Subset of the data set; empty if it has only one."""
    hub_split: list[str] = Field([], title="Splits")
    """Splits of the data set, such as train; empty takes all."""
    hub_revision: str = Field("", title="Revision")
    """Commit, tag or branch of the data set; empty takes the newest commit."""
    layout: ImportLayout = Field("auto", title="Layout")
    """Layout of the sources; auto detects it."""
    columns: str = Field("", title="Columns")
    """Columns of tables by name or number, as in audio=0,speaker=1,text=2; auto decides by content."""
    keep: str = Field("", title="Marks to keep")
    """Kinds of marks that stay in the texts, as in noise,labels: noise, times, labels, markup, escapes."""
    speaker: str = Field("", title="Speaker")
    """Speaker of recordings whose data name none."""
    speaker_from: Literal["data", "folder", "file", "voices"] = Field("data", title="Speaker names from")
    """Source of the speaker names: a data column, the folder name, one speaker per file, or groups of similar
    voices."""
    voice_threshold: float = Field(0, ge=0, lt=1, title="Voice threshold")
    """Largest mean cosine distance of voices in one group; 0 keeps the threshold of the earlier import, at
    first 0.5, which was not measured on real recordings."""
    voice_encoder: Path = Field(Path("checkpoints/campplus/campplus_cn_common.bin"), title="Voice encoder")
    """Path of the published CAM++ weights, for speakers from voices."""
    language: str = Field("am", title="Language")
    """ISO 639 code of the language of recordings whose data name none."""
    max_hours: float = Field(0.0, ge=0, title="Maximum hours")
    """Import recordings in their order up to this many hours of speech; 0 imports all."""
    speakers: list[str] = Field([], title="Only these speakers")
    """Import only the recordings of these speakers."""
    min_clip_s: float = Field(1.0, gt=0, title="Minimum clip length (s)")
    """Shortest clip cut from a long recording, in seconds."""
    max_clip_s: float = Field(20.0, gt=0, title="Maximum clip length (s)")
    """Longest clip cut from a long recording, in seconds."""
    subtitle_line: int = Field(0, ge=0, le=2, title="Subtitle line")
    """Spoken language of subtitles with two languages: 1 is the upper line, 2 the lower; 0 refuses them."""
    asr: str = Field("", title="Recognizer for long recordings")
    """Folder of a CTC speech recognizer, or its name OWNER/NAME on the Hugging Face hub; a recording longer
    than a clip is cut at the sentences of the text file of the same name, and speech that does not fit the
    text goes to the review."""
    readings: Path | None = Field(None, title="Readings")
    """Table of written and spoken forms (readings.tsv) that is applied to the text of a long recording before
    it is aligned."""
    device: Device = Field("auto", title="Device")
    """Device that the recognizer runs on."""
    trim: float = Field(0.0, ge=0, title="Silence to keep (s)")
    """Longest silence to keep at the start and end of a clip, in seconds; 0 does not trim."""
    loudness: float = Field(0.0, ge=-70, le=0, title="Loudness (LUFS)")
    """Loudness to set for each clip, for example -23; 0 leaves it unchanged."""
    channel: Channel = Field("auto", title="Channel")
    """Channel of recordings with several; auto takes the sound that they have in common, and refuses those
    with different sounds, such as two speakers."""
    link: bool = Field(False, title="Link")
    """Refer to readable recordings in their place instead of copying them."""
    prune: bool = Field(False, title="Prune")
    """Remove what an earlier import found in a source and the source no longer contains."""
    audio_root: list[Path] = Field([], title="Audio folders")
    """Folders that recordings may be read from; empty allows any folder."""
    max_unpacked_gb: float = Field(50.0, gt=0, title="Maximum unpacked size (GB)")
    """Maximum size of an unpacked archive, in GB."""
    num_workers: int = Field(0, ge=0, title="Workers")
    """Number of recordings processed in parallel; 0 uses one worker for each core."""
    output_dir: Path = Field(title="Output folder")
    """Folder for manifest.jsonl, audio/ and rejected.jsonl."""


class Transcribe(Command, RecognizerFolder):
    """Cut recordings without texts into clips and transcribe them; keep what two recognizers agree on.

    An interrupted run resumes. Later stages skip the other clips until a person keeps them in the review.
    """

    program: ClassVar[str] = "tools/transcribe.py"
    source: list[Path] = Field(min_length=1, title="Recordings")
    """Recordings without texts, or folders with them."""
    asr: list[str] = Field(
        min_length=1, max_length=2, title="Recognizers", examples=["badrex/Ethio-ASR-amharic"]
    )
    """One or two speech recognizers, each a folder or a name OWNER/NAME on the Hugging Face hub; the
    first provides the texts."""
    output_dir: Path = Field(title="Output folder")
    """Folder for manifest.jsonl and audio/."""
    max_disagreement: float | None = Field(None, ge=0, le=1, title="Maximum disagreement")
    """Largest share of the letters, such as 0.02, in which two recognizers may differ on a clip that is kept;
    by default it is chosen from the clips."""
    speaker: str = Field("", title="Speaker")
    """Name of the speaker, if all recordings are of one person."""
    speaker_from: Literal["file", "folder"] = Field("file", title="Speaker names from")
    """Source of the speaker names: one speaker per recording, or the folder name."""
    language: str = Field("am", title="Language")
    """ISO 639 code of the language of the recordings."""
    min_clip_s: float = Field(2.0, gt=0, title="Minimum clip length (s)")
    """Shortest clip, in seconds."""
    max_clip_s: float = Field(15.0, gt=0, title="Maximum clip length (s)")
    """Longest clip, in seconds."""
    device: Device = Field("auto", title="Device")
    """Device that the recognizers run on."""
    num_workers: int = Field(0, ge=0, title="Workers")
    """Number of recordings cut in parallel; 0 uses one worker for each core."""


class CheckData(Command, QualityLimits, NormalizerFlags, RecognizerFolder):
    """Report on a manifest or on pairs; exit with status 1 if they are unfit for training.

    Without a file, the command checks preprocessed_amharic/ or the only project in the workspace.
    """

    program: ClassVar[str] = "check_amharic_data.py"
    train_manifest: Path | None = Field(None, title="Manifest")
    """Manifest of raw or preprocessed utterances."""
    train_pairs: Path | None = Field(None, title="Training pairs")
    """Pairs to train on."""
    val_pairs: Path | None = Field(None, title="Validation pairs")
    """Pairs to validate on."""
    report_dir: Path | None = Field(None, title="Report folder")
    """Folder for the report, check/ beside the manifest by default; with another one, later stages still use
    the rejected clips."""
    asr: str = Field("", title="Recognizer")
    """Folder of a speech recognizer, or its name OWNER/NAME on the Hugging Face hub; its transcripts are
    compared with the texts."""
    device: Device = Field("auto", title="Device")
    """Device that the recognizer runs on."""
    workspace: Path = Field(Path("workspace"), title="Workspace")
    """Folder that is searched for the only project."""
    num_workers: int = Field(0, ge=0, title="Workers")
    """Number of processes; 0 chooses it from the amount of work."""
    quality: Quality = Field("full", title="Quality check")
    """full also rates every recording with DNSMOS, 0.2 s of processor time per clip; fast only measures the
    signal."""
    voice_encoder: Path | None = Field(None, title="Voice encoder")
    """CAM++ weights, with which the check compares the voices of a speaker's clips; by default the check
    compares none."""
    engine: Engine = Field("local", title="Engine")
    """Place where recordings are measured; ray uses the machines of a cluster."""
    ray_address: str = Field("", title="Ray address", description=RAY_ADDRESS)


class CleanAudio(Command, RecognizerFolder):
    """Remove the hum of the mains from clips that the check flagged; the inputs stay."""

    program: ClassVar[str] = "tools/clean_audio.py"
    manifest: Path = Field(title="Manifest")
    """Manifest of an import that was checked."""
    asr: str = Field("", title="Recognizer")
    """Folder of a speech recognizer, or its name OWNER/NAME on the Hugging Face hub; a cleaned clip in which
    it makes more errors than before is not used."""
    device: Device = Field("auto", title="Device")
    """Device that the recognizer runs on."""
    restore: list[str] = Field([], title="Restore")
    """Ids of cleaned clips whose inputs are used again; nothing is cleaned then."""


class NormalizeText(Command, NormalizerFlags):
    """Print the lines of standard input or a file in spoken form, as the tokenizer reads them."""

    program: ClassVar[str] = "indextts/text/normalize.py"
    explain: bool = Field(False, title="Explain")
    """Also print what each rule changed."""
    file: Path | None = Field(None, title="File")
    """Text file to read in place of standard input."""


class ExtendTokenizer(Command, NormalizerFlags):
    """Append Amharic pieces to a tokenizer and store the normaliser options in it; old pieces stay."""

    program: ClassVar[str] = "tools/extend_bpe.py"
    base_model: Path = Field(Path("checkpoints/bpe.model"), title="Base tokenizer")
    """Path of the published tokenizer: a SentencePiece model, or the .tiktoken file of IndexTTS-2.5."""
    manifests: list[Path] = Field(min_length=1, title="Manifests")
    """Manifests whose texts the new pieces are learned from."""
    output_model: Path = Field(title="Output tokenizer")
    """Path for the extended tokenizer."""
    target_size: int = Field(0, ge=0, title="Target size")
    """Number of pieces in the extended tokenizer; 0 chooses it from the hours of speech."""
    pieces: Literal["appended", "letters", "reserved"] = Field("appended", title="New pieces")
    """appended adds rows to the model; letters adds only single letters, for less than an hour of speech, in
    which longer pieces are rare; reserved uses the 1,549 rows that IndexTTS-2.5 reserves, so that every shape
    stays as published. The last two are for IndexTTS-2.5."""
    keep_pieces: bool = Field(False, title="Keep the pieces")
    """Keep all pieces of the output tokenizer and store only the given options and readings in it."""


class VerifyTraining(Command):
    """Check that tokenizer, config, base checkpoint and texts match; exit with status 1 if not."""

    program: ClassVar[str] = "verify_amharic_training.py"
    tokenizer: Path | None = Field(None, title="Tokenizer")
    """Path of the extended tokenizer; the default is tokenizers/amharic_extended_bpe.model, else the
    tokenizer of the only project in workspace/."""
    config: Path = Field(Path("checkpoints/config.yaml"), title="Model config")
    """Path of the model's config.yaml."""
    base_checkpoint: Path = Field(Path("checkpoints/gpt.pth"), title="Base checkpoint")
    """Path of the published weights."""
    manifest: list[Path] = Field([], title="Manifest")
    """Manifest whose texts are searched for unknown pieces."""
    max_unknown_percent: float = Field(0.1, ge=0, le=100, title="Maximum unknown pieces (%)")
    """Maximum share of unknown pieces, in percent."""


class FeatureOptions(Options):
    """Options of every command that writes features: the format of the latents and the split."""

    latents: Literal["float16", "bfloat16", "float32"] = Field("float16", title="Latent format")
    """Precision of the stored conditioning latents; docs/features.md lists the rounding error of each."""
    val_ratio: float = Field(0.05, ge=0, lt=1, title="Validation share")
    """Share of each speaker's utterances kept for validation."""
    val_speakers: Literal["auto"] | NonNegativeInt = Field("auto", title="Validation speakers")
    """Number of speakers kept for validation only; auto keeps one in 20 if there are at least 10."""
    seed: int = Field(17, ge=0, le=2**63 - 1, title="Seed")
    """Random seed of the split and of the clustering."""


class Preprocess(Command, FeatureOptions):
    """Encode recordings as codes, conditioning and emotion vectors; an interrupted run resumes."""

    program: ClassVar[str] = "tools/preprocess_data.py"
    manifest: Path = Field(title="Manifest")
    """Manifest of the utterances to encode."""
    output_dir: Path = Field(title="Output folder")
    """Folder for features/ and the two manifests."""
    config: Path = Field(Path("checkpoints/config.yaml"), title="Model config")
    """Path of the model's config.yaml."""
    gpt_checkpoint: Path = Field(Path("checkpoints/gpt.pth"), title="Base checkpoint")
    """Base weights whose encoders produce the conditioning."""
    backend: Literal["auto", "builtin", "indextts2"] = Field("auto", title="Speech backend")
    """Speech encoder and codec; auto takes indextts2 for a base of the published size, builtin otherwise."""
    speech_encoder: Path = Field(Path("checkpoints/w2v-bert-2.0"), title="Speech encoder")
    """Folder of w2v-BERT 2.0 for indextts2; without the default folder, the hub's cache is used."""
    semantic_codec: Path = Field(Path("checkpoints/semantic_codec/model.safetensors"), title="Semantic codec")
    """Path of the semantic codec for indextts2."""
    campplus: Path = Field(Path("checkpoints/campplus/campplus_cn_common.bin"), title="Speaker encoder")
    """Path of CAM++, for features of IndexTTS-2.5."""
    stats: Path = Field(Path("checkpoints/wav2vec2bert_stats.pt"), title="Feature statistics")
    """Path of the speech-feature statistics for indextts2."""
    device: Device = Field("auto", title="Device")
    """Device that the encoders run on."""
    batch_seconds: float = Field(0, ge=0, title="Batch length (s)")
    """Seconds of padded audio in a batch; 0 fits it to the GPU's memory, or encodes clip by clip on a CPU."""
    num_workers: int = Field(0, ge=0, title="Workers")
    """Number of processes that read recordings; 0 derives it from the number of cores."""
    amp: bool = Field(False, title="Mixed precision")
    """Compute in bfloat16 on a GPU that supports it natively, which is faster and changes some codes."""
    encoder_precision: Literal["float32", "tf32", "split"] = Field("float32", title="Encoder precision")
    """Matrix products of w2v-BERT on a GPU: tf32 from compute capability 8.0 on; split sums three float16
    products, for older GPUs. Both change some codes; neither was timed on a GPU."""
    engine: Engine = Field("local", title="Engine")
    """Place where the encoders run; ray uses the machines of a cluster, see docs/distributed.md."""
    ray_address: str = Field("", title="Ray address", description=RAY_ADDRESS)


class ImportFeatures(Command, FeatureOptions):
    """Convert features of the predecessor (--import-features): check and pack them."""

    program: ClassVar[str] = "tools/preprocess_data.py"
    import_features: Path = Field(title="Features folder")
    """Folder with train_manifest.jsonl and the .npy files of the predecessor."""
    output_dir: Path = Field(title="Output folder")
    """Folder for features/ and the two manifests."""
    config: Path = Field(Path("checkpoints/config.yaml"), title="Model config")
    """Path of the model's config.yaml."""
    tokenizer: Path | None = Field(None, title="Tokenizer")
    """Tokenizer that the text ids are compared with."""


class BuildPairs(Command):
    """Pair prompt and target utterances of the same speaker."""

    program: ClassVar[str] = "tools/build_gpt_prompt_pairs.py"
    manifest: Path = Field(title="Manifest")
    """Manifest that preprocessing wrote."""
    output: Path = Field(title="Output file")
    """Path for the pairs."""
    tokenizer: Path | None = Field(None, title="Tokenizer")
    """Tokenizer of the training run, to tokenize the texts now; by default the trainer does this at its first
    start."""
    pairs_per_target: int = Field(2, ge=1, title="Pairs per target")
    """Number of prompts for each target."""
    max_pairs: int = Field(0, ge=0, title="Maximum pairs")
    """Maximum number of pairs; 0 sets no limit."""
    max_pairs_per_speaker: int = Field(0, ge=0, title="Maximum pairs per speaker")
    """Maximum number of pairs of a speaker, reached by dropping prompts before targets; 0 sets no limit."""
    only: TextChoice = Field("all", title="Texts of targets")
    """reviewed takes only texts that came with the recordings or were confirmed in the review; agreed also
    those that two recognizers agree on or that were aligned."""
    min_similarity: Automatic[float | None] = Field(None, ge=0, lt=1, title="Minimum voice similarity")
    """Minimum cosine of the voices of prompt and target, with features for IndexTTS-2.5; 0 takes any clip of
    the speaker; automatic: 0.5 with CAM++, 0.94 with built-in features."""
    min_text_len: int = Field(1, ge=1, title="Minimum text length")
    """Minimum length of a target text, in characters."""
    min_code_len: int = Field(1, ge=1, title="Minimum code length")
    """Minimum length of a target, in codes."""
    seed: int = Field(2025, ge=0, le=2**63 - 1, title="Seed")
    """Random seed of the choice of prompts."""
