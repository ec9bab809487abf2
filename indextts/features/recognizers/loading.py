"""Load a recognizer from a local folder, or from the hub into one.

    FOLDER/   written by `save_pretrained`, or a clone of a Hugging Face repository: config.json,
              model.safetensors, preprocessor_config.json, tokenizer_config.json, vocab.json ...
              MMS also has adapter.LANGUAGE.safetensors, and vocab.json has a vocabulary for each language
    FOLDER/   a Whisper of CTranslate2: config.json, model.bin, tokenizer.json, vocabulary.txt or .json

Code of the folder never runs. A model that cannot write the language is refused: its transcripts would be
wrong for people and for voice models alike.

Importing this module imports `transformers`, which takes seconds.
"""

import fnmatch
import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from transformers import (
    MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    AutoConfig,
    AutoFeatureExtractor,
    AutoModelForCTC,
    AutoModelForSpeechSeq2Seq,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from indextts.commands.base import REPOSITORY_NAME
from indextts.errors import UserError
from indextts.features.hub_files import (
    HubUnreachableError,
    download_files,
    downloads_to,
    hub_errors,
    list_files,
    remove_outdated,
)
from indextts.features.published_files import read_record
from indextts.features.recognizers.ctc import CtcRecognizer
from indextts.features.recognizers.recognizer import GPU_BATCH_S, LoadedModel, Placement, Recognizer
from indextts.features.recognizers.sequence_to_sequence import FasterWhisper, SequenceToSequenceRecognizer
from indextts.system.digest import file_digest
from indextts.system.language_codes import standard_code
from indextts.text.languages import Language, find_language

logger = logging.getLogger(__name__)

ADVICE = (
    "usable are a CTC model or a Whisper of transformers (config.json, preprocessor_config.json, tokenizer, "
    "model.safetensors or pytorch_model.bin), and a Whisper of CTranslate2 (model.bin, tokenizer.json)"
)
KINDS = {  # files by which other kinds are recognised
    "*.nemo": "a model of NeMo",
    "ggml*.bin": "a model of whisper.cpp",
    "*.gguf": "a model of whisper.cpp",
    "hyperparams.yaml": "a model of SpeechBrain",
    "*.onnx": "an ONNX model",
    "*.mdl": "a model of Kaldi or Vosk",
    "*.pt": "a checkpoint of PyTorch, such as of openai-whisper or fairseq",
}
INSTALL = "pip install -e '.[faster-whisper]'"
SETTINGS: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
DIGESTED = (".json", ".txt", ".model", ".safetensors", ".bin")
ADAPTER = "adapter.{}.{}"  # of MMS: language and suffix
_WEIGHTS = (
    re.compile(r"model(-\d+-of-\d+)?\.safetensors"),
    re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin"),
    re.compile(r"model\.bin"),  # of CTranslate2
)
_SMALL = re.compile(r"[^/]+\.(json|txt|model)")
_NOT_READ = frozenset(["trainer_state.json", "all_results.json", "train_results.json", "eval_results.json"])


def load_recognizers(
    names: Sequence[str], device: torch.device, language: str, download_folder: Path
) -> list[Recognizer]:
    """Return recognizers, each named after its folder or repository.

    Args:
        names: folders, or OWNER/NAME on the hub.
        language: ISO 639 code.

    Raises:
        UserError: a model is incomplete or cannot write the language, two have the same name, or the hub
            refuses.
    """
    folders = [_folder(name, language, download_folder) for name in names]
    shown = [folder.resolve().name for folder in folders]
    if len(set(shown)) < len(shown):
        raise UserError(f"--asr: two folders have the same name ({', '.join(shown)}); rename one of them")
    found = [load_recognizer(folder, device, language) for folder in folders]
    for family in {each.family for each in found if [one.family for one in found].count(each.family) > 1}:
        logger.warning(
            "--asr: %s are of one family, %s, and make the same mistakes; a recognizer of another kind, such "
            "as a CTC model, finds more of them",
            " and ".join(each.name for each in found if each.family == family),
            family,
        )
    return found


def _folder(name: str, language: str, download_folder: Path) -> Path:
    """Return the folder of a recognizer; a model of the hub is downloaded."""
    if Path(name).is_dir() or not REPOSITORY_NAME.fullmatch(name):
        return Path(name)
    folder = download_folder / name.replace("/", "--")
    download_recognizer(name, folder, language)
    return folder


def download_recognizer(repository: str, folder: Path, language: str) -> None:
    """Download a recognizer that is missing or differs from the hub's; without the hub, use what is there.

    Raises:
        UserError: the model does not exist or has no usable weights, the hub refuses or is unreachable while
            files are missing, or the disk is full.
    """
    with downloads_to(folder):
        try:
            with hub_errors(repository):
                listing = list_files(repository)
        except HubUnreachableError as error:
            _require_complete(repository, folder, error.reason)
            return
        remotes = {name: listing[name] for name in needed_files(listing, language)}
        if not _weights_in(remotes):
            raise UserError(
                f"--asr {repository}: has no model.safetensors, pytorch_model.bin or model.bin at the top "
                "level; use another model"
            )
        remove_outdated(folder, listing)
        for _ in download_files(folder, remotes):
            pass


def needed_files(names: Iterable[str], language: str) -> list[str]:
    """Return the files that transformers reads, the weights last."""
    names = sorted(names)
    codes = adapter_codes(language, (name.split(".")[1] for name in names if name.startswith("adapter.")))
    adapters = {ADAPTER.format(code, suffix) for code in codes for suffix in ("safetensors", "bin")}
    small = [name for name in names if _SMALL.fullmatch(name) and name not in _NOT_READ]
    return [*small, *(name for name in names if name in adapters), *_weights_in(names)]


def adapter_codes(language: str, names: Iterable[str]) -> list[str]:
    """Return the adapters of a language: amh for am, swh for sw, azj-script_latin and others for az."""
    code = language.split("-")[0]
    return sorted({name for name in names if standard_code(name.split("-")[0]) == code})


def _weights_in(names: Collection[str]) -> list[str]:
    """Return the weights among files, safetensors if there are any."""
    of_kinds = ([name for name in names if kind.fullmatch(name)] for kind in _WEIGHTS)
    return next(filter(None, of_kinds), [])


def _require_complete(repository: str, folder: Path, reason: str) -> None:
    record = read_record(folder)
    if not _weights_in(record) or not all((folder / name).is_file() for name in record):
        raise UserError(
            f"{constants.ENDPOINT}: unreachable ({reason}), and {folder} has no complete copy of "
            f"{repository}; run the same command with a connection, or pass the folder of a copy"
        )
    logger.warning("%s: unreachable (%s); using %s", constants.ENDPOINT, reason, folder)


def load_recognizer(folder: Path, device: torch.device, language: str) -> Recognizer:
    """Return the model in `folder`; errors as for `load_recognizers`."""
    if not (folder / "config.json").is_file():
        raise UserError(f"--asr {folder}: {_shown_kind(folder)}, without config.json; {ADVICE}")
    spoken = find_language(language)
    if _weights_in([path.name for path in folder.iterdir()]) == ["model.bin"]:
        return _load_faster_whisper(folder, device, spoken)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    with _readable(folder):
        config = AutoConfig.from_pretrained(folder, **SETTINGS)
        is_generating = type(config) in MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING
        adapter = None if is_generating else _adapter(folder, config, spoken)
        kind = AutoModelForSpeechSeq2Seq if is_generating else AutoModelForCTC
        model, info = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32, **SETTINGS)
        extractor = AutoFeatureExtractor.from_pretrained(folder, **SETTINGS)  # type: ignore[no-untyped-call]
        if type(extractor.sampling_rate) is not int or extractor.sampling_rate < 1:
            raise ValueError(f"sampling_rate {extractor.sampling_rate!r} in preprocessor_config.json")
        missing = sorted(info["missing_keys"])
        if missing:  # transformers would initialise them at random and continue
            raise UserError(f"--asr {folder}: weights are missing, such as {missing[0]}; {ADVICE}")
        if adapter:
            model.load_adapter(adapter, local_files_only=True)
        chosen = {"target_lang": adapter} if adapter else {}
        tokenizer = AutoTokenizer.from_pretrained(folder, **chosen, **SETTINGS)
    settings = getattr(model, "generation_config", None)
    is_english_only = getattr(settings, "is_multilingual", None) is False
    _require_language(folder, tokenizer, spoken, is_english_only)
    loaded = LoadedModel(folder.resolve().name, _identity(folder, adapter), model, extractor, tokenizer)
    is_gpu = device.type == "cuda"  # a CPU computes clip by clip
    placement = Placement(device, torch.float16, GPU_BATCH_S) if is_gpu else Placement(device)
    if is_generating:
        return SequenceToSequenceRecognizer(loaded, placement, spoken.code)
    if len(tokenizer) < model.config.vocab_size:
        raise UserError(
            f"--asr {folder}: the model has {model.config.vocab_size} characters, its tokenizer "
            f"{len(tokenizer)}; use the tokenizer that was published with the model"
        )
    return CtcRecognizer(loaded, placement)


def _shown_kind(folder: Path) -> str:
    """Return the kind of a path that is no recognizer of transformers or CTranslate2."""
    if not folder.is_dir():
        return "a file" if folder.exists() else "does not exist"
    names = sorted(path.name for path in folder.iterdir())
    kinds = (kind for pattern, kind in KINDS.items() if fnmatch.filter(names, pattern))
    return next(kinds, f"a folder with {', '.join(names[:3]) or 'no files'}")


def _load_faster_whisper(folder: Path, device: torch.device, language: Language) -> FasterWhisper:
    try:
        from faster_whisper import WhisperModel  # an optional package
    except ImportError:
        raise UserError(
            f"--asr {folder}: a model of CTranslate2, which requires faster-whisper; run {INSTALL}"
        ) from None
    if not (folder / "tokenizer.json").is_file():  # the package would download one
        raise UserError(f"--asr {folder}: a model of CTranslate2 without tokenizer.json; {ADVICE}")
    is_gpu = device.type == "cuda"
    logging.getLogger("faster_whisper").setLevel(logging.WARNING)  # it logs every clip
    with _readable(folder):
        model = WhisperModel(
            str(folder),
            device=device.type,
            compute_type="float16" if is_gpu else "int8",
            cpu_threads=torch.get_num_threads(),
            local_files_only=True,
        )
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=model.hf_tokenizer)  # type: ignore[no-untyped-call]
    _require_language(folder, tokenizer, language, not model.model.is_multilingual)
    return FasterWhisper(folder.resolve().name, _identity(folder, None), model, language.code)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a wrong file leads to, and transformers names none
        reason = " ".join(str(error).split())
        raise UserError(f"--asr {folder}: cannot be loaded ({reason[:200]}); {ADVICE}") from None


def _adapter(folder: Path, config: Any, language: Language) -> str | None:
    """Return the name of the adapter for a language; None for a model without adapters."""
    if getattr(config, "adapter_attn_dim", None) is None:
        return None
    vocabularies = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    if not any(isinstance(value, dict) for value in vocabularies.values()):
        return None  # trained further for a single language
    for name in adapter_codes(language.code, vocabularies):
        is_own = any(char.isalpha() and language.owns(char) for char in vocabularies[name] if len(char) == 1)
        files = (folder / ADAPTER.format(name, suffix) for suffix in ("safetensors", "bin"))
        if is_own and any(path.is_file() for path in files):
            return name
    raise UserError(
        f"--asr {folder}: has no {ADAPTER.format('LANGUAGE', 'safetensors')} for {language.name} with a "
        "vocabulary in vocab.json; download them from the model's page, or pass another recognizer"
    )


def _require_language(folder: Path, tokenizer: Any, language: Language, is_english_only: bool) -> None:
    """Refuse a model that cannot write a single letter of the language."""
    if language.letters and not any(_writes(tokenizer, letter) for letter in language.letters):
        raise UserError(
            f"--asr {folder}: its vocabulary has no letter of {language.name}, so its transcripts would be "
            f"wrong; pass a recognizer for {language.name}, or set the language of the texts"
        )
    if is_english_only and language.code != "en":
        raise UserError(f"--asr {folder}: an English-only model; pass a recognizer for {language.name}")


def _writes(tokenizer: Any, letter: str) -> bool:
    for form in (letter, letter.lower()):
        written = tokenizer.decode(tokenizer.encode(form, add_special_tokens=False), skip_special_tokens=True)
        if written.strip() == form:
            return True
    return False


def _identity(folder: Path, adapter: str | None) -> str:
    """Return the digest of the files that determine the transcripts."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        is_other_adapter = path.name.startswith("adapter.") and path.name.split(".")[1] != adapter
        if path.is_file() and path.suffix in DIGESTED and path.name[0] != "." and not is_other_adapter:
            digest.update(f"{path.name} {file_digest(path)}\n".encode())
    return digest.hexdigest()
