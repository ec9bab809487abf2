"""Recordings with subtitles from addresses, fetched by yt-dlp, which is an extra of its own.

    DOWNLOADS/
      EXTRACTOR-ID/ID.m4a  ID.am.vtt  ID.info.json    one folder for each video, by its id
      .archive                                        what was fetched, so that it is not fetched again

Only subtitles that somebody wrote in Amharic are fetched, none that a machine recognised or translated. What
breaks off goes on at the next call.
"""

import importlib.util
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from indextts.errors import UserError

logger = logging.getLogger(__name__)

DOWNLOADS_NAME = "downloads"
_ARCHIVE_NAME = ".archive"
_SUBTITLE_LANGUAGES = "am,am-.*,amh"
_SECONDS_WITHOUT_ANSWER = "30"


def download(urls: Sequence[str], folder: Path) -> None:
    """Fetch the recordings of addresses of videos, channels or playlists into `folder`.

    An address that cannot be fetched is told, and the others are.

    Raises:
        UserError: an address is none, or yt-dlp is not installed.
    """
    for url in urls:
        _require_address(url)
    if importlib.util.find_spec("yt_dlp") is None:
        raise UserError("--url needs yt-dlp, run pip install -r requirements-download.txt")
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-config", "--no-plugin-dirs", "--no-cache-dir", "--no-abort-on-error", "--newline"]
    options += [
        "--socket-timeout",
        _SECONDS_WITHOUT_ANSWER,
        "--format",
        "bestaudio/best",
        "--write-info-json",
    ]
    options += ["--write-subs", "--no-write-auto-subs", "--sub-langs", _SUBTITLE_LANGUAGES]
    options += ["--download-archive", str(folder / _ARCHIVE_NAME), "--paths", str(folder)]
    options += ["--output", "%(extractor_key)s-%(id)s/%(id)s.%(ext)s"]
    # After "--" nothing is an option, whatever it looks like.
    status = subprocess.run(
        [sys.executable, "-m", "yt_dlp", *options, "--", *urls], stdin=subprocess.DEVNULL
    ).returncode
    if status:
        logger.warning("--url: not everything could be fetched (see above); the same command tries it again")


def _require_address(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise UserError(f"--url {url!r}: no address, give one that begins with https://")
