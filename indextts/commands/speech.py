"""Commands that use a checkpoint: export, synthesis, evaluation, the speech server."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from indextts.commands.base import Command, Device
from indextts.commands.options import RecognizerFolder
from indextts.commands.sampling_options import Sampling

Weights = Literal["raw", "averaged"]
Precision = Literal["float32", "bfloat16", "float16"]


CHOSEN_WEIGHTS = "Weights of a checkpoint to use: raw, or averaged (needs EMA decay in training)."


class ExportModel(Command):
    """Export a checkpoint as a model folder (gpt.pth, bpe.model, config.yaml, model card) and check it."""

    program: ClassVar[str] = "tools/export_gpt.py"
    checkpoint: Path = Field(title="Checkpoint")
    """Checkpoint of a run."""
    config: Path = Field(Path("checkpoints/config.yaml"), title="Model config")
    """Path of the config.yaml that the checkpoint was trained with."""
    output_dir: Path = Field(title="Model folder")
    """Folder to write the model to."""
    dtype: Literal["float32", "float16", "bfloat16"] = Field("float32", title="Precision")
    """Precision of the weights."""
    format: Literal["pth", "safetensors", "both", "adapter"] = Field("pth", title="File format")
    """pth writes gpt.pth, which IndexTTS2 loads; safetensors writes gpt.safetensors; adapter writes only
    what a LoRA run trained, for this program with the base."""
    average_last: int = Field(1, ge=1, title="Checkpoints to average")
    """Number of checkpoints to average: the chosen one and those saved before it; the one published
    measurement found an average of 2 or 3 worse."""
    weights: Weights = Field("raw", title="Weights", description=CHOSEN_WEIGHTS)
    published: Path | None = Field(None, title="Published files")
    """Folder of the published files that the official page needs beside the model; the default is the folder
    of the config."""
    self_contained: bool = Field(False, title="Self-contained")
    """Copy the published files into the model folder instead of linking them."""
    page_language: str = Field("", title="Language on the official page")
    """Language in the menu of the official page of IndexTTS-2.5, such as ar, that speaks the model's language
    in this export and can no longer be spoken itself."""
    positions: Literal["published", "training"] = Field("published", title="Code positions")
    """Default --positions of this program's tools for the export: published as the official page numbers the
    codes, training as vLLM-Omni and packages do."""


class CheckModelFolder(Command):
    """List what the official page would download into a model folder; exit with status 1 if anything."""

    program: ClassVar[str] = "tools/export_gpt.py"
    check: Path = Field(title="Model folder")
    """Folder of an exported model."""


class PublishModel(Command):
    """Upload an exported model folder to the Hugging Face Hub, with its card; private unless --public.

    The same command resumes an interrupted upload. It uses the login of `hf auth login`, or HF_TOKEN.
    """

    program: ClassVar[str] = "tools/publish.py"
    model_folder: Path = Field(title="Model folder")
    """Folder of an exported model."""
    repository: str = Field(title="Repository")
    """Repository on the hub, as USER/NAME."""
    public: bool = Field(False, title="Public")
    """Create a public repository, which everyone can download."""
    dry_run: bool = Field(False, title="Dry run")
    """Print the files and the model card, and send nothing; needs neither login nor network."""
    run_dir: Path | None = Field(None, title="Run directory")
    """Run directory whose losses the model card shows."""
    evaluation: Path | None = Field(None, title="Scores")
    """Output folder of tools/evaluate.py whose scores the model card shows."""
    samples: Path | None = Field(None, title="Samples")
    """Output folder of tools/synthesize.py whose audio the model card links."""
    base_licence: Path | None = Field(None, title="Licence of the base")
    """Licence text of the base model, uploaded as LICENSE.txt; required for a model from the published
    weights."""
    statement: str = Field("", title="Statement")
    """Sentence that the licence of the published weights requires on the page of the model (section 4.1a);
    required for a model from these weights."""


class CheckpointSpeech(Sampling):
    """Options of every command that speaks with a checkpoint."""

    weights: Weights = Field("raw", title="Weights", description=CHOSEN_WEIGHTS)
    adapter_strength: float = Field(1.0, ge=0, le=1.5, title="Adapter strength")
    """Strength of a LoRA: 0 is its base, 1 the trained model; LoRA checkpoints and adapters only."""
    features: Path | None = Field(None, title="Features")
    """Features that the checkpoint was trained on; the default is the features that the run's pairs name."""
    models: Path = Field(Path("checkpoints"), title="Published files")
    """Folder of the published files; its vocoder turns indextts2 codes into sound, its CAM++ model measures
    speaker similarity."""
    solver_steps: int = Field(25, ge=1, le=1000, title="Solver steps")
    """Number of steps from noise to mel spectrogram; indextts2 only."""
    precision: Precision = Field("float32", title="Precision")
    """Precision of GPT and flow matching; bfloat16 and float16 are faster, and may change codes."""
    device: Device = Field("auto", title="Device")
    """Device to compute on; auto takes the GPU, or the CPU while the run is training."""


class Candidates(RecognizerFolder):
    """Options of commands that choose the best of several candidates."""

    candidates: int = Field(1, ge=1, le=16, title="Candidates")
    """Number of seeds with which each text is spoken. The result is the best one: with the fewest errors, or
    without a recognizer of the usual length, without loops and silence, and nearest to the voice."""
    asr: list[str] = Field([], title="Recognizer")
    """Folder of a speech recognizer, or its name OWNER/NAME on the Hugging Face hub; it judges the
    candidates."""


class Synthesize(Command, CheckpointSpeech, Candidates):
    """Speak texts with a checkpoint, in the voice of a recording.

    The checkpoint contains its tokenizer, and its codes become sound with the backend that produced the
    features it was trained on.
    """

    program: ClassVar[str] = "tools/synthesize.py"
    checkpoint: Path = Field(title="Checkpoint")
    """Checkpoint, run directory, exported model folder, or USER/NAME of a model on the hub."""
    text: list[str] = Field([], title="Text")
    """Text to speak."""
    text_file: Path | None = Field(None, title="Text file")
    """UTF-8 file with one text per line; or subtitles (.srt, .vtt), which also become one sound with each cue
    at its time."""
    voice: str = Field(title="Voice")
    """Recording of the voice to use, or the id of an utterance in a --manifest."""
    voices: list[Path] = Field([], title="Voices")
    """Recording, NAME=RECORDING or folder of recordings for a dialogue: a text that begins with a name and a
    colon, such as abebe: for abebe.wav, is spoken in this voice."""
    manifest: list[Path] = Field([], title="Manifest")
    """Manifest that contains the utterance of --voice; the default is the manifests beside the run's
    pairs."""
    output: Path = Field(Path("spoken"), title="Output")
    """File NAME.wav for one text, or a folder for 001.wav and so on with spoken.jsonl."""
    joined: bool = Field(False, title="One file")
    """Also write all texts as one file, an .m4b; a text that begins with # is a heading and begins a
    chapter."""
    stream: bool = Field(False, title="Stream")
    """Speak the texts one after another, and write pieces of the sound while it is spoken."""
    emotion_voice: Path | None = Field(None, title="Emotion recording")
    """Recording whose emotion is used."""
    emotion_alpha: float = Field(1.0, ge=0, le=1, title="Emotion strength")
    """Strength of the emotion recording, from 0 to 1."""
    emotion: str = Field("", title="Emotion weights")
    """Emotions with weights that add up to at most 1, such as happy=0.6,calm=0.2; indextts2 only."""
    guidance: float = Field(0.7, ge=0, le=10, title="Guidance")
    """Strength of classifier-free guidance by voice and text; indextts2 only."""
    duration_factor: float = Field(1.0, ge=0.5, le=2, title="Duration factor")
    """Factor of the duration of the speech, above 1 is slower; IndexTTS-2.5 only."""


class Evaluate(Command, CheckpointSpeech, RecognizerFolder):
    """Score checkpoints on held-out sentences and compare them with the recordings.

    Each sentence is spoken in the voice of another clip of its speaker.
    """

    program: ClassVar[str] = "tools/evaluate.py"
    checkpoint: list[Path] = Field(min_length=1, title="Checkpoint")
    """Checkpoint, run directory, exported model folder, or USER/NAME of a model on the hub."""
    manifest: Path = Field(title="Manifest")
    """Manifest of held-out utterances, such as val_manifest.jsonl."""
    output_dir: Path = Field(title="Output folder")
    """Folder for report.md, scores.png and the audio."""
    asr: list[str] = Field([], title="Recognizer")
    """Folder of a speech recognizer, or its name OWNER/NAME on the Hugging Face hub; it measures the
    character error rate."""
    num_clips: int = Field(100, ge=0, title="Maximum sentences")
    """Number of sentences to speak, taken from each speaker in turn; 0 speaks all."""
    seeds: int = Field(3, ge=1, le=100, title="Seeds per sentence")
    """Number of times that each sentence is spoken, with different seeds; 1 without sampling."""
    prompts: Path | None = Field(None, title="Prompts in another language")
    """Manifest of recordings in another language; each sentence is also spoken in the voice of one, and
    scored in a separate row."""
    minimal_pairs: Path | None = Field(None, title="Minimal pairs")
    """File with two texts in a line, a tab between them; both are spoken for blind listening."""


class Serve(Command, CheckpointSpeech, Candidates):
    """Serve speech over HTTP as OpenAI's API does: POST /v1/audio/speech and GET /v1/models.

    Requests that wait are spoken in one batch. Other machines reach the server only with a key.
    """

    program: ClassVar[str] = "tools/serve.py"
    checkpoint: Path = Field(title="Checkpoint")
    """Checkpoint, run directory, exported model folder, or USER/NAME of a model on the hub."""
    voices: list[Path] = Field(min_length=1, title="Voices")
    """Recording, NAME=RECORDING or folder of recordings; the name of a file is the name of its voice."""
    model_name: str = Field("indextts2", title="Model name")
    """Name of the model in requests."""
    default_model: bool = Field(False, title="Default model")
    """Answer requests for models of other names, such as tts-1, with this one."""
    default_voice: str = Field("", title="Default voice")
    """Voice for requests that name an unknown one, such as alloy; without it they are refused."""
    allow_unknown: bool = Field(False, title="Allow unknown words")
    """Speak texts without the words that the tokenizer does not know; the header X-Unknown-Words of the
    answer lists them."""
    grace: int = Field(30, ge=0, title="Grace period (s)")
    """Seconds that a stop waits for the running requests; the others are answered with 503."""
    mcp: bool = Field(False, title="MCP")
    """Run as an MCP server on standard input and output, for an assistant, instead of an HTTP server."""
    host: str = Field("127.0.0.1", title="Host")
    """Address to listen on."""
    port: int = Field(8880, ge=0, le=65535, title="Port")
    """Port to listen on; 0 takes a free one."""
    key_file: Path | None = Field(None, title="Key file")
    """File with one key per line, or sha256: and its digest; a request must carry one of them. Required for a
    host other than this machine."""
    max_characters: int = Field(4096, ge=1, le=20_000, title="Maximum characters")
    """Maximum length of a text."""
    max_waiting: int = Field(32, ge=1, title="Maximum requests")
    """Maximum number of open requests, running and waiting."""
    requests_per_minute: int = Field(60, ge=0, title="Requests per minute")
    """Maximum number of requests per minute of a key, or of an address without keys; 0 is no limit."""
    max_batch: int = Field(8, ge=1, title="Batch size")
    """Maximum number of segments that are generated together."""
