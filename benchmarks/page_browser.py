"""The page in its own process, and flags of a headless Chromium, for programs that look at the page."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.frame import REPOSITORY

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]


@contextmanager
def serving(workspace: Path, port: int, flags: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """Serve the page over a workspace on http://127.0.0.1:PORT while the block runs.

    Raises:
        RuntimeError: the server exits before it answers; its output is on the terminal.
    """
    argv = [
        sys.executable,
        str(REPOSITORY / "webui_amharic.py"),
        f"--workspace={workspace}",
        f"--port={port}",
    ]
    with subprocess.Popen([*argv, *flags]) as server:
        try:
            while not _answers(port):
                if server.poll() is not None:
                    raise RuntimeError(
                        f"the page exited with status {server.returncode} before it answered on port {port}"
                    )
                time.sleep(0.5)
            yield server
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}").close()
    except OSError:
        return False
    return True
