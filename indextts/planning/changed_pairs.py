"""Training pairs that changed since a checkpoint: their number and order, before the trainer reads them.

With a fresh index beside the pairs, or with few pairs, both are those of the trainer. Otherwise the texts are
not tokenized: pairs with too many codes are left out, and those with too many tokens are not known.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from indextts.commands.pairs_file import PairsFile
from indextts.data.epoch_mix import EpochMix, digest_of_mix
from indextts.data.manifest import read_pairs, resolved_path
from indextts.data.pair_columns import PairColumns, order_digest
from indextts.data.pair_index import find_index, index_path, load_index
from indextts.models.gpt.config import GPTConfig, load_config_of
from indextts.planning.pairs_size import StampedPath, stamped
from indextts.runs.schedule import EpochSize
from indextts.system.files import count_lines
from indextts.system.json_lines import read_json_lines
from indextts.text.bases import for_language, load_tokenizer
from indextts.text.tokenizer import Tokenizer

MAX_TOKENIZED_PAIRS = 2_000  # a second of work


@dataclass(frozen=True)
class ChangedPairs:
    """The training pairs of a run.

    Args:
        num_samples: without the pairs that the trainer skips, as far as they are known.
        size: of an epoch, None if the texts were not tokenized.
        data_order: returns the digest of the order for a seed.
    """

    num_samples: int
    size: EpochSize | None
    data_order: Callable[[int], str]


def read_changed_pairs(
    files: tuple[PairsFile, ...], tokenizer: Path, config: Path, run_dir: Path
) -> ChangedPairs:
    """Return the training pairs of a run; a second call for unchanged files takes no time.

    Raises:
        UserError: a pairs file is invalid.
    """
    manifests = tuple(stamped(file.path) for file in files)
    indexes = tuple(stamped(index_path(file.path)) for file in files)
    return _read(files, manifests, indexes, stamped(tokenizer), stamped(config), run_dir)


@lru_cache(maxsize=8)  # called at each change of the form, for each checkpoint
def _read(
    files: tuple[PairsFile, ...],
    _manifests: tuple[StampedPath, ...],
    _indexes: tuple[StampedPath, ...],
    tokenizer: StampedPath,
    config: StampedPath,
    run_dir: Path,
) -> ChangedPairs:
    encoder = load_tokenizer(tokenizer[0])
    sizes = load_config_of(config[0], encoder)
    shares = [file.share for file in files]
    columns = _columns(files, encoder, run_dir)
    if columns is None:
        parts = [list(_names([file.path], sizes)) for file in files]
        names = [name for part in parts for name in part]
        mix = EpochMix.of([len(part) for part in parts], shares)
        number = len(names) if mix is None else mix.num_samples
        return ChangedPairs(number, None, lambda seed: digest_of_mix(order_digest(names, seed), mix))
    num_text, num_codes = columns.num_text_ids, columns.num_codes
    fits = (num_text > 0) & (num_text <= sizes.max_text_tokens) & (num_codes <= sizes.max_mel_tokens)
    used = columns.take(np.flatnonzero(fits))
    # besides text and codes: the prefix, start and stop of the text, start of the codes
    lengths = sizes.prefix_length + 3 + used.num_text_ids + used.num_codes
    mix = EpochMix.of(used.sizes_of_parts(len(files)), shares)
    size = EpochSize(len(used), int(lengths.sum()), int(lengths.max(initial=0)))
    size = size if mix is None else mix.size(lengths)
    return ChangedPairs(size.num_samples, size, lambda seed: digest_of_mix(used.order_digest(seed), mix))


def _columns(files: Sequence[PairsFile], tokenizer: Tokenizer, run_dir: Path) -> PairColumns | None:
    """Return the pairs with tokenized texts, None if tokenizing them would take long."""
    readers = [(file.path, for_language(tokenizer, file.language)) for file in files]
    indexes = [find_index(path, reader, run_dir) for path, reader in readers]
    if sum(count_lines(file.path) for file in files) <= MAX_TOKENIZED_PAIRS:
        indexes = [load_index(path, reader, run_dir, may_write=False) for path, reader in readers]
    found = [index.pairs for index in indexes if index is not None]
    return PairColumns.joined(found) if len(found) == len(files) else None


def _names(paths: Sequence[Path], sizes: GPTConfig) -> Iterator[bytes]:
    """Yield the names of the pairs for `order_digest`; reads three fields only, three times as fast."""
    for path in paths:
        folder_of: dict[str, str] = {}
        for _, record in read_json_lines(path):
            id, features, num_codes = (record.get(name) for name in ("id", "features", "target_code_len"))
            if not (isinstance(id, str) and isinstance(features, str) and isinstance(num_codes, int)):
                read_pairs(path)  # raises a UserError with the line
                continue
            if features not in folder_of:
                folder_of[features] = resolved_path(path, features).parent.name
            if num_codes <= sizes.max_mel_tokens:
                yield f"{folder_of[features]}/{id}".encode()
