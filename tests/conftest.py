"""Fixtures for all tests."""

import os
import shutil
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import chosen_base, leftovers

if TYPE_CHECKING:
    from indextts.projects.project import Project
    from tests.hub_server import Hub
    from tests.tiny_run import TinyRun

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


# What nohup starts ignores a closed terminal, and what a shell starts in the background ignores Ctrl-C. All
# programs that the tests start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# The models of the tests are tiny: threads would spend their time waiting for one another, and their number
# changes the rounding. Set before torch and numpy are imported; every program that a test starts inherits it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MARK_KEY = pytest.StashKey[str]()
FAILED_KEY = pytest.StashKey[str]()
TEST_NUMBERS = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Mark the session, or the worker of a session; see tests/leftovers.py."""
    chosen_base.name = config.getoption("--base")
    above = os.environ.get(leftovers.MARK)
    name = os.environ["PYTEST_XDIST_WORKER"] if hasattr(config, "workerinput") else uuid.uuid4().hex
    mark = f"{above}/{name}" if above else name
    config.stash[MARK_KEY] = os.environ[leftovers.MARK] = mark
    if not hasattr(config, "workerinput"):
        leftovers.start_guardian(mark)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with many slow tests first, so that no worker begins a long file when the others end."""
    num_slow = Counter(
        item.path for item in items for name in ("slow", "long") if item.get_closest_marker(name)
    )
    walks = {item.path for item in items if "browser" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (item.path not in walks, -num_slow[item.path]))


@pytest.hookimpl(trylast=True)  # after the workers of xdist
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        terminal = session.config.get_terminal_writer()
        for command in leftovers.sweep(session.config.stash[MARK_KEY]):
            if not any(name in command for name in leftovers.OF_LIBRARIES):
                terminal.line(f"\nkilled at the end of the session: {command[:300]}")


@pytest.fixture(autouse=True)
def _float32_precision() -> None:
    """Begin each test with exact float32 products: training inside an earlier test or fixture allows TF32."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_float32_matmul_precision("highest")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Mark what the test itself starts; its fixtures end what they started."""
    above = item.config.stash[MARK_KEY]
    mark = f"{above}/{next(TEST_NUMBERS):x}"
    os.environ[leftovers.MARK] = mark
    try:
        return (yield)
    except BaseException:
        item.stash[FAILED_KEY] = mark
        raise
    finally:
        os.environ[leftovers.MARK] = above


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Kill what a failed test started and left running, once its fixtures had their chance."""
    try:
        return (yield)
    finally:
        if mark := item.stash.get(FAILED_KEY, None):
            leftovers.sweep(mark, spare=leftovers.OF_LIBRARIES)


@pytest.fixture
def shared() -> Path:
    """The folder with the reference vectors and texts, beside the repository."""
    if not SHARED.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{SHARED} is absent: in CI the reference vectors must be there")
        pytest.skip("needs ../shared")
    return SHARED


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Project"]:
    """A project beside the programs of a test; nothing of its jobs lives on after the test."""
    from indextts.projects.jobs import records, starting, stopping
    from indextts.projects.project import Project

    monkeypatch.setattr(starting, "REPOSITORY", tmp_path)
    project = Project(tmp_path / "voice")
    yield project
    for job in records.list_jobs(project):
        stopping.kill_job(job)


@pytest.fixture
def tiny(tmp_path: Path) -> "TinyRun":
    """The files of a tiny run that has not started."""
    from tests.tiny_run import make_tiny_run  # imports torch

    return make_tiny_run(tmp_path / "tiny")


@pytest.fixture(scope="session")
def base_2_0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small base of IndexTTS-2.0 with random weights."""
    from demo.make_base_checkpoint import main

    folder = Path(shutil.copytree(REPOSITORY / "tests/base_2.0", tmp_path_factory.mktemp("bases") / "2.0"))
    assert main([f"--config={folder / 'config.yaml'}", f"--output={folder / 'gpt.pth'}"]) == 0
    return folder


@pytest.fixture(scope="session")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> "TinyRun":
    """A run of 12 steps that was never interrupted and kept a checkpoint of each; tests copy from it."""
    from tests.tiny_run import make_tiny_run

    run = make_tiny_run(tmp_path_factory.mktemp("whole") / "tiny")
    assert run.train(save_interval=1, keep_checkpoints=20) == 0
    return run


@pytest.fixture(scope="session")
def recognizer_folder(request: pytest.FixtureRequest) -> Path:
    """A recognizer that understands espeak-ng; the first session trains it, in about a minute."""
    from tests.espeak_recognizer import cached_recognizer

    return cached_recognizer(request.config.cache.mkdir("recognizers"))


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A project with a trained model; who uses it removes what it adds, except for exports."""
    from tests.speaking_run import make_speaking_project

    return make_speaking_project(tmp_path_factory.mktemp("speaking"))


@pytest.fixture
def time_of_addis_ababa() -> Iterator[None]:
    """Local times are 3 hours ahead of UTC, whatever the machine's time zone is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "EAT-3")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's program; ./test.sh installs it where it may."""
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is absent: in CI the browser tests must run")
        pytest.skip("needs chromium (Debian, Ubuntu: apt install chromium)")
    return found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """A running browser; not for the session, for Playwright's event loop keeps other tests from theirs."""
    from tests.walking import launched

    with launched(chromium) as running:
        yield running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """The web UI on a workspace of its own; it ends with all the jobs that it started."""
    from tests.webui_server import Server

    running = Server(tmp_path / "workspace")
    yield running
    running.kill_with_jobs()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hostile-inputs",
        type=int,
        default=6,
        help="hostile values for each handler of the page; 300 take an hour",
    )
    parser.addoption(
        "--base",
        choices=["2.0", "2.5"],
        default=chosen_base.name,
        help="published model of the tiny runs, for `-m failure`",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "needs ../shared" in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests skipped: ../shared is absent")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Hub"]:
    """Return a Hugging Face hub without repositories, which this process uses."""
    from tests.hub_server import serve, use_hub  # the library takes a while to import

    with serve() as running:
        use_hub(monkeypatch, running.url, tmp_path)
        yield running
