"""Tests of indextts/features/download.py: the real program and library against a hub on 127.0.0.1."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.commands.data import DownloadCheckpoints
from indextts.features.published_files import FILES, files_for, read_record, table
from tests.conftest import REPOSITORY
from tests.hub_server import Hub, HubFile, serve
from tests.waiting import PATIENCE_S, wait_until

MIB = 1 << 20
LARGE = (".pth", ".safetensors", ".bin", ".pt")
GPT = ("IndexTeam/IndexTTS-2", "gpt.pth")


@pytest.fixture
def hub() -> Iterator[Hub]:
    """All published files in small; gpt.pth is as long as 3 MiB and a bit."""
    chance = random.Random(0)
    files = {
        (file.repository, file.name): HubFile(
            chance.randbytes(300 + number), is_large=file.name.endswith(LARGE)
        )
        for number, file in enumerate(FILES)
    }
    files[GPT] = HubFile(chance.randbytes(3 * MIB + 1000), is_large=True)
    with serve(files) as running:
        yield running


class Machine:
    """A folder to download into, and an environment of its own."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.output = folder / "checkpoints"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        self.env = {
            **kept,
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(folder / "hf"),
            "PYTHONPATH": str(REPOSITORY),
        }
        self.env |= {"NO_PROXY": "127.0.0.1,localhost"}

    def argv(self, *flags: str) -> list[str]:
        program = str(REPOSITORY / DownloadCheckpoints.program)
        return [sys.executable, program, f"--output-dir={self.output}", *flags]

    def run(self, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*flags), env={**self.env, **env}, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def sentence(self, *flags: str, status: int = 2, **env: str) -> str:
        """Return the one line on which a run fails."""
        answer = self.run(*flags, **env)
        assert answer.returncode == status, answer.stdout + answer.stderr
        [line] = [line for line in answer.stderr.splitlines() if line.startswith("[Error] ")]
        assert "Traceback" not in answer.stderr
        return line

    def is_whole(self, hub: Hub, what: str = "training") -> bool:
        return all(
            (self.output / file.place).read_bytes() == hub.files[file.repository, file.name].content
            for file in files_for(what)
        ) and not list(self.output.rglob(".tmp-*"))


@pytest.fixture
def machine(tmp_path: Path, hub: Hub) -> Machine:
    return Machine(tmp_path, hub.url)


def test_all_files_come_to_their_places_and_are_not_fetched_again(machine: Machine, hub: Hub):
    answer = machine.run("--what=all")
    assert answer.returncode == 0, answer.stderr
    assert machine.is_whole(hub, "all")
    assert [row.split()[-1] for row in answer.stdout.splitlines()[-len(FILES) :]] == ["fetched"] * len(FILES)
    assert {row[3] for row in table(machine.output)} == {"checked"}
    hub.requests.clear()
    answer = machine.run("--what=all")
    assert answer.returncode == 0
    assert [row.split()[-1] for row in answer.stdout.splitlines()[-len(FILES) :]] == ["there"] * len(FILES)
    assert not [request for request in hub.requests if request[0] == "GET"]


def test_training_leaves_out_what_makes_sound(machine: Machine, hub: Hub):
    assert machine.run().returncode == 0
    assert machine.is_whole(hub)
    assert not (machine.output / "s2mel.pth").exists()
    assert (machine.output / "w2v-bert-2.0/model.safetensors").is_file()


def test_a_connection_that_breaks_goes_on_where_it_broke(machine: Machine, hub: Hub):
    hub.files[GPT].break_after = [70_000] * 20
    answer = machine.run()
    assert answer.returncode == 0, answer.stderr
    assert machine.is_whole(hub)
    assert hub.fetched("gpt.pth") == ["", *(f"bytes={70_000 * number}-" for number in range(1, 21))]


def test_a_hub_that_sends_all_of_a_file_again_is_understood(machine: Machine, hub: Hub):
    hub.files[GPT].break_after, hub.files[GPT].knows_ranges = [MIB], False
    assert machine.run().returncode == 0
    assert machine.is_whole(hub)
    assert hub.fetched("gpt.pth") == ["", f"bytes={MIB}-"]


def test_a_connection_to_which_nothing_comes_is_given_up_and_what_came_is_kept(machine: Machine, hub: Hub):
    hub.files[GPT].break_after = [MIB, *[0] * 99]
    assert "gpt.pth: the connection to" in (line := machine.sentence())
    assert "1.05 MB of 3.15 MB are here; run the same command again to go on" in line
    hub.files[GPT].break_after = []
    assert machine.run().returncode == 0
    assert machine.is_whole(hub)


def test_a_killed_download_goes_on_where_it_was(machine: Machine, hub: Hub):
    hub.files[GPT].hold_after = 2 * MIB + 70_000
    process = subprocess.Popen(machine.argv(), env=machine.env, stdout=subprocess.DEVNULL)
    assert hub.files[GPT].held.wait(PATIENCE_S)
    parts = ".tmp-gpt.pth.*"
    wait_until(lambda: any(part.stat().st_size >= 2 * MIB for part in machine.output.glob(parts)))
    [gpt] = [row for row in table(machine.output) if row[1] == "gpt.pth"]
    assert gpt[:3] == ["base model", "gpt.pth", "3.15 MB"]
    assert gpt[3] in {f"{percent} %" for percent in range(66, 72)}
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (machine.output / "gpt.pth").exists()
    hub.files[GPT].hold_after = 0
    assert machine.run().returncode == 0
    assert machine.is_whole(hub)
    _, range_ = hub.fetched("gpt.pth")
    assert int(range_.removeprefix("bytes=").removesuffix("-")) >= 2 * MIB
    assert hub.fetched("bpe.model") == [""]


def test_a_second_download_into_the_folder_is_refused(machine: Machine, hub: Hub):
    hub.files[GPT].hold_after = 70_000
    process = subprocess.Popen(machine.argv(), env=machine.env, stdout=subprocess.DEVNULL)
    assert hub.files[GPT].held.wait(PATIENCE_S)
    assert "another download writes there" in machine.sentence(status=5)
    hub.files[GPT].go_on.set()
    assert process.wait(PATIENCE_S) == 0


def test_bytes_that_are_not_what_the_hub_says_are_not_kept(machine: Machine, hub: Hub):
    hub.files[GPT].etag = "0" * 64
    assert "gpt.pth: what http://127.0.0.1" in machine.sentence()
    assert not (machine.output / "gpt.pth").exists()
    assert not list(machine.output.glob(".tmp-gpt*"))
    hub.files["IndexTeam/IndexTTS-2", "config.yaml"].etag = "1" * 40
    assert "config.yaml: what http://127.0.0.1" in machine.sentence()


def test_a_file_that_was_damaged_or_is_somebodys_own_is_kept_beside_the_hubs(machine: Machine, hub: Hub):
    assert machine.run().returncode == 0
    config, codec = machine.output / "config.yaml", machine.output / "semantic_codec/model.safetensors"
    config.write_bytes(b"mine")
    damaged = bytearray(codec.read_bytes())
    damaged[7] ^= 1
    codec.write_bytes(damaged)
    hub.requests.clear()
    answer = machine.run()
    assert answer.returncode == 0
    assert config.with_name("config.yaml.old1").read_bytes() == b"mine"
    assert "config.yaml is not the file that the hub has: it is kept as config.yaml.old1" in answer.stdout
    assert codec.with_name("model.safetensors.old1").read_bytes() == damaged
    assert sorted(name for method, name, *_ in hub.requests if method == "GET") == [
        "config.yaml",
        "semantic_codec/model.safetensors",
    ]
    assert machine.is_whole(hub)


def test_files_that_were_put_there_by_hand_are_compared_and_kept(machine: Machine, hub: Hub):
    machine.output.mkdir()
    (machine.output / "gpt.pth").write_bytes(hub.files[GPT].content)
    assert machine.run().returncode == 0
    assert hub.fetched("gpt.pth") == []


def test_a_file_in_the_hubs_cache_is_taken_from_there(machine: Machine, hub: Hub):
    script = "from huggingface_hub import hf_hub_download; hf_hub_download('IndexTeam/IndexTTS-2', 'gpt.pth')"
    subprocess.run([sys.executable, "-c", script], env=machine.env, check=True, capture_output=True)
    assert "7 of 8 files are missing" in machine.sentence(HF_HUB_OFFLINE="1")
    assert (machine.output / "gpt.pth").read_bytes() == hub.files[GPT].content
    (machine.output / "gpt.pth").unlink()
    hub.requests.clear()
    answer = machine.run()
    assert answer.returncode == 0, answer.stderr
    assert "from the hub's cache" in answer.stdout
    assert hub.fetched("gpt.pth") == []
    assert machine.is_whole(hub)


@pytest.mark.parametrize("env", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:1"}], ids=str)
def test_without_the_hub_the_sentence_says_what_is_missing_and_where_to_put_it(
    machine: Machine, hub: Hub, env: dict[str, str]
):
    assert machine.run("--what=speech").returncode == 0
    line = machine.sentence(**env)
    assert "is out of reach" in line
    assert ("HF_HUB_OFFLINE is set" in line) == ("HF_HUB_OFFLINE" in env)
    assert "8 of 8 files are missing" in line
    assert f"{machine.output}/w2v-bert-2.0/model.safetensors (model.safetensors of facebook/w2v-bert" in line
    answer = machine.run("--what=speech", **env)
    assert answer.returncode == 0
    assert "there, not compared with the hub" in answer.stdout


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "RepoNotFound", "is not there, or not for you"),
        (403, "GatedRepo", "is not there, or not for you"),
        (404, "EntryNotFound", "has no file gpt.pth"),
        (200, "", "does not answer as a hub does"),
        (503, "", "answers with status 503 for gpt.pth"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    machine: Machine, hub: Hub, status: int, code: str, message: str
):
    hub.files[GPT].status, hub.files[GPT].error_code = status, code
    assert message in machine.sentence()
    assert not (machine.output / "config.yaml").exists()


def test_a_login_goes_to_the_hub_and_not_to_its_storage(machine: Machine, hub: Hub):
    assert machine.run(HF_TOKEN="hf_secret").returncode == 0
    by_name = {name: login for method, name, _, login in hub.requests if method == "GET"}
    assert by_name["config.yaml"] == "Bearer hf_secret"
    assert by_name["gpt.pth"] == ""


def test_a_full_disk_is_said_before_anything_is_fetched(machine: Machine, hub: Hub):
    script = (
        "import shutil, sys; from types import SimpleNamespace\n"
        "shutil.disk_usage = lambda _: SimpleNamespace(free=2_500_000)\n"
        "sys.path.insert(0, sys.argv.pop(1))\n"
        "from indextts.commands.terminal import run\nfrom tools.download_checkpoints import main\nrun(main)"
    )
    argv = [sys.executable, "-c", script, str(REPOSITORY), f"--output-dir={machine.output}"]
    answer = subprocess.run(argv, env=machine.env, capture_output=True, text=True)
    assert answer.returncode == 4, answer.stderr
    assert "8 files need 3.15 MB, the disk has 2.50 MB left" in answer.stderr
    assert not [request for request in hub.requests if request[0] == "GET"]


def test_a_disk_that_fills_up_keeps_what_came_and_goes_on_later(machine: Machine, hub: Hub):
    # what a write beyond the limit gets is what a full disk gives
    limit = f"ulimit -f {(MIB + MIB // 2) // 1024}; trap '' XFSZ; exec \"$@\""
    argv = ["bash", "-c", limit, "bash", *machine.argv()]
    answer = subprocess.run(argv, env=machine.env, capture_output=True, text=True)
    assert answer.returncode == 4, answer.stderr
    assert "the disk is full; free some and run the same command again to go on" in answer.stderr
    [partial] = machine.output.glob(".tmp-gpt.pth.*")
    assert partial.stat().st_size >= MIB
    assert machine.run().returncode == 0
    assert machine.is_whole(hub)
    assert hub.fetched("gpt.pth")[1].startswith("bytes=")


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, hub: Hub):
    (tmp_path / "checkpoints").write_text("a file")
    assert "--output-dir" in Machine(tmp_path, hub.url).sentence()


def test_a_folder_in_the_way_of_the_record_is_one_sentence(machine: Machine):
    (machine.output / ".downloads.json").mkdir(parents=True)
    assert "checkpoints: cannot be written (Is a directory)" in machine.sentence()


def test_the_record_of_a_folder_survives_nonsense(tmp_path: Path):
    (tmp_path / ".downloads.json").write_text("{no json")
    assert read_record(tmp_path) == {}
    assert {row[3] for row in table(tmp_path)} == {"absent"}
