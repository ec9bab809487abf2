"""Tests of indextts/features/download.py with a local hub and the real library."""

import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, hf_hub_download

from indextts.commands.bases import BASES
from indextts.commands.data import DownloadCheckpoints
from indextts.errors import DISK_FULL, UserError
from indextts.features.download import download
from indextts.features.published_files import files_for, files_of, missing_bytes, read_record, table
from tests.hub_server import BLOCK, TOKEN, Hub, HubFile, repository, use_hub
from tests.small_disk import largest_file

BASE, NEWER = BASES["2.0"], BASES["2.5"]
FILES = files_of(BASE)
MIB = 1 << 20


@pytest.fixture
def published(hub: Hub) -> Hub:
    """Small versions of all published files; gpt.pth has slightly more than 3 MiB."""
    fill(hub)
    return hub


def fill(hub: Hub) -> None:
    chance = random.Random(0)
    for number, file in enumerate([*FILES, *files_of(NEWER)]):
        known = hub.repositories.setdefault(file.repository, repository({}))
        is_large = file.name.endswith((".pth", ".safetensors", ".bin", ".pt"))
        known.files[file.name] = HubFile(chance.randbytes(300 + number), is_large=is_large)
    gpt(hub).content = chance.randbytes(3 * MIB + 1000)


def gpt(hub: Hub) -> HubFile:
    return hub.repositories[BASE.repository].files["gpt.pth"]


def run(folder: Path, what: str = "training", base: str = "2.0") -> dict[str, str]:
    """Download, and return the origin of each file by its place."""
    command = DownloadCheckpoints(output_dir=folder, what=what, base=base)  # type: ignore[arg-type]
    return {place: origin for place, _, origin in download(command).rows}


def is_complete(folder: Path, hub: Hub, what: str = "training") -> bool:
    contents = {file: hub.repositories[file.repository].files[file.name].content for file in FILES}
    wanted = [file for file in files_for(what, BASE)]  # type: ignore[arg-type]
    is_equal = all((folder / file.place).read_bytes() == contents[file] for file in wanted)
    return is_equal and not list(folder.rglob(".tmp-*"))


@pytest.fixture
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # between two tries of the library


def test_all_files_are_downloaded_to_their_places_once(published: Hub, tmp_path: Path):
    page_file = "qwen0.6bemo4-merge/config.json"
    published.repositories[BASE.repository].files[page_file] = HubFile(b"{}")
    origins = run(tmp_path / "a", "all")
    assert set(origins.values()) == {"downloaded"}
    assert origins.keys() == {page_file, *(file.place for file in FILES)}
    assert is_complete(tmp_path / "a", published, "all")
    assert {row[3] for row in table(tmp_path / "a", BASE)} == {"checked"}
    published.requests.clear()
    assert set(run(tmp_path / "a", "all").values()) == {"present"}
    assert published.fetched() == []
    run(tmp_path / "b")
    assert is_complete(tmp_path / "b", published)
    assert not (tmp_path / "b/s2mel.pth").exists()


@pytest.mark.usefixtures("no_sleep")
@pytest.mark.parametrize("knows_ranges", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_broken_connection_resumes_where_it_broke(published: Hub, tmp_path: Path, knows_ranges: bool):
    gpt(published).break_after, gpt(published).knows_ranges = [BLOCK, BLOCK], knows_ranges
    run(tmp_path)
    assert is_complete(tmp_path, published)
    assert published.fetched("gpt.pth") == ["", f"bytes={BLOCK}-", f"bytes={BLOCK * (1 + knows_ranges)}-"]


@pytest.mark.usefixtures("no_sleep")
def test_what_arrived_before_an_interruption_is_not_downloaded_again(published: Hub, tmp_path: Path):
    gpt(published).break_after = [2 * MIB, *[0] * 99]
    with pytest.raises(UserError, match="same command"):
        run(tmp_path)
    assert not (tmp_path / "gpt.pth").exists()
    [row] = [row for row in table(tmp_path, BASE) if row[1] == "gpt.pth"]
    assert row == ["base model", "gpt.pth", "3.15 MB", "66 %"]
    gpt(published).break_after = []
    published.requests.clear()
    run(tmp_path)
    assert is_complete(tmp_path, published)
    assert published.fetched("gpt.pth") == [f"bytes={2 * MIB}-"]
    assert published.fetched("bpe.model") == []


@pytest.mark.parametrize(("name", "digest"), [("gpt.pth", "0" * 64), ("config.yaml", "1" * 40)])
def test_a_download_with_the_wrong_digest_is_deleted(published: Hub, tmp_path: Path, name: str, digest: str):
    published.repositories[BASE.repository].files[name].etag = digest
    with pytest.raises(UserError, match=f"{name}: .*{digest}"):
        run(tmp_path)
    assert not (tmp_path / name).exists()
    assert not list(tmp_path.glob(f".tmp-{name}*"))


def test_a_file_that_differs_from_the_hub_is_renamed(published: Hub, tmp_path: Path):
    (tmp_path / "gpt.pth").write_bytes(gpt(published).content)  # copied by hand
    run(tmp_path)
    assert published.fetched("gpt.pth") == []
    config, codec = tmp_path / "config.yaml", tmp_path / "semantic_codec/model.safetensors"
    config.write_bytes(b"mine")
    corrupt = bytearray(codec.read_bytes())
    corrupt[7] ^= 1
    codec.write_bytes(corrupt)
    published.requests.clear()
    run(tmp_path)
    assert config.with_name("config.yaml.old1").read_bytes() == b"mine"
    assert codec.with_name("model.safetensors.old1").read_bytes() == corrupt
    assert published.names() == ["config.yaml", "semantic_codec/model.safetensors"]
    assert is_complete(tmp_path, published)


def test_a_file_in_the_hugging_face_cache_is_copied(
    published: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hf_hub_download(BASE.repository, "gpt.pth")
    published.requests.clear()
    assert run(tmp_path / "a")["gpt.pth"] == "from the Hugging Face cache"
    assert is_complete(tmp_path / "a", published)
    assert published.fetched("gpt.pth") == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"HF_HUB_OFFLINE.* 7 of 8 files"):
        run(tmp_path / "b")
    assert (tmp_path / "b/gpt.pth").read_bytes() == gpt(published).content


def official_installation(folder: Path, hub: Hub) -> None:
    """Make the folder an official installation: the published repository and hf_cache/."""
    for file in FILES:
        path = folder / (file.official or file.place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hub.repositories[file.repository].files[file.name].content)


@pytest.mark.parametrize("is_online", [True, pytest.param(False, marks=pytest.mark.long)])
def test_in_an_official_installation_nothing_is_downloaded(
    published: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_online: bool
):
    official_installation(tmp_path, published)
    assert missing_bytes(tmp_path, BASE) == 0
    use_hub(monkeypatch, published.url if is_online else "", tmp_path)
    run(tmp_path, "all")
    assert is_complete(tmp_path, published, "all")
    assert published.fetched() == []
    codec = tmp_path / "semantic_codec/model.safetensors"
    assert codec.samefile(tmp_path / "hf_cache/semantic_codec_model.safetensors")  # no second copy


def test_a_base_beside_another_downloads_only_its_own_files(
    published: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    run(tmp_path / "checkpoints", "all")
    with pytest.raises(UserError, match=r"IndexTTS-2\.0"):
        run(tmp_path / "checkpoints", "all", "2.5")
    published.requests.clear()
    beside = tmp_path / "checkpoints_2.5"
    run(beside, "all", "2.5")
    assert set(published.names()) == {file.place for file in NEWER.own_files}
    encoder = "w2v-bert-2.0/model.safetensors"
    assert (beside / encoder).samefile(tmp_path / "checkpoints" / encoder)  # no second copy
    # the contents are random, so none has the digest of the published file
    assert caplog.text.count("not the revision that this program knows") == len(NEWER.own_files)


@pytest.mark.shared
def test_without_the_hub_files_are_used_and_missing_ones_named(
    published: Hub, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
):
    run(tmp_path, base="2.5")
    path = tmp_path / NEWER.tokenizer_file
    path.write_bytes((shared / "data/indextts25_tokenizer" / path.name).read_bytes())
    use_hub(monkeypatch, "", tmp_path)
    origins = run(tmp_path, base="2.5")
    assert (origins[path.name], origins["gpt.pth"]) == ("present, verified", "present, not verified")
    with pytest.raises(UserError) as caught:
        run(tmp_path / "empty")
    assert "8 of 8 files" in str(caught.value)
    encoder = f"{tmp_path}/empty/w2v-bert-2.0/model.safetensors (model.safetensors of facebook/w2v-bert-2.0)"
    assert encoder in str(caught.value)


@pytest.mark.parametrize(
    ("change", "token", "message"),
    [
        ({"status": 401}, "", "HF_TOKEN"),
        ({"is_gated": True}, "", "gated.*hf auth login.*HF_TOKEN"),
        ({"is_gated": True}, "hf_other", "gated.*hf auth whoami"),
        ({}, "hf_wrong", "401.*hf auth login"),
        ({"status": 403}, "", "403.*HF_TOKEN"),
        ({"status": 200}, "", "HF_ENDPOINT.*proxy"),
        ({"status": 429}, "", "429.*wait"),
        ({"status": 503}, "", "503.*later"),
        ({}, "", "gpt.pth"),
    ],
    ids=str,
)
def test_a_refusal_of_the_hub_is_one_line_with_what_to_do(
    published: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, bool | int],
    token: str,
    message: str,
):
    use_hub(monkeypatch, published.url, tmp_path, token)
    known = published.repositories[BASE.repository]
    for name, value in change.items():
        setattr(known, name, value)
    if not change and not token:
        del known.files["gpt.pth"]
    with pytest.raises(UserError, match=message) as caught:
        run(tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "config.yaml").exists()


def test_the_token_is_sent_to_the_hub_and_not_to_its_storage(
    published: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    use_hub(monkeypatch, published.url, tmp_path, TOKEN)
    published.repositories[BASE.repository].is_gated = True
    run(tmp_path)
    by_name = {name: login for method, name, _, login in published.requests if method == "GET"}
    assert (by_name["config.yaml"], by_name["gpt.pth"]) == (TOKEN, "")


def test_a_disk_without_enough_space_is_an_error_before_any_download(
    published: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2_500_000))
    with pytest.raises(UserError, match=r"8 files.*3\.15 MB.*2\.50 MB.*folder") as caught:
        run(tmp_path)
    assert caught.value.exit_status == DISK_FULL
    assert published.fetched() == []


def test_a_full_disk_keeps_the_partial_file_for_the_next_run(published: Hub, tmp_path: Path):
    with largest_file(MIB + MIB // 2), pytest.raises(UserError, match=r"gpt\.pth") as caught:
        run(tmp_path)
    assert caught.value.exit_status == DISK_FULL
    run(tmp_path)
    assert is_complete(tmp_path, published)
    assert published.fetched("gpt.pth")[1].startswith("bytes=1")


def test_wrong_places_are_one_line_and_a_corrupt_record_counts_as_absent(published: Hub, tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "a/.downloads.json").mkdir(parents=True)
    for folder in ("file", "a"):
        with pytest.raises(UserError, match=f"{tmp_path / folder}"):
            run(tmp_path / folder)
    (tmp_path / ".downloads.json").write_text("{no json")
    assert read_record(tmp_path) == {}
    assert {row[3] for row in table(tmp_path, BASE)} == {"absent"}
