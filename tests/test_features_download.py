"""Tests of indextts/features/download.py: the real program and library with a local hub."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.commands.bases import BASES
from indextts.commands.data import DownloadCheckpoints
from indextts.features.published_files import files_for, files_of, missing_bytes, read_record, table
from tests.conftest import REPOSITORY
from tests.hub_server import Hub, HubFile, serve
from tests.waiting import PATIENCE_S, wait_until

BASE, NEWER = BASES["2.0"], BASES["2.5"]
FILES = files_of(BASE)
MIB = 1 << 20
LARGE = (".pth", ".safetensors", ".bin", ".pt")
GPT = ("IndexTeam/IndexTTS-2", "gpt.pth")


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Small versions of all published files; gpt.pth has slightly more than 3 MiB."""
    chance = random.Random(0)
    files = {
        (file.repository, file.name): HubFile(
            chance.randbytes(300 + number), is_large=file.name.endswith(LARGE)
        )
        for number, file in enumerate([*FILES, *files_of(NEWER)])
    }
    files[GPT] = HubFile(chance.randbytes(3 * MIB + 1000), is_large=True)
    with serve(files) as running:
        yield running


class Machine:
    """Download folder with a separate environment."""

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

    def error_line(self, *flags: str, status: int = 2, **env: str) -> str:
        """Return the error line of a run that fails."""
        answer = self.run(*flags, **env)
        assert answer.returncode == status, answer.stdout + answer.stderr
        [line] = [line for line in answer.stderr.splitlines() if line.startswith("[Error] ")]
        assert "Traceback" not in answer.stderr
        return line

    def is_complete(self, hub: Hub, what: str = "training") -> bool:
        return all(
            (self.output / file.place).read_bytes() == hub.files[file.repository, file.name].content
            for file in files_for(what, BASE)
        ) and not list(self.output.rglob(".tmp-*"))


@pytest.fixture
def machine(tmp_path: Path, hub: Hub) -> Machine:
    return Machine(tmp_path, hub.url)


def test_all_files_are_downloaded_to_their_places_once(machine: Machine, hub: Hub):
    answer = machine.run("--what=all")
    assert answer.returncode == 0, answer.stderr
    assert machine.is_complete(hub, "all")
    assert [row.split()[-1] for row in answer.stdout.splitlines()[-len(FILES) :]] == ["downloaded"] * len(
        FILES
    )
    assert {row[3] for row in table(machine.output, BASE)} == {"checked"}
    hub.requests.clear()
    answer = machine.run("--what=all")
    assert answer.returncode == 0
    assert [row.split()[-1] for row in answer.stdout.splitlines()[-len(FILES) :]] == ["present"] * len(FILES)
    assert not [request for request in hub.requests if request[0] == "GET"]


def test_training_does_not_need_the_files_for_sound(machine: Machine, hub: Hub):
    assert machine.run().returncode == 0
    assert machine.is_complete(hub)
    assert not (machine.output / "s2mel.pth").exists()
    assert (machine.output / "w2v-bert-2.0/model.safetensors").is_file()


def test_a_broken_connection_resumes_where_it_broke(machine: Machine, hub: Hub):
    hub.files[GPT].break_after = [70_000] * 20
    answer = machine.run()
    assert answer.returncode == 0, answer.stderr
    assert machine.is_complete(hub)
    assert hub.fetched("gpt.pth") == ["", *(f"bytes={70_000 * number}-" for number in range(1, 21))]


def test_a_hub_without_ranges_sends_the_file_again(machine: Machine, hub: Hub):
    hub.files[GPT].break_after, hub.files[GPT].knows_ranges = [MIB], False
    assert machine.run().returncode == 0
    assert machine.is_complete(hub)
    assert hub.fetched("gpt.pth") == ["", f"bytes={MIB}-"]


def test_a_connection_without_data_fails_and_keeps_the_partial_file(machine: Machine, hub: Hub):
    hub.files[GPT].break_after = [MIB, *[0] * 99]
    assert "gpt.pth: " in (line := machine.error_line())
    assert "1.05 MB of 3.15 MB" in line
    hub.files[GPT].break_after = []
    assert machine.run().returncode == 0
    assert machine.is_complete(hub)


def test_a_killed_download_resumes_where_it_was(machine: Machine, hub: Hub):
    hub.files[GPT].hold_after = 2 * MIB + 70_000
    process = subprocess.Popen(machine.argv(), env=machine.env, stdout=subprocess.DEVNULL)
    assert hub.files[GPT].held.wait(PATIENCE_S)
    parts = ".tmp-gpt.pth.*"
    wait_until(lambda: any(part.stat().st_size >= 2 * MIB for part in machine.output.glob(parts)))
    [gpt] = [row for row in table(machine.output, BASE) if row[1] == "gpt.pth"]
    assert gpt[:3] == ["base model", "gpt.pth", "3.15 MB"]
    assert gpt[3] in {f"{percent} %" for percent in range(66, 72)}
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (machine.output / "gpt.pth").exists()
    hub.files[GPT].hold_after = 0
    assert machine.run().returncode == 0
    assert machine.is_complete(hub)
    _, range_ = hub.fetched("gpt.pth")
    assert int(range_.removeprefix("bytes=").removesuffix("-")) >= 2 * MIB
    assert hub.fetched("bpe.model") == [""]


def test_a_second_download_into_the_folder_is_refused(machine: Machine, hub: Hub):
    hub.files[GPT].hold_after = 70_000
    process = subprocess.Popen(machine.argv(), env=machine.env, stdout=subprocess.DEVNULL)
    assert hub.files[GPT].held.wait(PATIENCE_S)
    assert str(machine.output) in machine.error_line(status=5)
    hub.files[GPT].go_on.set()
    assert process.wait(PATIENCE_S) == 0


def test_a_download_with_the_wrong_digest_is_deleted(machine: Machine, hub: Hub):
    hub.files[GPT].etag = "0" * 64
    line = machine.error_line()
    assert "gpt.pth: " in line
    assert "0" * 64 in line
    assert not (machine.output / "gpt.pth").exists()
    assert not list(machine.output.glob(".tmp-gpt*"))
    hub.files["IndexTeam/IndexTTS-2", "config.yaml"].etag = "1" * 40
    line = machine.error_line()
    assert "config.yaml: " in line
    assert "1" * 40 in line


def test_a_file_that_differs_from_the_hub_is_renamed(machine: Machine, hub: Hub):
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
    assert "config.yaml.old1" in answer.stdout
    assert codec.with_name("model.safetensors.old1").read_bytes() == damaged
    assert sorted(name for method, name, *_ in hub.requests if method == "GET") == [
        "config.yaml",
        "semantic_codec/model.safetensors",
    ]
    assert machine.is_complete(hub)


def test_manually_copied_files_are_verified_and_kept(machine: Machine, hub: Hub):
    machine.output.mkdir()
    (machine.output / "gpt.pth").write_bytes(hub.files[GPT].content)
    assert machine.run().returncode == 0
    assert hub.fetched("gpt.pth") == []


def test_a_file_in_the_hugging_face_cache_is_copied(machine: Machine, hub: Hub):
    script = "from huggingface_hub import hf_hub_download; hf_hub_download('IndexTeam/IndexTTS-2', 'gpt.pth')"
    subprocess.run([sys.executable, "-c", script], env=machine.env, check=True, capture_output=True)
    assert "7 of 8 files" in machine.error_line(HF_HUB_OFFLINE="1")
    assert (machine.output / "gpt.pth").read_bytes() == hub.files[GPT].content
    (machine.output / "gpt.pth").unlink()
    hub.requests.clear()
    answer = machine.run()
    assert answer.returncode == 0, answer.stderr
    [row] = [row for row in answer.stdout.splitlines() if row.strip().startswith("gpt.pth ")]
    assert not row.endswith("downloaded")
    assert hub.fetched("gpt.pth") == []
    assert machine.is_complete(hub)


def official_installation(machine: Machine, hub: Hub) -> list[str]:
    """Make the folder an official installation: the published repository and hf_cache/; return the places."""
    names = {
        "hf_cache/w2v-bert-2.0/config.json": ("facebook/w2v-bert-2.0", "config.json"),
        "hf_cache/w2v-bert-2.0/preprocessor_config.json": (
            "facebook/w2v-bert-2.0",
            "preprocessor_config.json",
        ),
        "hf_cache/w2v-bert-2.0/model.safetensors": ("facebook/w2v-bert-2.0", "model.safetensors"),
        "hf_cache/semantic_codec_model.safetensors": (
            "amphion/MaskGCT",
            "semantic_codec/model.safetensors",
        ),
        "hf_cache/campplus_cn_common.bin": ("funasr/campplus", "campplus_cn_common.bin"),
        "hf_cache/bigvgan/config.json": ("nvidia/bigvgan_v2_22khz_80band_256x", "config.json"),
        "hf_cache/bigvgan/bigvgan_generator.pt": (
            "nvidia/bigvgan_v2_22khz_80band_256x",
            "bigvgan_generator.pt",
        ),
    }
    names |= {file.place: (file.repository, file.name) for file in FILES if "/" not in file.place}
    for place, name in names.items():
        (machine.output / place).parent.mkdir(parents=True, exist_ok=True)
        (machine.output / place).write_bytes(hub.files[name].content)
    return list(names)


@pytest.mark.parametrize("endpoint", ["the hub", "unreachable"])
def test_in_an_official_installation_nothing_is_downloaded(machine: Machine, hub: Hub, endpoint: str):
    places = official_installation(machine, hub)
    assert len(places) == len(FILES)
    assert missing_bytes(machine.output, BASE) == 0
    offline = {} if endpoint == "the hub" else {"HF_HUB_OFFLINE": "1"}
    answer = machine.run("--what=all", **offline)
    assert answer.returncode == 0, answer.stderr
    assert machine.is_complete(hub, "all")
    assert not [request for request in hub.requests if request[0] == "GET"]
    codec = machine.output / "semantic_codec/model.safetensors"
    assert codec.samefile(machine.output / "hf_cache/semantic_codec_model.safetensors")  # no second copy


def test_an_incomplete_file_of_an_official_installation_is_downloaded(machine: Machine, hub: Hub):
    official_installation(machine, hub)
    corrupt = machine.output / "hf_cache/campplus_cn_common.bin"
    corrupt.write_bytes(corrupt.read_bytes()[:-1])
    answer = machine.run("--what=all")
    assert answer.returncode == 0, answer.stderr
    assert machine.is_complete(hub, "all")
    assert not list(machine.output.rglob("*.old1"))


def test_a_base_beside_another_downloads_only_its_own_files(machine: Machine, hub: Hub):
    assert machine.run("--what=all").returncode == 0
    line = machine.error_line("--what=all", "--base=2.5")
    assert str(machine.output) in line
    assert "IndexTTS-2.0" in line
    hub.requests.clear()
    beside = machine.output.with_name("checkpoints_2.5")
    answer = machine.run("--what=all", "--base=2.5", f"--output-dir={beside}")
    assert answer.returncode == 0, answer.stderr
    fetched = {name for method, name, *_ in hub.requests if method == "GET"}
    assert fetched == {file.place for file in NEWER.own_files}
    encoder = "w2v-bert-2.0/model.safetensors"
    assert (beside / encoder).samefile(machine.output / encoder)  # no second copy
    # the contents are random, so none has the digest of the published file
    assert answer.stdout.count("not the revision that this program knows") == len(NEWER.own_files)


def test_without_the_hub_a_file_is_verified_by_its_known_digest(machine: Machine, hub: Hub, shared: Path):
    assert machine.run("--base=2.5").returncode == 0
    path = machine.output / NEWER.tokenizer_file
    path.write_bytes((shared / "data/indextts25_tokenizer" / path.name).read_bytes())
    answer = machine.run("--base=2.5", HF_HUB_OFFLINE="1")
    assert answer.returncode == 0, answer.stderr
    rows = {row.split()[0]: row for row in answer.stdout.splitlines() if row.startswith("  ")}
    assert rows[path.name].endswith("present, verified")
    assert rows["gpt.pth"].endswith("present, not verified")


@pytest.mark.parametrize("env", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:1"}], ids=str)
def test_without_the_hub_the_error_lists_the_missing_files_and_their_places(
    machine: Machine, hub: Hub, env: dict[str, str]
):
    assert machine.run("--what=speech").returncode == 0
    line = machine.error_line(**env)
    assert ("HF_HUB_OFFLINE" in line) == ("HF_HUB_OFFLINE" in env)
    assert "8 of 8 files" in line
    assert f"{machine.output}/w2v-bert-2.0/model.safetensors (model.safetensors of facebook/w2v-bert" in line
    answer = machine.run("--what=speech", **env)
    assert answer.returncode == 0
    assert answer.stdout.count("present") == 6


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "RepoNotFound", "HF_TOKEN"),
        (403, "GatedRepo", "HF_TOKEN"),
        (404, "EntryNotFound", "gpt.pth"),
        (200, "", "HF_ENDPOINT"),
        (503, "", "503 for gpt.pth"),
    ],
)
def test_a_refusal_of_the_hub_is_one_line(machine: Machine, hub: Hub, status: int, code: str, message: str):
    hub.files[GPT].status, hub.files[GPT].error_code = status, code
    assert message in machine.error_line()
    assert not (machine.output / "config.yaml").exists()


def test_the_token_is_sent_to_the_hub_and_not_to_its_storage(machine: Machine, hub: Hub):
    assert machine.run(HF_TOKEN="hf_secret").returncode == 0
    by_name = {name: login for method, name, _, login in hub.requests if method == "GET"}
    assert by_name["config.yaml"] == "Bearer hf_secret"
    assert by_name["gpt.pth"] == ""


def test_a_disk_without_enough_space_is_an_error_before_any_download(machine: Machine, hub: Hub):
    script = (
        "import shutil, sys; from types import SimpleNamespace\n"
        "shutil.disk_usage = lambda _: SimpleNamespace(free=2_500_000)\n"
        "sys.path.insert(0, sys.argv.pop(1))\n"
        "from indextts.commands.terminal import run\nfrom tools.download_checkpoints import main\nrun(main)"
    )
    argv = [sys.executable, "-c", script, str(REPOSITORY), f"--output-dir={machine.output}"]
    answer = subprocess.run(argv, env=machine.env, capture_output=True, text=True)
    assert answer.returncode == 4, answer.stderr
    [line] = [line for line in answer.stderr.splitlines() if line.startswith("[Error] ")]
    assert all(value in line for value in ("8 files", "3.15 MB", "2.50 MB", "--output-dir"))
    assert not [request for request in hub.requests if request[0] == "GET"]


def test_a_full_disk_keeps_the_partial_file_for_the_next_run(machine: Machine, hub: Hub):
    # a write beyond the limit fails like one on a full disk
    limit = f"ulimit -f {(MIB + MIB // 2) // 1024}; trap '' XFSZ; exec \"$@\""
    argv = ["bash", "-c", limit, "bash", *machine.argv()]
    answer = subprocess.run(argv, env=machine.env, capture_output=True, text=True)
    assert answer.returncode == 4, answer.stderr
    assert "gpt.pth" in answer.stderr
    [partial] = machine.output.glob(".tmp-gpt.pth.*")
    assert partial.stat().st_size >= MIB
    assert machine.run().returncode == 0
    assert machine.is_complete(hub)
    assert hub.fetched("gpt.pth")[1].startswith("bytes=")


def test_a_folder_that_cannot_be_created_is_one_line(tmp_path: Path, hub: Hub):
    (tmp_path / "checkpoints").write_text("a file")
    assert "--output-dir" in Machine(tmp_path, hub.url).error_line()


def test_a_folder_in_place_of_the_record_is_one_line(machine: Machine):
    (machine.output / ".downloads.json").mkdir(parents=True)
    assert "checkpoints: " in machine.error_line()


def test_a_corrupt_record_counts_as_absent(tmp_path: Path):
    (tmp_path / ".downloads.json").write_text("{no json")
    assert read_record(tmp_path) == {}
    assert {row[3] for row in table(tmp_path, BASE)} == {"absent"}
