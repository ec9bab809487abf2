"""Data set of pairs and its micro-batches; `order.py` chooses the samples, `loading.py` reads them.

Axes of a batch: B samples, N text tokens, M codes, K rows of a speaker condition, W their width, D model
width.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from indextts.commands.bases import BASES
from indextts.commands.pairs_file import PairsFile
from indextts.data.epoch_mix import EpochMix, digest_of_mix
from indextts.data.feature_store import FeatureStore
from indextts.data.pair_columns import PairColumns
from indextts.data.pair_index import PairIndex
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.model import GPTBatch
from indextts.models.gpt.packed import PackedBatch, pack
from indextts.runs.schedule import EpochSize
from indextts.system.amounts import counted
from indextts.text.special_tokens import language_row
from indextts.training.order import SEED_BITS, derive_seed, epoch_size

logger = logging.getLogger(__name__)

# In a small data set a single corrupt shard may be more than one percent.
MAX_UNUSABLE_OF_SMALL_SET = 10

Batch = GPTBatch | PackedBatch


@dataclass(frozen=True)
class Sample:
    """Tensors of one pair: `text_ids` (N,), `codes` (M,), `condition` (K, W), `emo_vec` (D,).

    `language` is that of its text; "" for that of the run.
    """

    id: str
    text_ids: Tensor
    codes: Tensor
    condition: Tensor
    emo_vec: Tensor
    language: str = ""


@dataclass(frozen=True)
class Unreadable:
    """A pair whose features are unreadable or not finite."""

    id: str
    reason: str


@dataclass(frozen=True)
class MicroBatch:
    """Data of one micro-step."""

    batch: Batch | None  # the readable samples, None if there are none
    ids: tuple[str, ...]  # of all requested pairs in order, including those of the other ranks
    unreadable: tuple[Unreadable, ...]
    rank_costs: tuple[float, ...] = ()  # cost of the shard of each rank; empty in a single process

    def pin_memory(self) -> "MicroBatch":
        """Return a copy with page-locked tensors."""
        return self if self.batch is None else replace(self, batch=self.batch.pin_memory())


@dataclass(frozen=True)
class EmotionSource:
    """Choice of the clip whose emotion vector a pair takes: a function of the seed and the id of the pair.

    So it depends neither on the order of the pairs nor on interruptions, batches, workers or ranks.
    """

    target_share: float  # share of the pairs that take the target's; the others take the prompt's
    seed: int

    def is_target(self, id: str) -> bool:
        """Return whether the pair with this id takes the emotion vector of its target."""
        return bool(derive_seed(self.seed, "emotion", id) < self.target_share * 2**SEED_BITS)


FROM_PROMPT = EmotionSource(target_share=0.0, seed=0)

Collate = Callable[[list[Sample]], Batch]


class PairDataset(Dataset[Sample | Unreadable]):
    """Pairs with tokenized texts; a sample's features are read from the stores on access.

    Args:
        files: the files that the pairs were joined from, in order; empty if they have no language or share.
    """

    def __init__(
        self,
        pairs: PairColumns,
        stores: dict[Path, FeatureStore],
        files: Sequence[PairsFile] = (),
        emotion: EmotionSource = FROM_PROMPT,
    ):
        self.pairs = pairs
        self.stores = stores
        self.files = tuple(files)
        self.emotion = emotion

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample | Unreadable:
        """Return the sample, or its id and the reason if it is unreadable; never another sample."""
        pair = self.pairs[index]
        store = self.stores[pair.features]
        is_target = self.emotion.is_target(pair.id)
        emotion_key = pair.target_key if is_target else pair.prompt_key
        try:
            codes = store.codes(pair.target_key)
            condition, emo_vec = store.condition(pair.prompt_key), store.emo_vec(emotion_key)
        except (UserError, OSError, ValueError) as error:
            return Unreadable(pair.id, str(error))
        if not (np.isfinite(condition).all() and np.isfinite(emo_vec).all()):
            clips = f"{pair.prompt_id} or {pair.target_id}" if is_target else pair.prompt_id
            return Unreadable(pair.id, f"{pair.features}: the features of {clips} are not finite")
        return Sample(
            id=pair.id,
            text_ids=torch.from_numpy(self.pairs.text_ids(index).astype(np.int64)),
            codes=torch.from_numpy(codes),
            condition=torch.from_numpy(condition),
            emo_vec=torch.from_numpy(emo_vec),
            language=self.language_of(index),
        )

    def language_of(self, index: int) -> str:
        """Return the language of a pair's text; "" for that of the run."""
        if not self.files:
            return ""
        return self.files[0 if self.pairs.part is None else self.pairs.part[index]].language

    @cached_property
    def codes_of_utterances(self) -> NDArray[np.int64]:
        """Number of codes of each utterance of `pairs`, -1 without features: (U,)."""
        counts = np.full(len(self.pairs.keys), -1, np.int64)
        for row, path in enumerate(self.pairs.stores):
            if path in self.stores:
                own = np.flatnonzero(self.pairs.store == row)
                counts[own] = self.stores[path].count_codes(self.pairs.keys[own])
        return counts

    @property
    def num_codes(self) -> NDArray[np.int64]:
        """Number of codes of each sample: (S,)."""
        return self.codes_of_utterances[self.pairs.target]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Positions of the model's sequence that each sample takes: (S,)."""
        # besides text and codes: speaker rows, two rows, start and stop of the text, start of the codes
        extra = [
            self.stores[path].info.num_latents + 5 if path in self.stores else 0 for path in self.pairs.stores
        ]
        of_store = np.array(extra, np.int64)[self.pairs.store[self.pairs.target]]
        return of_store + self.pairs.num_text_ids + self.num_codes

    @cached_property
    def mix(self) -> EpochMix | None:
        """Shares of the files in an epoch; None for all samples."""
        return EpochMix.of(self.pairs.sizes_of_parts(len(self.files)), [file.share for file in self.files])

    @cached_property
    def size(self) -> EpochSize:
        """Size of an epoch."""
        return epoch_size(self.lengths) if self.mix is None else self.mix.size(self.lengths)

    def digest(self, seed: int) -> str:
        """Return a digest of the samples in order and the seed: a position is valid for one digest only."""
        return digest_of_mix(self.pairs.order_digest(seed), self.mix)

    def subset(self, indices: Sequence[int] | NDArray[np.int64]) -> "PairDataset":
        """Return a data set of the samples at `indices`."""
        return PairDataset(self.pairs.take(indices), self.stores, self.files, self.emotion)

    def with_emotion(self, emotion: EmotionSource) -> "PairDataset":
        """Return the same pairs with emotion vectors of other clips."""
        return PairDataset(self.pairs, self.stores, self.files, emotion)


def open_stores(indexes: Sequence[PairIndex], config: GPTConfig) -> dict[Path, FeatureStore]:
    """Open the feature stores of all pairs.

    Raises:
        UserError: a store is missing or corrupt, or was built for another model.
    """
    paths = sorted({path for index in indexes for path in index.pairs.used_stores})
    stores = {path: FeatureStore.open(path) for path in paths}
    for path, store in stores.items():
        if store.info.base != config.base:
            raise UserError(
                f"{path}: these features are for {BASES[store.info.base].title}, but the tokenizer and the "
                f"base checkpoint of this run are of {config.of_base.title}; preprocess with that base",
                RESUME_REFUSED,
            )
        stored = (*store.info.condition_shape, store.info.model_dim)
        expected = (*config.condition_shape, config.model_dim)
        if stored != expected:
            raise UserError(
                f"{path}: the conditions have the shape {stored}, but the config needs {expected}; "
                "preprocess with this --config"
            )
        foreign = store.with_codes_from(config.start_mel_token)
        for pair in (pair for index in indexes if foreign for pair in index.pairs):
            if pair.features == path and pair.target_key in foreign:
                code = store.codes(pair.target_key).max()
                raise UserError(
                    f"{path}: utterance {pair.target_id} has code {code}, but the largest code of the config "
                    f"is {config.start_mel_token - 1}; preprocess with this --config"
                )
    return stores


def usable_pairs(
    indexes: Sequence[PairIndex],
    stores: dict[Path, FeatureStore],
    config: GPTConfig,
    files: Sequence[PairsFile] = (),
) -> PairDataset:
    """Return the pairs of `indexes`, without those too long for the position tables.

    The number of skipped pairs is logged.

    Args:
        stores: of these pairs, and perhaps others.

    Raises:
        UserError: too many pairs lack features, or no pair is left.
    """
    pairs = PairColumns.joined([index.pairs for index in indexes])
    dataset = _with_features(PairDataset(pairs, {path: stores[path] for path in pairs.used_stores}, files))
    num_text, num_codes = dataset.pairs.num_text_ids, dataset.num_codes
    fits = (num_text > 0) & (num_text <= config.max_text_tokens)
    fits &= (num_codes > 0) & (num_codes <= config.max_mel_tokens)
    if fits.all():
        return dataset
    logger.warning(
        "Skipped %d of %d pairs: empty, or longer than %d text tokens or %d codes",
        np.count_nonzero(~fits),
        len(dataset),
        config.max_text_tokens,
        config.max_mel_tokens,
    )
    if not fits.any():
        names = ", ".join(index.manifest.path for index in indexes)
        raise UserError(f"{names}: no usable pair; see the log for the skipped ones")
    return dataset.subset(np.flatnonzero(fits))


def check_disjoint(train: PairDataset, validation: PairDataset) -> None:
    """Raise a UserError if both sets have an utterance in common, even under different ids."""
    held_out = validation.pairs
    targets = [
        (held_out.utterance_ids.raw(row), held_out.keys[row].tobytes())
        for row in np.unique(held_out.target).tolist()
    ]
    ids, keys = ({target[place] for target in targets} for place in (0, 1))
    trained = np.union1d(train.pairs.prompt, train.pairs.target).tolist()
    ids &= set(map(train.pairs.utterance_ids.raw, trained))
    keys &= {train.pairs.keys[row].tobytes() for row in trained}
    shared = sorted({id.decode() for id, key in targets if id in ids or key in keys})
    if shared:
        raise UserError(
            f"--train-manifest and --val-manifest have {counted(len(shared), 'utterance')} in common, for "
            f"example {shared[0]}, so the validation loss would be wrong; build the pairs from disjoint "
            "manifests"
        )


def collate_for(config: GPTConfig, language: int | None = None, *, is_packed: bool) -> Collate:
    """Return the function that builds batches, packed or padded.

    Args:
        language: row of the run's language; None for a base without language rows.
    """
    if is_packed:
        return partial(collate_packed, config=config, language=language)
    return partial(collate_padded, language=language)


def collate_packed(samples: list[Sample], config: GPTConfig, language: int | None = None) -> PackedBatch:
    """Return `samples` packed end to end."""
    return pack(
        [sample.text_ids.numpy() for sample in samples],
        [sample.codes.numpy() for sample in samples],
        torch.stack([sample.condition for sample in samples]),  # (B, K, W)
        torch.stack([sample.emo_vec for sample in samples]),  # (B, D)
        config,
        _languages(samples, language),
    )


def _languages(samples: list[Sample], language: int | None) -> Tensor | None:
    if language is None:
        return None
    return torch.tensor([language_row(each.language) if each.language else language for each in samples])


def collate_padded(samples: list[Sample], language: int | None = None) -> GPTBatch:
    """Return `samples` as one padded batch."""
    return GPTBatch(
        condition=torch.stack([sample.condition for sample in samples]),  # (B, K, W)
        emo_vec=torch.stack([sample.emo_vec for sample in samples]),  # (B, D)
        text_ids=pad_sequence([sample.text_ids for sample in samples], batch_first=True),  # (B, N)
        text_lengths=torch.tensor([len(sample.text_ids) for sample in samples]),
        codes=pad_sequence([sample.codes for sample in samples], batch_first=True),  # (B, M)
        code_lengths=torch.tensor([len(sample.codes) for sample in samples]),
        languages=_languages(samples, language),
    )


def perturbed(batch: Batch, style_noise: float, emotion_dropout: float) -> Batch:
    """Return the batch with noise on its speaker conditions, and some of its pairs without an emotion vector.

    The draws are those of torch's default generator on the device of the batch.

    Args:
        style_noise: standard deviation of the noise.
        emotion_dropout: probability that a pair loses its emotion vector.
    """
    if style_noise:
        noise = style_noise * torch.randn_like(batch.condition)
        batch = replace(batch, condition=batch.condition + noise)
    if emotion_dropout:
        is_kept = torch.rand_like(batch.emo_vec[:, :1]) >= emotion_dropout
        batch = replace(batch, emo_vec=batch.emo_vec * is_kept)
    return batch


def group_batches(
    batches: Iterable[MicroBatch], epoch_end_flags: Iterable[bool], size: int
) -> Iterator[list[MicroBatch]]:
    """Yield the micro-batches of each step; the last group of an epoch may be smaller.

    A group never spans two epochs: the rest of an epoch is a step of its own.

    Args:
        batches: endless.
        epoch_end_flags: for each batch, whether it is the last of its epoch.
    """
    group: list[MicroBatch] = []
    for batch, is_last in zip(batches, epoch_end_flags, strict=False):
        group.append(batch)
        if len(group) == size or is_last:
            yield group
            group = []


def is_too_many(num_unusable: int, num_samples: int) -> bool:
    """Return whether there are too many unusable samples to blame single files."""
    return num_unusable > max(MAX_UNUSABLE_OF_SMALL_SET, num_samples // 100)


def _with_features(dataset: PairDataset) -> PairDataset:
    """Return the pairs whose utterances are in the stores; log the number of the others."""
    pairs, has_features = dataset.pairs, dataset.codes_of_utterances >= 0
    is_present = has_features[pairs.target] & has_features[pairs.prompt]
    if is_present.all():
        return dataset
    missing = {pairs.id_of(index) for index in np.flatnonzero(~is_present).tolist()}
    message = (
        f"{len(missing)} of {len(pairs)} pairs without features, for example {min(missing)}; run "
        "tools/preprocess_data.py and tools/build_gpt_prompt_pairs.py again"
    )
    if is_too_many(len(missing), len(pairs)) or not is_present.any():
        raise UserError(message)
    logger.warning("Skipped %s", message)
    return dataset.subset(np.flatnonzero(is_present))
