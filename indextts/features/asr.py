"""Speech recognition with a CTC model from a local folder, for scoring; nothing is downloaded.

    FOLDER/   as `save_pretrained` of transformers writes it, or a clone of a repository of the hub:
              config.json, model.safetensors, preprocessor_config.json, tokenizer_config.json, vocab.json

Wav2Vec2, Wav2Vec2-BERT and every other model that transformers knows as CTC. The best path is taken,
without a language model: one would mend what was said badly.

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

ADVICE = "give the folder of a CTC model with its preprocessor_config.json and tokenizer"
SHORTEST_S = 0.1  # shorter sounds have no position in the models' first layers


class Recognizer:
    """A CTC model with its characters, on one device."""

    def __init__(self, name: str, model: Any, extractor: Any, tokenizer: Any, device: torch.device) -> None:
        self.name = name
        self.sample_rate_hz: int = extractor.sampling_rate
        self._model, self._extractor, self._tokenizer = model.to(device).eval(), extractor, tokenizer
        marks = (
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.unk_token_id,
            tokenizer.pad_token_id,
        )
        self._unheard = {*marks, model.config.pad_token_id}  # the blank is the padding
        self._device = device

    @torch.inference_mode()
    def transcribe(self, samples: NDArray[np.float32]) -> str:
        """Return what is heard in `samples` (S,) at `sample_rate_hz`; nothing in a sound that is too short.

        One clip at a time: some of these models hear padding.
        """
        if len(samples) < SHORTEST_S * self.sample_rate_hz:
            return ""
        inputs = self._extractor(samples, sampling_rate=self.sample_rate_hz, return_tensors="pt")
        given = {name: value.to(self._device) for name, value in inputs.items()}
        best = self._model(**given).logits[0].argmax(-1)  # (T,)
        # Joined here: the tokenizer would take the blanks out first, and then a letter that was said twice.
        tokens = [token for token in best.unique_consecutive().tolist() if token not in self._unheard]
        text: str = self._tokenizer.decode(tokens, group_tokens=False)
        return text


def load_recognizers(folders: Sequence[Path], device: torch.device) -> list[Recognizer]:
    """Return the models in `folders`, each under the name of its folder.

    Raises:
        UserError: a folder holds no whole CTC model, or two have one name.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise UserError(f"--asr: two folders have one name ({', '.join(names)}); rename one")
    return [load_recognizer(folder, device) for folder in folders]


def load_recognizer(folder: Path, device: torch.device) -> Recognizer:
    """Return the model in `folder`; errors as for `load_recognizers`."""
    if not (folder / "config.json").is_file():
        raise UserError(f"--asr {folder}: there is no config.json in it; {ADVICE}")
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    settings: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        model, info = AutoModelForCTC.from_pretrained(folder, output_loading_info=True, **settings)
        extractor = AutoFeatureExtractor.from_pretrained(folder, **settings)  # type: ignore[no-untyped-call]
        tokenizer = AutoTokenizer.from_pretrained(folder, **settings)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--asr {folder}: cannot be loaded ({reason[:200]}); {ADVICE}") from None
    missing = sorted(info["missing_keys"])
    if missing:  # transformers would go on with random numbers in their place
        raise UserError(f"--asr {folder}: weights are missing, such as {missing[0]}; {ADVICE}")
    if len(tokenizer) < model.config.vocab_size:
        raise UserError(
            f"--asr {folder}: the model says {model.config.vocab_size} characters, its tokenizer has "
            f"{len(tokenizer)}; give the files that belong together"
        )
    return Recognizer(folder.resolve().name, model, extractor, tokenizer, device)
