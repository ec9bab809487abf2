"""Encode recordings on a Ray cluster.

    this program   reads the manifest, finds missing recordings, and is the only writer of the feature store
    each process   loads the networks, then reads and encodes one part of the missing recordings at a time

A part has the recordings of a shard or, with batches, those that are sorted by length together. Parts are
counted from the first missing recording, as without a cluster. Identical machines therefore produce the same
features as a single machine, byte for byte, and commit them in the same order: after a kill, the store is a
prefix of the complete one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from indextts.commands.data import Preprocess
from indextts.data.batch_sizing import choose_device, choose_throughput
from indextts.data.encoding import (
    SORTED_CLIPS,
    ClipEncoder,
    encoders_identity,
    precision_suffix,
    reproducible_math,
)
from indextts.data.feature_store_writer import CLIPS_PER_SHARD, EncodedUtterance
from indextts.data.manifest import Utterance
from indextts.data.networks import load_fitting_config, load_networks
from indextts.data.on_ray.cluster import require_folders
from indextts.data.on_ray.pool import Place, Pool, has_gpus
from indextts.data.rejected import Rejected
from indextts.features import builtin
from indextts.features.backend import SpeechBackend
from indextts.models.gpt.model import UnifiedVoice

PRECISION = "the precision of the encoders"

Part = Sequence[Utterance]
Results = list[EncodedUtterance | Rejected]


class RayEncoder:
    """Encoder that runs in the processes of a pool."""

    def __init__(self, pool: Pool[Part, Results], backend: SpeechBackend, clips_per_part: int) -> None:
        self.pool = pool
        self.backend = backend
        self.clips_per_part = clips_per_part

    @property
    def backend_identity(self) -> str:
        return self.backend.identity + self.pool.fact(PRECISION)

    def encode_all(self, utterances: Iterable[Utterance]) -> Iterator[EncodedUtterance | Rejected]:
        """Yield the utterances encoded or rejected, in order; errors as for `Pool.map`."""
        utterances = list(utterances)
        starts = range(0, len(utterances), self.clips_per_part)
        parts = [utterances[start : start + self.clips_per_part] for start in starts]
        for results in self.pool.map(parts, _shown):
            yield from results


@contextmanager
def encoder_on_ray(
    command: Preprocess, fitted: Path, backend: SpeechBackend, model: UnifiedVoice
) -> Iterator[RayEncoder]:
    """Yield an encoder whose processes run in the cluster that this program is connected to.

    Args:
        fitted: the file of the builtin backend.
        backend, model: the networks that every process must load too.

    Raises:
        UserError: no machine of the cluster is suitable, or a machine has different files.
    """
    on_gpus = command.device == "cuda" or (command.device == "auto" and has_gpus())
    # Absolute, independent of the working folder of a process. Paths that do not exist stay relative: for the
    # default speech encoder each machine uses its Hugging Face cache.
    paths = {name: value.absolute() for name, value in command if isinstance(value, Path) and value.exists()}
    begin = partial(_begin, command.model_copy(update=paths), fitted.absolute())
    pool: Pool[Part, Results] = Pool(begin, _facts(backend, model), "gpu" if on_gpus else "machine")
    batched = on_gpus or command.batch_seconds > 0
    try:
        yield RayEncoder(pool, backend, SORTED_CLIPS if batched else CLIPS_PER_SHARD)
    finally:
        pool.close()


def _begin(
    command: Preprocess, fitted: Path, place: Place
) -> tuple[Mapping[str, str], Callable[[Part], Results]]:
    """Load the networks; called in a process of the cluster."""
    device = choose_device("cuda" if place.has_gpu else "cpu")
    config = load_fitting_config(command.config)
    networks = load_networks(command, config, device)
    backend = networks.published or builtin.load(fitted)
    asked = command.batch_seconds, command.num_workers
    throughput = choose_throughput(config, device, *asked, place.num_cores)
    facts = _facts(backend, networks.model) | {PRECISION: precision_suffix(networks.dtype)}
    return facts, partial(_encode, networks.encoder(backend, throughput))


def _encode(encoder: ClipEncoder, part: Part) -> Results:
    require_folders(utterance.audio for utterance in part)
    with reproducible_math():
        return list(encoder.encode_all(part))


def _facts(backend: SpeechBackend, model: UnifiedVoice) -> dict[str, str]:
    """Return the facts that must be equal on all machines."""
    return {
        "the speech encoder": backend.identity,
        "the base checkpoint": encoders_identity(model),
        "PyTorch": torch.__version__,
    }


def _shown(part: Part) -> str:
    return f"{len(part)} recordings from {part[0].audio} to {part[-1].audio}"
