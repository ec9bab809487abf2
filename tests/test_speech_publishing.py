"""Tests of tools/publish.py: the real program and library with a local hub, and the way back by name."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
import torch
import yaml
from huggingface_hub.utils import validate_repo_id
from safetensors.torch import load_file

from demo.make_base_checkpoint import random_model
from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.bases import BASE_2_5
from indextts.commands.speech import ExportModel, PublishModel, Synthesize
from indextts.data.sources import DataSource, write_source
from indextts.errors import UserError
from indextts.features.hub_files import hub_errors
from indextts.models.gpt.config import load_config
from indextts.projects.project import Project
from indextts.speech.evaluation.judge import Judgement
from indextts.speech.evaluation.report import Clip, summarize
from indextts.speech.export.model_folder import export
from indextts.speech.publishing.publish import publish, upload_model
from indextts.speech.synthesis.synthesize import synthesize
from indextts.speech.synthesis.trained_model import local_model
from indextts.system.json_lines import write_json_lines
from indextts.text.bases import load_tokenizer
from indextts.text.extend import extend_file
from indextts.text.transcripts import Errors
from tests.acoustic_files import write_files_of_2_5
from tests.conftest import REPOSITORY
from tests.hub_server import READER, TOKEN, Hub, hub_env, repository, use_hub
from tests.speaking_run import make_speaking_project
from tests.waiting import PATIENCE_S, wait_until

NAME = "someone/amharic-voice"
LARGE_BYTES = 400_000  # only the weights have more
STATEMENT = "A sentence that a licence asks for."


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = make_speaking_project(tmp_path_factory.mktemp("publish"))
    source = DataSource(name="speech", url="https://hub.example/datasets/a/speech", licence="cc-by-4.0")
    write_source(made.dataset, "speech", source)
    export(ExportModel(checkpoint=made.run_dir / "best.pth", config=made.config, output_dir=made.export))
    return made


class Machine:
    """A machine with a login and a cache of its own."""

    def __init__(self, folder: Path, hub: Hub, token: str = TOKEN) -> None:
        self.env = {**os.environ, **hub_env(hub.url, folder, token)}

    def start(self, program: str, *flags: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, f"tools/{program}.py", *flags],
            cwd=REPOSITORY,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, program: str, *flags: str) -> tuple[int, str]:
        process = self.start(program, *flags)
        output, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, output


def flags(project: Project, *more: str) -> list[str]:
    return [f"--model-folder={project.export}", f"--repository={NAME}", *more]


def published_in(hub: Hub) -> dict[str, bytes]:
    return {name: file.content for name, file in hub.repositories[NAME].files.items()}


def write_scores(folder: Path) -> Path:
    folder.mkdir()
    clips = [Clip("u", "ሰላም", 2, 1.0, "p", Judgement(1.0, {"asr": "ሰላም"}, {"asr": Errors(1, 8)}, 0.5, False))]
    write_json_lines(folder / "summary.jsonl", [summarize("best", 200, clips).model_dump()])
    return folder


def write_samples(folder: Path) -> Path:
    folder.mkdir()
    (folder / "001.wav").write_bytes(b"RIFF" + bytes(2000))
    lines = [{"file": "001.wav", "text": "ሰላም ለዓለም"}, {"file": None, "text": "nothing"}]
    write_json_lines(folder / "spoken.jsonl", lines)
    return folder


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_upload_resumes_and_the_model_speaks_by_name(project: Project, hub: Hub, tmp_path: Path):
    token = "hf_" + hashlib.sha256(b"secret").hexdigest()[:30]
    machine = Machine(tmp_path, hub, token)
    hub.hold_above = LARGE_BYTES
    process = machine.start("publish", *flags(project))
    small = {"bpe.model", "builtin.npz"}
    wait_until(lambda: hub.held.is_set() and len(hub.stored) == len(small), process=process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert hub.repositories[NAME].is_private
    assert published_in(hub) == {}

    hub.hold_above = 0
    status, output = machine.run("publish", *flags(project))
    assert (status, f"{hub.url}/{NAME}" in output) == (0, True), output
    assert set(hub.received.values()) == {1}
    assert token not in output
    files = [path for folder in (project.root, tmp_path) for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if token.encode() in path.read_bytes()]
    assert not [name for name, content in published_in(hub).items() if token.encode() in content]
    published = published_in(hub)
    package = {name for name in published if name.startswith("spoken_text/")}
    assert package >= {"spoken_text/__init__.py", "spoken_text/options.json", "spoken_text/requirements.txt"}
    others = {*small, "gpt.safetensors", "config.yaml", "README.md", "LICENSE-NOTE.txt"}
    assert published.keys() - package == others
    (tmp_path / "gpt.safetensors").write_bytes(published["gpt.safetensors"])
    sent = load_file(tmp_path / "gpt.safetensors")
    kept = torch.load(project.export / "gpt.pth", weights_only=True)
    assert sent.keys() == kept.keys()
    assert all(torch.equal(sent[name], kept[name]) for name in kept)

    other = Machine(tmp_path / "other", hub)
    speak = [f"--checkpoint={NAME}", "--text=ሰላም", "--max-codes=20", "--device=cpu"]
    clip = f"--voice={next((project.dataset / 'audio').iterdir())}"
    status, output = other.run("synthesize", *speak, clip, f"--output={tmp_path / 'said'}")
    assert status == 0, output
    assert (tmp_path / "said/001.wav").is_file()
    status, output = other.run(
        "evaluate",
        f"--checkpoint={NAME}",
        f"--manifest={project.manifest}",
        f"--output-dir={tmp_path / 'scores'}",
        "--num-clips=1",
        "--max-codes=20",
        f"--models={tmp_path}",
        "--device=cpu",
    )
    assert status == 0, output
    assert json.loads((tmp_path / "scores/summary.jsonl").read_text().splitlines()[1])["step"] is None
    voice = next((project.dataset / "audio").iterdir())
    assert served(other, voice, *speak[:1], *speak[2:])[:4] == b"RIFF"
    assert [name for _, name, _, _ in hub.requests].count("gpt.safetensors") <= 2  # HEAD and GET, then cached


def served(machine: Machine, voice: Path, *flags: str) -> bytes:
    """Return what a server with these flags says with a voice."""
    server = machine.start("serve", *flags, f"--voices={voice}", "--port=0")
    assert server.stdout is not None
    address = next(line for line in server.stdout if "/v1" in line).split()[-1]
    wanted = {"model": "indextts2", "voice": voice.stem, "input": "ሰላም", "response_format": "wav"}
    answer = httpx2.post(f"{address}/audio/speech", json=wanted, timeout=PATIENCE_S)
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.content


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")  # of huggingface_hub
def test_a_model_of_2_5_goes_to_the_hub_and_speaks_by_name_as_from_its_folder(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    files = write_files_of_2_5(tmp_path / "published")
    ranks, config = files / BASE_2_5.tokenizer_file, files / "config.yaml"
    texts = ["ሰላም ለዓለም ሁሉ ይሁን።"] * 4
    tokenizer = extend_file(ranks, texts, tmp_path / "am.tiktoken", load_tokenizer(ranks).size + 20).extended
    sizes = replace(load_config(config), base="2.5", number_text_tokens=tokenizer.size)
    entry = {"fingerprint": tokenizer.vocabulary.fingerprint, "pieces": list(tokenizer.pieces)}
    entry |= {"model": tokenizer.model_bytes, "normalizer": tokenizer.options.record}
    content = {"model": random_model(sizes, seed=0).state_dict(), "tokenizer": entry}
    torch.save(content, tmp_path / "model.pth")
    model = tmp_path / "model"
    export(ExportModel(checkpoint=tmp_path / "model.pth", config=config, output_dir=model))

    use_hub(monkeypatch, hub.url, tmp_path, TOKEN)
    (tmp_path / "terms").write_text("terms")
    terms = {"base_licence": tmp_path / "terms", "statement": STATEMENT}
    list(publish(PublishModel(model_folder=model, repository=NAME, **terms)))
    published = published_in(hub)
    package = {name for name in published if name.startswith("spoken_text/")}
    others = {"gpt.safetensors", BASE_2_5.tokenizer_file, "config.yaml", "README.md"}
    assert published.keys() - package == others | {"LICENSE-NOTE.txt", "LICENSE.txt"}
    assert json.loads(published["spoken_text/options.json"])["letter_case"] == "keep"
    card = published["README.md"].decode()
    assert yaml.safe_load(card.split("---\n")[1])["base_model"] == BASE_2_5.repository
    assert f"`{BASE_2_5.official_page} THIS_FOLDER`" in card
    assert card.index("python -m spoken_text") < card.index(BASE_2_5.official_page)

    voice = min((REPOSITORY / "demo/audio").rglob("*.opus"))
    fields = {"voice": str(voice), "text": ["ሰላም Google"], "models": files, "device": "cpu"}
    fields |= {"max_codes": 20, "num_beams": 1, "solver_steps": 2}
    sounds = []
    for checkpoint in (Path(NAME), model):
        said = tmp_path / f"said{len(sounds)}.wav"
        printed = list(synthesize(Synthesize(checkpoint=checkpoint, output=said, **fields)))
        assert "read as: ሰላም Google" in "\n".join(printed)
        sounds.append(said.read_bytes())
    assert sounds[0] == sounds[1]


def test_a_dry_run_shows_the_whole_card_and_sends_nothing(project: Project, hub: Hub, tmp_path: Path):
    extras = {
        "run-dir": project.run_dir,
        "evaluation": write_scores(tmp_path / "scores"),
        "samples": write_samples(tmp_path / "spoken"),
    }
    command = PublishModel(
        model_folder=project.export,
        repository=NAME,
        dry_run=True,
        **{name.replace("-", "_"): path for name, path in extras.items()},
    )
    before = sorted(project.export.iterdir())
    output = "\n".join(publish(command))
    assert sorted(project.export.iterdir()) == before
    assert hub.requests == []
    for name in ("gpt.safetensors", "bpe.model", "builtin.npz", "losses.png", "samples/001.wav", "README.md"):
        assert re.search(rf"^  {re.escape(name)}: \d", output, re.MULTILINE), name
    head = yaml.safe_load(output.split("---\n")[1])
    assert (head["language"], head["datasets"]) == ("am", ["a/speech"])
    assert "base_model" not in head
    for part in (
        "cc-by-4.0",
        "| best | all | 200 | 1 | 12.5 % (",
        "(samples/001.wav)",
        "ሰላም ለዓለም",
        "(losses.png)",
    ):
        assert part in output, part
    assert str(project.root) not in output


def test_a_model_of_published_weights_needs_their_licence_and_its_sentence(project: Project, tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    for path in project.export.iterdir():
        if path.is_file() and path.name != "builtin.npz":
            (folder / path.name).write_bytes(path.read_bytes())
    command = PublishModel(model_folder=folder, repository=NAME, dry_run=True)
    with pytest.raises(UserError, match="--base-licence"):
        list(publish(command))
    (tmp_path / "terms").write_text("terms")
    with pytest.raises(UserError, match="--statement"):
        list(publish(command.model_copy(update={"base_licence": tmp_path / "terms"})))
    given = {"base_licence": tmp_path / "terms", "statement": STATEMENT}
    output = "\n".join(publish(command.model_copy(update=given)))
    head = yaml.safe_load(output.split("---\n")[1])
    assert (head["base_model"], head["license_link"]) == ("IndexTeam/IndexTTS-2", "LICENSE.txt")
    assert f"> {STATEMENT}" in output
    assert "  LICENSE.txt: " in output


@pytest.mark.parametrize(("token", "problem"), [("", "hf auth login"), (READER, "write")])
def test_an_upload_without_the_right_to_write_is_refused(
    project: Project, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: str, problem: str
):
    use_hub(monkeypatch, hub.url, tmp_path, token)
    with pytest.raises(UserError, match=problem):
        list(publish(PublishModel(model_folder=project.export, repository=NAME)))
    assert hub.repositories == {}


@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")  # of huggingface_hub
@pytest.mark.parametrize("is_private", [True, False])
def test_a_repository_keeps_its_visibility(
    project: Project, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_private: bool
):
    hub.repositories[NAME] = repository({}, is_private=is_private)
    use_hub(monkeypatch, hub.url, tmp_path, TOKEN)
    command = PublishModel(model_folder=project.export, repository=NAME, public=is_private)
    with pytest.raises(UserError, match=f"{NAME}.*--public"):
        list(publish(command))
    assert published_in(hub) == {}
    assert list(publish(command.model_copy(update={"public": not is_private})))
    downloaded = local_model(Path(NAME))
    assert {path.name for path in downloaded.iterdir()} >= {"gpt.safetensors", "bpe.model", "builtin.npz"}
    weights = load_file(downloaded / "gpt.safetensors")
    kept = torch.load(project.export / "gpt.pth", weights_only=True)
    assert weights.keys() == kept.keys()
    assert all(torch.equal(weights[name], kept[name]) for name in kept)


def test_a_name_that_the_hub_does_not_allow_is_a_path_or_refused(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    use_hub(monkeypatch, hub.url, tmp_path, TOKEN)
    too_long = f"a/{'b' * 97}"
    for name in ("../missing", "a--b/c", "a/b..c", "-a/b", "a/b.", "a/b.git", "é/b", too_long, "a/b/c"):
        assert local_model(Path(name)) == Path(name)
    with pytest.raises(UserError, match="a--b/c"):
        upload_model("a--b/c", {}, "Upload", private=True)
    with pytest.raises(UserError, match="a--b/c"), hub_errors("a--b/c"):
        validate_repo_id("a--b/c")
    for name in ("a/b", "a_b/c.d-e", too_long[:-1], "_a/b_"):
        assert REPOSITORY_NAME.fullmatch(name)
    with pytest.raises(UserError, match=f"{hub.url}: nobody/nothing"):
        local_model(Path("nobody/nothing"))
    assert local_model(tmp_path) == tmp_path
    assert local_model(Path("runs/best.pth")) == Path("runs/best.pth")
    use_hub(monkeypatch, "", tmp_path)
    with pytest.raises(UserError, match="nobody/nothing"):
        local_model(Path("nobody/nothing"))


def test_a_folder_that_is_no_export_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        list(publish(PublishModel(model_folder=tmp_path, repository=NAME, dry_run=True)))
    with pytest.raises(UserError, match="--repository"):
        list(publish(PublishModel(model_folder=tmp_path, repository="https://hub/someone/voice")))
