"""Recordings into codes, conditioning and emotion on the machines of a Ray cluster.

    this program   the manifest, what is missing, and the feature store: one writer, as without a cluster
    each process   the networks, and a part of the missing recordings at a time: read and encoded there

A part is as many recordings as go into a shard or, where clips are batched, the recordings whose batches are
formed together; both are counted from the first that is missing, as without a cluster. So equal machines make
the features that one of them makes, byte for byte, and they are committed in the same order: what a kill
leaves is the beginning of the same store.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from indextts.commands.data import Preprocess
from indextts.data.encoding import (
    SORTED_CLIPS,
    ClipEncoder,
    arithmetic_mark,
    encoders_identity,
    exact_arithmetic,
)
from indextts.data.feature_store_writer import CLIPS_PER_SHARD, EncodedUtterance
from indextts.data.manifest import Utterance
from indextts.data.networks import load_fitting_config, load_networks
from indextts.data.on_ray.cluster import require_folders
from indextts.data.on_ray.pool import Place, Pool, has_cards
from indextts.data.rejected import Rejected
from indextts.data.throughput import choose_device, choose_throughput
from indextts.features import builtin
from indextts.features.backend import SpeechBackend
from indextts.models.gpt.model import UnifiedVoice

ARITHMETIC = "the arithmetic of the encoders"

Part = Sequence[Utterance]
Results = list[EncodedUtterance | Rejected]


class RayEncoder:
    """An encoder whose work is done by the processes of a pool."""

    def __init__(self, pool: Pool[Part, Results], backend: SpeechBackend, clips_per_part: int) -> None:
        self.pool = pool
        self.backend = backend
        self.clips_per_part = clips_per_part

    @property
    def backend_identity(self) -> str:
        return self.backend.identity + self.pool.fact(ARITHMETIC)

    def encode_all(self, utterances: Iterable[Utterance]) -> Iterator[EncodedUtterance | Rejected]:
        """Yield the utterances encoded or rejected, in order.

        Raises:
            UserError: as `Pool.map`.
        """
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
        backend, model: what the processes must load too.

    Raises:
        UserError: no machine of the cluster can do it, or one has other files.
    """
    on_cards = command.device == "cuda" or (command.device == "auto" and has_cards())
    begin = partial(_begin, _from_anywhere(command), fitted.absolute())
    pool: Pool[Part, Results] = Pool(begin, _facts(backend, model), "card" if on_cards else "machine")
    batched = on_cards or command.batch_seconds > 0
    try:
        yield RayEncoder(pool, backend, SORTED_CLIPS if batched else CLIPS_PER_SHARD)
    finally:
        pool.close()


def _begin(
    command: Preprocess, fitted: Path, place: Place
) -> tuple[Mapping[str, str], Callable[[Part], Results]]:
    """Load what encodes; called in a process of the cluster."""
    device = choose_device("cuda" if place.has_card else "cpu")
    config = load_fitting_config(command.config)
    networks = load_networks(command, config, device)
    backend = networks.published or builtin.load(fitted)
    asked = command.batch_seconds, command.num_workers
    throughput = choose_throughput(config, device, *asked, place.num_cores)
    facts = _facts(backend, networks.model) | {ARITHMETIC: arithmetic_mark(networks.dtype)}
    return facts, partial(_encode, networks.encoder(backend, throughput))


def _encode(encoder: ClipEncoder, part: Part) -> Results:
    require_folders(utterance.audio for utterance in part)
    with exact_arithmetic():
        return list(encoder.encode_all(part))


def _facts(backend: SpeechBackend, model: UnifiedVoice) -> dict[str, str]:
    """Return what must be the same on all machines."""
    return {
        "the speech encoder": backend.identity,
        "the base checkpoint": encoders_identity(model),
        "PyTorch": torch.__version__,
    }


def _from_anywhere(command: Preprocess) -> Preprocess:
    """Return the command with paths that do not depend on the folder that a process works in.

    What is absent stays as it is: for the default speech encoder each machine looks into its hub's cache.
    """
    paths = {name: value for name, value in command if isinstance(value, Path) and value.exists()}
    return command.model_copy(update={name: path.absolute() for name, path in paths.items()})


def _shown(part: Part) -> str:
    return f"{len(part)} recordings from {part[0].audio} to {part[-1].audio}"
