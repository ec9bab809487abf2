"""Download recordings with subtitles from URLs, using the optional package yt-dlp.

    DOWNLOADS/
      EXTRACTOR-ID/ID.m4a  ID.am.vtt  ID.info.json    a folder for each video, by its id
      .archive                                        ids of downloaded videos, which are skipped

Only manually written subtitles in the language are downloaded, no automatic captions or translations. The
next call resumes interrupted downloads.
"""

import importlib.util
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import langcodes

from indextts.errors import UserError
from indextts.text.languages import find_language

logger = logging.getLogger(__name__)

DOWNLOADS_NAME = "downloads"
_ARCHIVE_NAME = ".archive"
_SECONDS_WITHOUT_ANSWER = "30"


def download(urls: Sequence[str], folder: Path, language: str) -> None:
    """Download the recordings of videos, channels or playlists into `folder`.

    yt-dlp reports URLs that fail and continues with the next.

    Args:
        language: ISO 639 code of the subtitles.

    Raises:
        UserError: a URL is invalid, or yt-dlp is not installed.
    """
    for url in urls:
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        is_address = parts.scheme in ("http", "https") and parts.hostname
        if not is_address or not url.isprintable() or " " in url:
            raise UserError(f"--url {url!r}: not a URL; use one that starts with https://")
    if importlib.util.find_spec("yt_dlp") is None:
        raise UserError("--url requires yt-dlp; run pip install -e '.[download]'")
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-config", "--no-plugin-dirs", "--no-cache-dir", "--no-abort-on-error", "--newline"]
    options += ["--socket-timeout", _SECONDS_WITHOUT_ANSWER, "--format", "bestaudio/best"]
    code = find_language(language).code
    languages = f"{code},{code}-.*,{langcodes.Language.get(code).to_alpha3()}"  # such as am,am-.*,amh
    options += ["--write-info-json", "--write-subs", "--no-write-auto-subs", "--sub-langs", languages]
    options += ["--download-archive", str(folder / _ARCHIVE_NAME), "--paths", str(folder)]
    options += ["--output", "%(extractor_key)s-%(id)s/%(id)s.%(ext)s"]
    # After "--" every argument is a URL, never an option.
    status = subprocess.run(
        [sys.executable, "-m", "yt_dlp", *options, "--", *urls], stdin=subprocess.DEVNULL
    ).returncode
    if status:
        logger.warning("--url: some downloads failed (see above); run the same command to retry them")
