"""Manifests as the page reads them: again only when the file has changed. No Gradio here."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from indextts.data.manifest import Utterance, read_utterances
from indextts.webui.versions import files_version


def utterances_of(manifest: Path) -> Sequence[Utterance]:
    """Return the utterances of a manifest; it may be asked at every key that somebody types.

    Raises:
        UserError: the file is not there, or is damaged.
    """
    return _read(manifest, files_version(manifest))


@lru_cache(maxsize=4)
def _read(manifest: Path, _version: str) -> Sequence[Utterance]:
    return tuple(read_utterances(manifest))
