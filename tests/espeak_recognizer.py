"""A CTC recognizer of Amharic for tests, trained on phrases that espeak-ng speaks.

    python -m tests.espeak_recognizer --output-dir FOLDER [--num-phrases 12000] [--steps 4000] [--seed 0] ...

The model is a small Wav2Vec2-BERT in the format of transformers. It learns from short phrases of words of
--texts and of invented words, in several voices and with noise; it never sees a recording or a transcript of
the test that uses it. First each letter takes an equal share of the phrase, then CTC finds the positions.

Axes: B phrases of a batch, T positions, F values of a position, V tokens.
"""

import fcntl
import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import soxr
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from transformers import (
    SeamlessM4TFeatureExtractor,
    Wav2Vec2BertConfig,
    Wav2Vec2BertForCTC,
    Wav2Vec2CTCTokenizer,
)
from transformers.utils import logging

from indextts.commands.base import Command
from indextts.commands.terminal import parse
from indextts.text.ethiopic import letters_of, merge_homophones
from indextts.text.normalize import normalize
from tests.conftest import REPOSITORY
from tests.spoken_languages import spoken

RATE_HZ = 16_000
STRIDE = 4  # frames of 10 ms in a position
POSITION_S = 0.01 * STRIDE
MARGIN_S = 0.3  # of silence before and after a phrase, at most
SILENCE = 0.02  # of the peak
BLANK = 0
SPECIAL = ("<pad>", "<unk>", "|")


class TrainRecognizer(Command):
    """Train a recognizer on speech of espeak-ng."""

    program: ClassVar[str] = "tests/espeak_recognizer.py"
    output_dir: Path = Field(title="Output folder", description="Folder for the model.")
    start: Path | None = Field(
        None, title="Start", description="Folder of a model to train further, on words that it can write."
    )
    texts: Path = Field(
        REPOSITORY / "demo/sentences.txt",
        title="Texts",
        description="File with sentences to take words from.",
    )
    num_held_out: int = Field(
        40, ge=0, title="Held out", description="Number of sentences at the end of the texts to leave out."
    )
    invented: float = Field(
        0.5, ge=0, le=1, title="Invented words", description="Share of words that are invented."
    )
    voices: list[str] = Field(
        ["m1", "f2", "m3", "f4"], min_length=1, title="Voices", description="Variants of espeak-ng."
    )
    room: float = Field(
        0.0, ge=0, le=1, title="Room", description="Share of phrases with the reflections of a room."
    )
    num_phrases: int = Field(3000, ge=1, title="Phrases", description="Number of phrases to learn from.")
    max_words: int = Field(3, ge=1, title="Words", description="Largest number of words in a phrase.")
    steps: int = Field(1000, ge=1, title="Steps", description="Number of updates.")
    batch_size: int = Field(16, ge=1, title="Batch size", description="Number of phrases in a batch.")
    hidden_size: int = Field(128, ge=4, title="Hidden size", description="Width of the model.")
    layers: int = Field(3, ge=1, title="Layers", description="Number of layers.")
    learning_rate: float = Field(2e-3, gt=0, title="Learning rate", description="Highest learning rate.")
    seed: int = Field(0, title="Seed", description="Seed of all random choices.")


@dataclass(frozen=True)
class Phrase:
    """Features (T, F) and token ids of a phrase, and the positions where its speech begins and ends."""

    features: Tensor
    ids: list[int]
    begin: int
    end: int


def cached_recognizer(cache: Path, **changes: object) -> Path:
    """Return the folder of a recognizer, which is trained unless an earlier session has done so.

    Args:
        changes: fields of TrainRecognizer.
    """
    command = TrainRecognizer(output_dir=cache, **changes)
    content = command.model_dump_json(exclude={"output_dir", "texts"}) + command.texts.read_text("utf-8")
    key = hashlib.sha256((content + Path(__file__).read_text("utf-8")).encode()).hexdigest()[:16]
    folder = cache / f"espeak-{key}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "training.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as name:
                train(command.model_copy(update={"output_dir": Path(name) / "model"}))
                (Path(name) / "model").rename(folder)
    return folder


def train(command: TrainRecognizer) -> None:
    """Train the model and write its folder."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    chance = random.Random(command.seed)
    words = words_of(sentences_of(command)[0])
    letters = sorted({letter for word in words for letter in word})
    number_of = {token: number for number, token in enumerate([*SPECIAL, *letters])}
    if command.start is not None:
        number_of = json.loads((command.start / "vocab.json").read_text("utf-8"))
        letters = [letter for letter in letters if letter in number_of]
        words = [word for word in words if all(letter in number_of for letter in word)]
    extractor: Any = SeamlessM4TFeatureExtractor(stride=STRIDE, pad_to_multiple_of=STRIDE)  # type: ignore[no-untyped-call]
    phrases = [
        phrase_of(command, random_words(command, words, letters, chance), extractor, number_of, chance)
        for _ in range(command.num_phrases)
    ]
    phrases.sort(key=lambda phrase: len(phrase.features))
    torch.manual_seed(command.seed)
    model = (
        small_model(command, len(number_of))
        if command.start is None
        else Wav2Vec2BertForCTC.from_pretrained(command.start).train()
    )
    optimize(model, phrases, command, chance)
    command.output_dir.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(command.output_dir)
    extractor.save_pretrained(command.output_dir)
    vocabulary = command.output_dir / "vocab.json"
    vocabulary.write_text(json.dumps(number_of))
    tokenizer: Any = Wav2Vec2CTCTokenizer(  # type: ignore[no-untyped-call]
        str(vocabulary), bos_token=None, eos_token=None, unk_token="<unk>", pad_token="<pad>"
    )
    tokenizer.save_pretrained(command.output_dir)


def sentences_of(command: TrainRecognizer) -> tuple[list[str], list[str]]:
    """Return the sentences to take words from, and those that are held out."""
    sentences = [line for line in command.texts.read_text("utf-8").splitlines() if line.strip()]
    first = len(sentences) - command.num_held_out
    return sentences[:first], sentences[first:]


def words_of(sentences: Sequence[str]) -> list[str]:
    """Return the words of sentences, with one letter for each sound."""
    text = " ".join(map(normalize, sentences))
    words = [merge_homophones(letters_of(word), "loose") for word in text.split()]
    return [word for word in words if word and word.isalpha() and not word.isascii()]


def random_words(
    command: TrainRecognizer, words: Sequence[str], letters: Sequence[str], chance: random.Random
) -> list[str]:
    return [
        "".join(chance.choices(letters, k=chance.randint(2, 5)))
        if chance.random() < command.invented
        else chance.choice(words)
        for _ in range(chance.randint(1, command.max_words))
    ]


def phrase_of(
    command: TrainRecognizer,
    words: Sequence[str],
    extractor: Any,
    number_of: dict[str, int],
    chance: random.Random,
) -> Phrase:
    """Return a phrase as spoken by a random voice, with silence around it and noise."""
    voice = f"am+{chance.choice(command.voices)}"
    samples, rate_hz = spoken(" ".join(words), voice, chance.randint(30, 70), chance.randint(140, 190))
    samples = soxr.resample(samples, rate_hz, RATE_HZ)
    samples = np.pad(samples, [int(chance.uniform(0, MARGIN_S) * RATE_HZ) for _ in range(2)])
    loud = np.flatnonzero(np.abs(samples) > SILENCE * np.abs(samples).max()) / (RATE_HZ * POSITION_S)
    samples = recorded(samples, command.room, np.random.default_rng(chance.getrandbits(32)))
    features = extractor(samples, sampling_rate=RATE_HZ, return_tensors="pt")["input_features"][0]
    ids = [number_of[letter] for letter in "".join(words)]  # the words are spoken without pauses
    return Phrase(features, ids, int(loud[0]), min(int(loud[-1]) + 1, len(features)))


def recorded(samples: NDArray[np.float32], room: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a clip with noise, and with the reflections of a room in a share of the clips."""
    if rng.random() < room:
        times = np.arange(int(0.2 * RATE_HZ)) / RATE_HZ
        response = rng.standard_normal(len(times)) * 10 ** (-3 * times / 0.2)
        size = len(samples) + len(times)
        heard = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(response, size), size)[: len(samples)]
        samples = samples + heard * (0.12 * samples.std() / heard.std())
    noise_db = rng.uniform(25, 50)
    noise = rng.standard_normal(len(samples)) * samples.std() * 10 ** (-noise_db / 20)
    result: NDArray[np.float32] = (samples + noise).astype(np.float32)
    return result


def small_model(command: TrainRecognizer, vocab_size: int) -> Wav2Vec2BertForCTC:
    dropouts = ("hidden", "activation", "attention", "feat_proj", "final", "conformer_conv")
    none: dict[str, Any] = {f"{name}_dropout": 0.0 for name in dropouts}
    model = Wav2Vec2BertForCTC(
        Wav2Vec2BertConfig(
            vocab_size=vocab_size,
            pad_token_id=BLANK,
            hidden_size=command.hidden_size,
            num_hidden_layers=command.layers,
            num_attention_heads=4,
            intermediate_size=2 * command.hidden_size,
            feature_projection_input_dim=80 * STRIDE,
            conv_depthwise_kernel_size=11,
            position_embeddings_type=None,
            apply_spec_augment=False,
            layerdrop=0.0,
            **none,
        )
    )
    model.train()
    return model


def optimize(
    model: Wav2Vec2BertForCTC, phrases: Sequence[Phrase], command: TrainRecognizer, chance: random.Random
) -> None:
    """Train on batches of phrases of similar length."""
    optimizer = torch.optim.AdamW(model.parameters(), command.learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, command.learning_rate, total_steps=command.steps, pct_start=0.05
    )
    equal_steps = command.steps // 12 if command.start is None else 0
    for step in range(command.steps):
        first = chance.randrange(max(1, len(phrases) - command.batch_size + 1))
        batch = phrases[first : first + command.batch_size]
        lengths = torch.tensor([len(phrase.features) for phrase in batch])
        features = torch.nn.utils.rnn.pad_sequence([p.features for p in batch], batch_first=True)  # (B, T, F)
        mask = (torch.arange(features.shape[1]) < lengths[:, None]).long()
        scores = model(input_features=features, attention_mask=mask).logits.log_softmax(-1)  # (B, T, V)
        loss = equal_share_loss(scores, batch) if step < equal_steps else ctc_loss(scores, lengths, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def equal_share_loss(scores: Tensor, batch: Sequence[Phrase]) -> Tensor:
    """Return the cross-entropy if each letter takes an equal share of the speech: CTC then starts sooner."""
    targets = torch.full(scores.shape[:2], -100)
    for row, phrase in enumerate(batch):
        size = phrase.end - phrase.begin
        places = torch.arange(size) * len(phrase.ids) // size
        targets[row, : len(phrase.features)] = BLANK
        targets[row, phrase.begin : phrase.end] = torch.tensor(phrase.ids)[places]
    return F.nll_loss(scores.transpose(1, 2), targets)


def ctc_loss(scores: Tensor, lengths: Tensor, batch: Sequence[Phrase]) -> Tensor:
    targets = torch.tensor([number for phrase in batch for number in phrase.ids])
    sizes = torch.tensor([len(phrase.ids) for phrase in batch])
    return F.ctc_loss(scores.transpose(0, 1), targets, lengths, sizes, zero_infinity=True)


if __name__ == "__main__":
    train(parse(TrainRecognizer, sys.argv[1:]))
