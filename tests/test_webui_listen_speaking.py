"""Tests of tab 8's commands: what the page starts and what it refuses."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Synthesize
from indextts.commands.terminal import parse, to_argv
from indextts.data.manifest import write_utterances
from indextts.errors import UserError
from indextts.projects.project import Project, read_project
from indextts.speech.synthesis.synthesize import resolve_sampling
from indextts.system.files import write_json
from indextts.system.processes import this_process
from indextts.webui.listen.saved_models import choices, find_recording, normalizer_of, voice_choices
from indextts.webui.listen.speaking import SETTINGS, default_settings, speak_commands
from indextts.webui.serving.security import Roots
from tests.speaking_run import clips_of, make_speaking_project
from tests.tiny_run import REPOSITORY


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_speaking_project(tmp_path_factory.mktemp("workspace"))


def planned(project: Project, **changes: Any) -> list[Synthesize]:
    workspace = project.root.parent
    page: Any = SimpleNamespace(roots=Roots(workspace), workspace=workspace)
    clip = f"clip:{clips_of(project)[0].id}"
    given = {"typed": "ሰላም\n\n 5 ነው ", "voice": clip, "emotion": "", "checkpoint": "best.pth", "other": ""}
    settings = default_settings("builtin") | {k: v for k, v in changes.items() if k in SETTINGS}
    given |= {name: value for name, value in changes.items() if name in given}
    commands = speak_commands(page, project, read_project(project), *given.values(), *settings.values())
    return [command for command in commands if isinstance(command, Synthesize)]


def test_both_checkpoints_get_the_same_texts_and_seed(project: Project):
    first, second = planned(project, other="latest.pth", seed=7)
    assert first.text == ["ሰላም", "5 ነው"]
    assert (first.checkpoint.name, second.checkpoint.name) == ("best.pth", "latest.pth")
    assert (first.output, second.output) == (project.listen / "0001/a", project.listen / "0001/b")
    different = {"checkpoint", "output"}
    assert first.model_dump(exclude=different) == second.model_dump(exclude=different)
    assert first.seed == 7


def test_the_command_has_only_settings_that_differ_from_the_defaults(project: Project):
    [command] = planned(project)
    assert not Sampling.model_fields.keys() & command.model_fields_set
    [command] = planned(project, repetition_penalty=10.0)  # the command's default, not that of these codes
    started = parse(Synthesize, to_argv(command))
    assert resolve_sampling(started, "builtin").repetition_penalty == 10.0
    assert resolve_sampling(started, "builtin").positions == "training"


def test_missing_choices_and_too_long_texts_are_refused(project: Project):
    cases: list[tuple[dict[str, Any], str]] = [
        ({"checkpoint": None}, "choose a checkpoint"),
        ({"checkpoint": "../../other/training_output/best.pth"}, "choose a checkpoint"),
        ({"other": "/etc/passwd"}, "choose a checkpoint"),
        ({"voice": None}, "choose a voice"),
        ({"voice": "/etc/passwd"}, "choose a voice"),
        ({"voice": "upload:../../../etc/passwd"}, "choose a voice"),
        ({"emotion": "clip:nobody"}, "choose a voice"),
        ({"typed": " \n "}, "type a text"),
        ({"typed": "ሰ" * 20_001}, "20,001"),
        ({"typed": "ሰላም\n" * 101}, "101"),
        ({"temperature": 0}, "--temperature"),
    ]
    for changes, message in cases:
        with pytest.raises(UserError, match=message):
            planned(project, **changes)


def test_during_any_training_synthesis_uses_the_cpu_unless_a_device_is_chosen(project: Project):
    other = Project(project.root.parent / "other")
    job = other.jobs / "20260101_000000_train"
    job.mkdir(parents=True)
    (other.root / "project.json").write_text("{}")
    runner = asdict(this_process())  # it lives, so the job does
    write_json(job / "job.json", {"stage": "train", "argvs": [], "started": 0, "runner": runner})
    assert [command.device for command in planned(project, other="latest.pth")] == ["cpu", "cpu"]
    assert planned(project, device="cuda")[0].device == "cuda"
    write_json(job / "exit.json", {"status": 0, "reason": "finished", "ended": 1})
    assert planned(project)[0].device == "auto"


def test_voices_are_uploads_and_the_longest_clips_of_each_speaker(project: Project):
    (project.listen / "voices").mkdir(parents=True, exist_ok=True)
    upload = project.listen / "voices/mine.wav"
    upload.write_bytes(b"x")
    values = [value for _, value in voice_choices(project)]
    longest = max(clips_of(project), key=lambda clip: clip.duration_s)
    assert values[0] == "upload:mine.wav"
    assert f"clip:{longest.id}" in values
    assert len(values) == 1 + 2 * 5
    assert find_recording(project, "upload:mine.wav", Roots(project.root.parent)) == upload
    upload.unlink()


def test_a_clip_outside_the_allowed_folders_is_not_a_voice(project: Project, tmp_path: Path):
    other = Project(tmp_path / "voice")
    clip = clips_of(project)[0]
    other.dataset.mkdir(parents=True)
    write_utterances(other.manifest, [clip])
    with pytest.raises(UserError, match=re.escape(str(clip.audio))):
        find_recording(other, f"clip:{clip.id}", Roots(tmp_path))
    assert find_recording(other, f"clip:{clip.id}", Roots(tmp_path, (REPOSITORY, project.root))) == clip.audio


def test_a_checkpoint_is_shown_with_its_step_its_loss_and_its_tokenizer(project: Project):
    validations = [json.loads(line) for line in (project.run_dir / "metrics.jsonl").read_text().splitlines()]
    [loss] = [line["mel_loss"] for line in validations if line["kind"] == "val" and line["step"] == 2]
    labels = {name: label for label, name in choices(project)}
    assert list(labels)[:2] == ["best.pth", "latest.pth"]
    assert labels["latest.pth"] == f"latest.pth: step 2, validation mel loss {loss:.3f}, 720 pieces"
    assert normalizer_of(project, "best.pth").record["version"] >= 3
    assert normalizer_of(project, "absent.pth") == normalizer_of(project, None)
