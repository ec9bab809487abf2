"""Speech recognition for scoring, with a CTC model from a local folder. Nothing is downloaded.

    FOLDER/   written by `save_pretrained` of transformers, or a clone of a Hugging Face repository:
              config.json, model.safetensors, preprocessor_config.json, tokenizer_config.json, vocab.json

Every model that transformers loads as CTC works, such as Wav2Vec2 and Wav2Vec2-BERT. Decoding takes the best
path without a language model, which would correct mispronounced words.

Axes: S samples, T positions, V characters.

Importing this module imports `transformers`, which takes seconds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoFeatureExtractor, AutoModelForCTC, AutoTokenizer
from transformers.utils import logging as transformers_logging

from indextts.errors import UserError

ADVICE = "pass the folder of a CTC model with its preprocessor_config.json and tokenizer"
MIN_DURATION_S = 0.1  # a shorter clip has no position after the first layers of these models


class Recognizer:
    """A CTC model with its feature extractor and tokenizer, on one device."""

    def __init__(self, name: str, model: Any, extractor: Any, tokenizer: Any, device: torch.device) -> None:
        self.name = name
        self.sample_rate_hz: int = extractor.sampling_rate
        self._model, self._extractor, self._tokenizer = model.to(device).eval(), extractor, tokenizer
        special = (
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.unk_token_id,
            tokenizer.pad_token_id,
        )
        self._ignored = {*special, model.config.pad_token_id}  # the padding token is the CTC blank
        self._device = device

    @torch.inference_mode()
    def transcribe(self, samples: NDArray[np.float32]) -> str:
        """Return the text of `samples` (S,) at `sample_rate_hz`, empty for a clip that is too short.

        Takes one clip at a time: padding changes the output of some of these models.
        """
        if len(samples) < MIN_DURATION_S * self.sample_rate_hz:
            return ""
        inputs = self._extractor(samples, sampling_rate=self.sample_rate_hz, return_tensors="pt")
        on_device = {name: value.to(self._device) for name, value in inputs.items()}
        best = self._model(**on_device).logits[0].argmax(-1)  # (T,)
        # Collapse repeats here: the tokenizer would remove the blanks first and merge double letters.
        tokens = [token for token in best.unique_consecutive().tolist() if token not in self._ignored]
        text: str = self._tokenizer.decode(tokens, group_tokens=False)
        return text


def load_recognizers(folders: Sequence[Path], device: torch.device) -> list[Recognizer]:
    """Return the models in `folders`, each named after its folder.

    Raises:
        UserError: a folder does not contain a complete CTC model, or two folders have the same name.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise UserError(f"--asr: two folders have the same name ({', '.join(names)}); rename one of them")
    return [load_recognizer(folder, device) for folder in folders]


def load_recognizer(folder: Path, device: torch.device) -> Recognizer:
    """Return the model in `folder`; errors as for `load_recognizers`."""
    if not (folder / "config.json").is_file():
        raise UserError(f"--asr {folder}: contains no config.json; {ADVICE}")
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        model, info = AutoModelForCTC.from_pretrained(folder, output_loading_info=True, **settings)
        extractor = AutoFeatureExtractor.from_pretrained(folder, **settings)  # type: ignore[no-untyped-call]
        tokenizer = AutoTokenizer.from_pretrained(folder, **settings)
        if type(extractor.sampling_rate) is not int or extractor.sampling_rate < 1:
            raise ValueError(f"sampling_rate {extractor.sampling_rate!r} in preprocessor_config.json")
    except Exception as error:  # noqa: BLE001 - whatever a wrong file leads to, and transformers names none
        reason = " ".join(str(error).split())
        raise UserError(f"--asr {folder}: cannot be loaded ({reason[:200]}); {ADVICE}") from None
    missing = sorted(info["missing_keys"])
    if missing:  # transformers would initialise them at random and continue
        raise UserError(f"--asr {folder}: weights are missing, such as {missing[0]}; {ADVICE}")
    if len(tokenizer) < model.config.vocab_size:
        raise UserError(
            f"--asr {folder}: the model has {model.config.vocab_size} characters, its tokenizer "
            f"{len(tokenizer)}; use the tokenizer that was published with the model"
        )
    return Recognizer(folder.resolve().name, model, extractor, tokenizer, device)
