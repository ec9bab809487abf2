"""Small tokenizers for tests."""

import io
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from indextts.text.bases import extended, load_tokenizer, tokenizer_of

ENGLISH = (
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG.",
    "SHE SELLS SEA SHELLS, DOESN'T SHE?",
    "PACK MY BOX WITH 5 DOZEN JUGS - 1234567890!",
)
AMHARIC = ("ሰላም ለዓለም። ሰላም ነው፣ ሰላም!", "አበበ በሶ በላ፤ ጫላ ጩቤ ጨበጠ።", "ኢትዮጵያ ውስጥ ብዙ ወንዞች አሉ፡፡ ብዙ ተራሮችም አሉ፡፡")


def trained_model(texts: tuple[str, ...], **settings: object) -> bytes:
    """Return a serialized BPE model; its first pieces are `<s>`, `</s>`, `<unk>` unless `settings` differ."""
    writer = io.BytesIO()
    defaults = {"model_type": "bpe", "vocab_size": 90, "bos_id": 0, "eos_id": 1, "unk_id": 2, "pad_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=writer,
        hard_vocab_limit=False,
        minloglevel=2,
        **{**defaults, **settings},
    )
    return writer.getvalue()


def write_base(folder: Path, **settings: object) -> Path:
    """Write a base tokenizer of English pieces only; return its path."""
    path = folder / "bpe.model"
    path.write_bytes(trained_model(ENGLISH, **settings))
    return path


def extend(base_model: Path, texts: Sequence[str], target_size: int, **options: object) -> bytes:
    """Return the content of an extended tokenizer file, with options of the normaliser."""
    base = load_tokenizer(base_model)
    chosen = base.options.model_copy(update=options)
    return extended(tokenizer_of(base.model_bytes, base_model, chosen), texts, target_size)
