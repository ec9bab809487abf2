"""Speaker vectors of the clips of a project, each computed once.

Axes: S samples, V width of a vector.

    voice_vectors.jsonl     beside the manifest (stored_results.py); its version is the sha256 of the weights.
                            A result belongs to recording, duration and file, which determine the sound:
                            base64 of V float16, or null without a voice to be heard.

The encoder is CAM++ of the published files. Torch is imported only when a vector is computed.
"""

import base64
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indextts.data.importing.journal import Clip, Entry, Journal
from indextts.data.importing.voices import Vector, voice_clips
from indextts.data.progress import Progress
from indextts.data.stored_results import StoredResults
from indextts.errors import UserError
from indextts.features.audio import RecordingError, load_audio
from indextts.system.digest import file_sha256
from indextts.system.process_pool import map_in_threads
from indextts.system.processes import num_cores

VECTORS_NAME = "voice_vectors"
SAMPLE_RATE_HZ = 16_000
HEARD_S = 10.0  # of a clip: a longer sample costs time and hardly changes the vector

# From mono speech (S,) at SAMPLE_RATE_HZ to the vector of its speaker (V,), of length 1; None for too little
# speech. Several threads call it.
VoiceEncoder = Callable[[NDArray[np.float32]], Vector | None]
LoadEncoder = Callable[[Path], VoiceEncoder]


def require_encoder(path: Path) -> None:
    """Raise a UserError if the weights of the encoder do not exist."""
    if not path.is_file():
        raise UserError(
            f"{path}: --speaker-from voices needs this file; download it with tools/download_checkpoints.py "
            f"--what speech --output-dir {path.parent.parent}, or pass --voice-encoder FILE"
        )


def load_campplus_encoder(path: Path) -> VoiceEncoder:
    """Return CAM++ with the weights in a campplus_cn_common.bin, on the CPU.

    Raises:
        UserError: the file cannot be read or has other tensors.
    """
    import torch  # takes seconds, and most imports do without it

    from indextts.features.campplus import CAMPPlusConfig, load_campplus, style_vector

    torch.set_num_threads(1)  # clips run in parallel, which is faster than parallel operations
    network = load_campplus(path, CAMPPlusConfig().embedding_size, torch.device("cpu"))

    def encode(samples: NDArray[np.float32]) -> Vector | None:
        vector = style_vector(network, samples)
        return None if vector is None else (vector / vector.norm()).numpy()

    return encode


def read_vectors(journal: Journal, encoder: str) -> dict[str, Vector]:
    """Return the stored vectors of the clips without a name in the data, by the ids of the clips.

    Args:
        encoder: the digest of the encoder's weights.
    """
    known = _stored(journal, encoder).known
    found = ((clip.id, known.get(_key(entry, clip))) for entry, clip in voice_clips(journal))
    return {id: vector for id, vector in found if vector is not None}


def add_vectors(journal: Journal, weights: Path, load_encoder: LoadEncoder, num_workers: int) -> None:
    """Compute and store the vectors that are not stored yet.

    Raises:
        UserError: the weights are unusable, or the file cannot be written.
    """
    with _stored(journal, file_sha256(weights)) as stored:
        clips = {_key(entry, clip): clip for entry, clip in voice_clips(journal)}
        missing = {key: clip for key, clip in clips.items() if key not in stored.known}
        if not missing:
            return
        encode = load_encoder(weights)
        progress = Progress("Listening to the voices", len(missing))
        audio = [journal.audio / clip.audio for clip in missing.values()]
        vectors = map_in_threads(partial(_vector, encode), audio, num_workers or num_cores())
        for key, vector in zip(missing, vectors, strict=True):
            text = None if vector is None else base64.b64encode(vector.astype(np.float16).tobytes()).decode()
            stored.add(key, text)
            progress.advance()


def _stored(journal: Journal, encoder: str) -> StoredResults:
    return StoredResults(journal.folder, VECTORS_NAME, encoder, kept=_decoded, folder_name="")


def _vector(encode: VoiceEncoder, path: Path) -> Vector | None:
    try:
        samples = load_audio(path, SAMPLE_RATE_HZ)
    except RecordingError:
        return None  # the check of the data names the problem
    return encode(samples[: round(HEARD_S * SAMPLE_RATE_HZ)])


def _key(entry: Entry, clip: Clip) -> str:
    return f"{entry.sha256} {clip.duration} {clip.audio}"


def _decoded(text: str | None) -> Vector | None:
    """Return a stored vector at length 1, which float16 has rounded."""
    if text is None:
        return None
    vector = np.frombuffer(base64.b64decode(text), np.float16).astype(np.float32)
    return vector / np.linalg.norm(vector)
