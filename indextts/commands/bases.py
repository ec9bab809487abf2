"""The published models that a run can start from, and what differs between them. Does not import torch.

    base    speaker condition                        rows before the text               text positions
    2.0     latents (K, D) of a speech encoder       latents + emotion, 2 speed rows    token + position
    2.5     style vector (1, Z) of CAM++             projection + emotion, 2 zero rows  ... + language row

A base is recognised by its weights (`base_of`), never by the `version` of a config.yaml: published files of
2.5 say 2.0. All other code asks a `Base`; code that computes differently lies in one module per package:
`bases.py` in `text/`, `features/` and `speech/synthesis/`, `models/gpt/model.py`, `data/networks.py` and
`speech/export/model_folder.py`. So a third base is a `Base` here and a case in each of them; its sizes are
fields of `GPTConfig`.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FEATURES_PER_SECOND = 50
OFFICIAL_CACHE = "hf_cache"  # folder of an official installation

Purpose = Literal["base model", "speech features", "sound"]
LetterCase = Literal["upper", "keep"]


@dataclass(frozen=True)
class PublishedFile:
    """A file on the hub that a program needs."""

    purpose: Purpose
    place: str  # its path in the folder of published files, with `/`
    num_bytes: int = 0  # its size, or about that; 0 for a small file
    sha256: str = ""  # of the known revision, in hexadecimal; "" if it is not known
    repository: str = ""  # on the hub; "" for that of the base
    official: str = ""  # its path in an official installation, if that differs
    published_as: str = ""  # its path in the repository, if that differs

    @property
    def name(self) -> str:
        """Return the path in the repository."""
        return self.published_as or self.place


@dataclass(frozen=True)
class Base:
    """One published model.

    Attributes:
        name: as stored in checkpoints.
        codes_per_second: semantic codes of a second of speech; speech features are 50.
        trained_languages: codes of the languages that the published model speaks, where it has language rows.
        extended_file: name of an extended tokenizer in a project.
        codec_file: path of the semantic codec in a model folder.
        folder: name of the folder of its published files in a workspace.
        own_files: published files that only it has, or has in its own form, from bases.toml.
        letter_case: the case in which the official program reads Latin letters in Amharic; "keep" is the
            case of the text.
        reads_states: whether the acoustic model reads the GPT's states besides the codes.
        official_page: command of the official page, which replaces an incomplete model folder by the
            published one.
        weight_names: weights that only the GPT of this base has.
    """

    name: str
    title: str
    condition: Literal["latents", "style"]
    codes_per_second: int
    trained_languages: tuple[str, ...]
    tokenizer_file: str
    extended_file: str
    codec_file: str
    repository: str
    folder: str
    own_files: tuple[PublishedFile, ...]
    letter_case: LetterCase
    reads_states: bool
    has_duration_factor: bool
    official_page: str
    weight_names: frozenset[str]

    @property
    def features_per_code(self) -> int:
        return FEATURES_PER_SECOND // self.codes_per_second

    @property
    def reads_style(self) -> bool:
        """Whether features contain the style vector of CAM++."""
        return self.condition == "style"


def _own_files(base: str) -> tuple[PublishedFile, ...]:
    files = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(PublishedFile(**fields) for fields in files[base])


BASE_2_0 = Base(
    name="2.0",
    title="IndexTTS-2.0",
    condition="latents",
    codes_per_second=50,
    trained_languages=(),
    tokenizer_file="bpe.model",
    extended_file="amharic_extended_bpe.model",
    codec_file="semantic_codec/model.safetensors",
    repository="IndexTeam/IndexTTS-2",
    folder="checkpoints",
    own_files=_own_files("2.0"),
    letter_case="upper",
    reads_states=True,
    has_duration_factor=False,
    official_page="python webui.py --version 2 --model_dir",
    weight_names=frozenset({"speed_emb.weight"}),
)
BASE_2_5 = Base(
    name="2.5",
    title="IndexTTS-2.5",
    condition="style",
    codes_per_second=25,
    trained_languages=("en", "zh", "ja", "es", "ar"),
    tokenizer_file="multilingual_zh_ja_yue_char_del.tiktoken",
    extended_file="amharic_extended.tiktoken",
    codec_file="codec.pth",
    repository="IndexTeam/IndexTTS-2.5",
    folder="checkpoints_2.5",
    own_files=_own_files("2.5"),
    letter_case="keep",
    reads_states=False,
    has_duration_factor=True,
    official_page="python webui.py --version 2.5 --model_dir",
    weight_names=frozenset({"lang_embedding.weight", "spk_emb_proj.weight"}),
)
PROPOSED = BASE_2_5  # for a new project
BaseName = Literal["2.0", "2.5"]
BASES = {base.name: base for base in (BASE_2_0, BASE_2_5)}


def base_of(weight_names: Iterable[str]) -> Base:
    """Return the base that has the most of its own weights among `weight_names`; 2.0 if none has any."""
    found = set(weight_names)
    return max(BASES.values(), key=lambda base: len(base.weight_names & found))


def base_in(folder: Path) -> Base:
    """Return the base whose tokenizer is in a model folder, the first if there are several or none."""
    found = (base for base in BASES.values() if (folder / base.tokenizer_file).is_file())
    return next(found, BASE_2_0)


def base_of_codec_file(path: Path) -> Base:
    """Return the base whose published codec has this name; 2.0 if none has."""
    found = (base for base in BASES.values() if path.name == Path(base.codec_file).name)
    return next(found, BASE_2_0)
