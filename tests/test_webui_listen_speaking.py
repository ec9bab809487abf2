"""Tests of tab 8's commands: what the page starts and what it refuses."""

import json
import re
import shutil
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Synthesize
from indextts.commands.terminal import parse, to_argv
from indextts.data.manifest import read_pairs, write_utterances
from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project, read_project
from indextts.speech.synthesis.synthesize import resolve_sampling
from indextts.system.files import write_json
from indextts.system.processes import this_process
from indextts.text.bases import load_tokenizer
from indextts.webui.listen.comparing import both_choices, compare_commands
from indextts.webui.listen.saved_models import (
    find_model,
    find_recording,
    kept_choice,
    models,
    normalizer_of,
    speaker_choices,
    voice_choices,
)
from indextts.webui.listen.speaking import (
    SETTINGS,
    Wish,
    cast_menus,
    default_settings,
    known_speakers,
    read_as,
    speak_commands,
    speech_facts,
)
from indextts.webui.running.outlook import LinkedError
from indextts.webui.serving.security import Roots
from tests.checkpoint_files import save
from tests.one_project import OneProject
from tests.speaking_run import clips_of, write_adapter
from tests.tiny_run import REPOSITORY
from tests.watched_workspace import make_project


@pytest.fixture
def project(tuned: Project) -> Project:
    return tuned


def planned(project: Project, **changes: Any) -> list[Synthesize]:
    page = OneProject(project)
    clip = f"clip:{clips_of(project)[0].id}"
    given = {"typed": "ሰላም\n\n 5 ነው ", "voice": clip, "emotion": "", "checkpoint": "best.pth", "other": ""}
    given |= {"strengths": (None, None), "cast": {}}
    settings = default_settings("builtin") | {k: v for k, v in changes.items() if k in SETTINGS}
    given |= {name: value for name, value in changes.items() if name in given}
    both = (given["checkpoint"], given["other"])
    chosen = both if given["other"] else both[:1]
    wish = Wish(
        given["typed"], given["voice"], given["emotion"], chosen, given["strengths"], cast=given["cast"]
    )
    build = compare_commands if given["other"] else speak_commands
    commands = build(page, project, read_project(project), wish, list(settings.values()))
    return [command for command in commands if isinstance(command, Synthesize)]


def test_both_checkpoints_get_the_same_texts_and_seed(project: Project):
    first, second = planned(project, checkpoint="model_step2.pth", other="model_step1.pth", seed=7)
    assert first.text == ["ሰላም", "5 ነው"]
    assert (first.checkpoint.name, second.checkpoint.name) == ("model_step2.pth", "model_step1.pth")
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


def test_an_adapter_is_a_choice_and_a_lora_is_compared_at_two_strengths(project: Project, tmp_path: Path):
    other = make_project(project.root.parent, "other")
    uploads = project.listen / "adapters"
    for path in (other.export / "adapter.safetensors", uploads / "mine.safetensors"):
        write_adapter(project, path)
    choice, exported = (
        "adapter:tiny/listen/adapters/mine.safetensors",
        "adapter:other/export/adapter.safetensors",
    )
    (uploads / "broken.safetensors").write_bytes(b"x")
    found = [value for _, value in speaker_choices(project)]
    assert found == [model.name for model in models(project)] + [choice, exported]

    [command] = planned(project, checkpoint=choice, strengths=(0.5,))
    assert (command.checkpoint, command.adapter_strength) == (uploads / "mine.safetensors", 0.5)
    assert command.features == project.preprocessed / "features"
    (other.export / "builtin.npz").touch()
    assert planned(project, checkpoint=exported)[0].features is None  # it brings its codes
    assert planned(project, checkpoint="best.pth", strengths=(0.5,))[0].adapter_strength == 1  # is no LoRA

    assert both_choices(project, choice, None)[1].choices[-1][1] == choice
    both = planned(project, checkpoint=choice, other=choice, strengths=(0.5, None))
    assert [command.adapter_strength for command in both] == [0.5, 1]
    assert speech_facts(project.root.parent, project, both)[2][1].endswith("0.5")
    with pytest.raises(LinkedError):
        planned(project, checkpoint=choice, other=choice, strengths=(0.5, 0.5))

    (uploads / "mine.safetensors").rename(tmp_path / "secret.safetensors")
    (uploads / "mine.safetensors").symlink_to(tmp_path / "secret.safetensors")
    with pytest.raises(UserError, match=r"mine\.safetensors"):
        planned(project, checkpoint=choice)
    shutil.rmtree(uploads)
    shutil.rmtree(other.root)


def test_missing_choices_and_too_long_texts_are_refused(project: Project):
    cases: list[tuple[dict[str, Any], str]] = [
        ({"checkpoint": None}, "checkpoint"),
        ({"checkpoint": "../../other/training_output/best.pth"}, "checkpoint"),
        ({"other": "/etc/passwd"}, "checkpoint"),
        ({"voice": "/etc/passwd"}, "voice"),
        ({"voice": "upload:../../../etc/passwd"}, "voice"),
        ({"emotion": "clip:nobody"}, "voice"),
        ({"checkpoint": "adapter:../secret.safetensors"}, "checkpoint"),
        ({"typed": " \n "}, "text"),
        ({"typed": "ሰ" * 20_001}, "20,001"),
        ({"typed": "ሰላም\n" * 101}, "101"),
        ({"temperature": 0}, "--temperature"),
    ]
    for changes, message in cases:
        with pytest.raises(UserError, match=message):
            planned(project, **changes)


def test_while_any_trainer_runs_synthesis_uses_the_cpu_unless_a_device_is_chosen(project: Project):
    other = Project(project.root.parent / "other")
    job = other.jobs / "20260101_000000_train"
    job.mkdir(parents=True)
    (other.root / "project.json").write_text("{}")
    lock = other.run_dir / ".lock"
    lock.parent.mkdir()
    runner = asdict(this_process())  # it lives, so the job does
    waits = {"after": "20260101_000000_data"}
    write_json(job / "job.json", {"stage": "train", "argvs": [], "started": 0, "runner": runner, **waits})
    assert newest_job(other, "train").state == "waiting"
    assert planned(project)[0].device == "auto"  # a waiting job uses no GPU
    write_json(lock, asdict(this_process()))  # as a trainer that a terminal or the demo started
    both = planned(project, checkpoint="model_step1.pth", other="model_step2.pth")
    assert [command.device for command in both] == ["cpu", "cpu"]
    assert planned(project, device="cuda")[0].device == "cuda"
    lock.write_text("")
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


def test_the_names_of_a_dialogue_are_voices_that_a_user_can_change(project: Project):
    (project.listen / "voices").mkdir(parents=True, exist_ok=True)
    upload = project.listen / "voices/mine.wav"
    upload.write_bytes(b"x")
    speaker = clips_of(project)[0].speaker
    longest = max((c for c in clips_of(project) if c.speaker == speaker), key=lambda clip: clip.duration_s)
    text = f"mine: ሰላም\n{speaker}፦ ሰላም\nnobody: ሰላም"
    assert planned(project, typed=text)[0].voices == [
        Path(f"mine={upload}"),
        Path(f"{speaker}={longest.audio}"),
    ]
    cast = {"mine": "", "nobody": "upload:mine.wav", speaker: f"clip:{longest.id}", "absent": "clip:1"}
    assert planned(project, typed=text, cast=cast)[0].voices == [
        Path(f"{speaker}={longest.audio}"),
        Path(f"nobody={upload}"),
    ]
    names, first, second, third, *others = cast_menus(project, text, "", None)
    assert names.splitlines() == ["mine", speaker, "nobody"]
    assert [each.value for each in (first, second, third)] == ["upload:mine.wav", f"clip:{longest.id}", ""]
    assert not any(menu.visible for menu in others)
    _, kept, moved, *_ = cast_menus(
        project, f"{speaker}: ሰላም\nmine: ሰላም", f"{speaker}\nnobody\nmine", f"clip:{longest.id}", "", ""
    )
    assert "value" not in kept.constructor_args  # what the user chose stays
    assert moved.value == ""
    assert read_as(project, text, None, names, "upload:mine.wav", "", "")[0].splitlines()[0] == "ሰላም"
    upload.unlink()


def test_a_clip_outside_the_allowed_folders_is_not_a_voice(project: Project, tmp_path: Path):
    other = Project(tmp_path / "voice")
    clip = clips_of(project)[0]
    other.dataset.mkdir(parents=True)
    write_utterances(other.manifest, [clip])
    with pytest.raises(UserError, match=re.escape(str(clip.audio))):
        find_recording(other, f"clip:{clip.id}", Roots(tmp_path))
    assert find_recording(other, f"clip:{clip.id}", Roots(tmp_path, (REPOSITORY, project.root))) == clip.audio


def test_each_model_is_one_choice_with_the_names_of_its_files(project: Project):
    validations = [json.loads(line) for line in (project.run_dir / "metrics.jsonl").read_text().splitlines()]
    [loss] = [line["mel_loss"] for line in validations if line["kind"] == "val" and line["step"] == 2]
    found = models(project)
    names = [name for model in found for name in model.names]
    assert sorted(names) == ["best.pth", "latest.pth", "model_step1.pth", "model_step2.pth"]
    assert [model.meta.step for model in found if "latest.pth" in model.names] == [2]
    assert found[0].is_best
    labels = {name: label for label, name in speaker_choices(project)}
    assert labels.keys() == {"model_step1.pth", "model_step2.pth"}
    assert f"{loss:.3f}" in labels["model_step2.pth"]
    assert "latest.pth" in labels["model_step2.pth"]
    assert find_model(project, "latest.pth") == find_model(project, "model_step2.pth")
    assert kept_choice(project, "latest.pth") == "model_step2.pth"
    assert normalizer_of(project, "best.pth").record["version"] >= 3
    assert normalizer_of(project, "absent.pth") == normalizer_of(project, None)


def test_a_step_saved_again_and_an_incomplete_file_are_no_further_models(tmp_path: Path):
    project = Project(tmp_path / "voice")
    project.run_dir.mkdir(parents=True)
    save(project.run_dir, 20, serial=1, is_best=True)
    best = project.run_dir / "best.pth"
    (project.run_dir / "model_step20.pth").unlink()
    save(project.run_dir, 20, serial=2)  # a resume came here again; best.pth has another save
    save(project.run_dir, 40, serial=3)
    with (project.run_dir / "model_step40.pth").open("ab") as file:
        file.write(b"x")
    assert best.is_file()
    assert [model.meta.step for model in models(project)].count(20) == 1
    assert "model_step40.pth" not in [name for model in models(project) for name in model.names]


def test_a_model_is_not_compared_with_itself(project: Project):
    best = find_model(project, "best.pth")
    for one in best.names:
        for other in best.names:
            with pytest.raises(LinkedError) as refused:
                planned(project, checkpoint=one, other=other)
            assert refused.value.notice.link.startswith("#listen/")
    for now in (None, *best.names):
        first, second = both_choices(project, now, "model_step1.pth")
        assert best.name in [value for _, value in first.choices]
        assert best.name not in [value for _, value in second.choices]
        assert second.choices


def test_a_run_with_one_model_leads_to_the_training_for_a_comparison(project: Project, tmp_path: Path):
    alone = Project(tmp_path / "voice")
    alone.run_dir.mkdir(parents=True)
    save(alone.run_dir, 20, is_best=True)
    page = OneProject(alone)
    wish = Wish("ሰላም", None, None, ("best.pth", "latest.pth"))
    with pytest.raises(LinkedError) as refused:
        compare_commands(page, alone, read_project(project), wish, [])
    assert refused.value.notice.link == "#training"
    assert both_choices(alone, None, None)[1].choices == []


def test_a_shared_checkpoint_is_found_under_any_of_its_names(project: Project):
    newest = find_model(project, "latest.pth").name
    assert known_speakers(project, "latest.pth").value == newest
    assert "value" not in known_speakers(project, newest).constructor_args


def test_the_pieces_of_a_text_show_how_often_the_checkpoint_was_trained_on_them(project: Project):
    meta = find_model(project, "best.pth").meta
    assert meta.piece_counts is not None
    tokenizer = load_tokenizer(project.run_dir / "tokenizer.model")
    texts = {pair.target_id: pair.target_text for pair in read_pairs(project.pairs("train"))}.values()
    expected = Counter(token for text in texts for token in tokenizer.encode(text))
    assert {token: num for token, num in enumerate(meta.piece_counts) if num} == expected
    spoken, html = read_as(project, "50 \n\n ሰላም", "best.pth")
    assert len(spoken.splitlines()) == 2
    shown = re.findall(r"<small>(\d+)</small><small>([\d,]*)", html)
    ids = [token for line in ("50", "ሰላም") for token in tokenizer.encode(line)]
    assert [(int(token), int(num.replace(",", "") or 0)) for token, num in shown] == [
        (token, expected[token]) for token in ids
    ]


def test_counts_of_an_older_checkpoint_or_another_tokenizer_are_not_known(project: Project, tmp_path: Path):
    shutil.copytree(project.root, tmp_path / "copy", symlinks=True)
    copy = Project(tmp_path / "copy")

    def without(**changes: object) -> str:
        for path in copy.run_dir.glob("*.json"):
            content = json.loads(path.read_text())
            if "piece_counts" in content:
                path.write_text(json.dumps(content | changes))
        return read_as(copy, "ሰላም", None)[1]

    assert "\u00d7" in without()
    older = without(piece_counts=None)
    assert 'class="piece' in older
    assert "\u00d7" not in older
    assert 'class="piece' not in without(tokenizer_fingerprint="another")
