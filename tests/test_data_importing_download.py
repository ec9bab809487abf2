"""Tests of indextts/data/importing/download.py, with the real yt-dlp and a local server."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.errors import UserError
from tests.import_sources import manifest_lines, run_import
from tests.test_data_importing_long_recordings import join_clips

PAGE = """<html><title>A talk</title><video src="talk.flac">
<track kind="subtitles" srclang="am" src="talk.vtt"><track kind="subtitles" srclang="en" src="talk.en.vtt">
</video></html>"""


class Handler(http.server.SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, *_: object) -> None:
        self.asked.append(self.path)


@pytest.fixture
def site(tmp_path: Path, shared: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Serve a page with a recording and its subtitles; yield its URL, the requests and the texts."""
    folder = tmp_path / "site"
    truth = join_clips(shared, folder, 3, seed=7)
    lines = (folder / "talk.srt").read_text(encoding="utf-8").split("\n")
    lines = [line.replace(",", ".") if " --> " in line else line for line in lines]
    (folder / "talk.vtt").write_text("\n".join(["WEBVTT", "", *lines]), encoding="utf-8")
    (folder / "talk.html").write_text(PAGE)
    handler = type("Asked", (Handler,), {"asked": []})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever).start()
    yield f"http://127.0.0.1:{server.server_port}", handler.asked, [text for _, _, text in truth]
    server.shutdown()
    server.server_close()


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.long
def test_a_url_is_downloaded_once_and_its_recording_is_cut(tmp_path, site):
    pytest.importorskip("yt_dlp", reason="needs the extra download")
    address, asked, texts = site
    urls = [f"{address}/absent.html", f"{address}/talk.html"]
    result = run_import([], tmp_path / "p/dataset", url=urls, speaker="almaz")
    assert [line["text"] for line in manifest_lines(tmp_path / "p/dataset")] == texts
    assert result.num_added == 3
    names = sorted(path.name for path in (tmp_path / "p/downloads").rglob("*") if path.is_file())
    assert names == [".archive", "talk-1.am.vtt", "talk-1.flac", "talk-1.info.json"]
    num_fetched = asked.count("/talk.flac")
    result = run_import([], tmp_path / "p/dataset", url=urls, speaker="almaz")
    assert (result.num_added, result.num_unchanged) == (0, 3)
    assert asked.count("/talk.flac") == num_fetched
    assert "/talk.en.vtt" not in asked


@pytest.mark.parametrize(
    "url",
    ["--exec=touch x", "-o/etc/x", "file:///etc/passwd", "ytsearch:x", "talk.html", "https://", "http://[x"],
)
def test_an_invalid_url_is_refused_before_yt_dlp_runs(tmp_path, url):
    with pytest.raises(UserError, match=r"^--url "):
        run_import([], tmp_path / "out", url=[url])
    assert list(tmp_path.iterdir()) == []
