"""Tests of tools/evaluate.py, and of evaluate.py and minimal_pairs.py in indextts/speech/evaluation."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile
import torch

from indextts.commands.normalizer_options import NormalizerOptions, Reading
from indextts.commands.speech import Evaluate
from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.errors import UserError
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig
from indextts.projects.project import Project
from indextts.speech.evaluation.evaluate import checkpoint_names, evaluate, read_held_out
from indextts.speech.evaluation.minimal_pairs import read_minimal_pairs, shuffled_files
from indextts.speech.synthesis import synthesize as module
from indextts.text.tokenizer import Tokenizer
from tests.recognizers import write_recognizer
from tests.speaking_run import make_speaking_project
from tools.evaluate import main

NUM_CLIPS = 2


def json_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def flags(tuned: Project, output: Path, **changes: object) -> list[str]:
    given = {"manifest": tuned.manifest, "output_dir": output, "num_clips": NUM_CLIPS}
    given |= {"max_codes": 40, "seeds": 1, "models": output.parent / "models", **changes}
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


@pytest.mark.slow
def test_checkpoints_are_scored_beside_the_recordings(
    tuned: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "models/campplus").mkdir(parents=True)
    torch.manual_seed(0)
    campplus = CAMPPlus(CAMPPlusConfig()).state_dict()
    torch.save(campplus, tmp_path / "models/campplus/campplus_cn_common.bin")
    asr = write_recognizer(tmp_path / "hears-la", "ላ")
    checkpoints = [tuned.run_dir / f"model_step{step}.pth" for step in (1, 2)]
    argv = flags(tuned, tmp_path / "out", asr=asr, max_codes=80, seed=5, temperature=0.8, top_p=0.8)
    argv += [f"--checkpoint={path}" for path in checkpoints]
    assert main(argv) == 0
    out = tmp_path / "out"
    report = (out / "report.md").read_text("utf-8")
    assert report in capsys.readouterr().out
    assert "* no difference shown" in report  # too few sentences
    assert (out / "scores.png").read_bytes().startswith(b"\x89PNG")
    rows, clips = json_lines(out / "summary.jsonl"), json_lines(out / "clips.jsonl")
    assert [(row["name"], row["step"]) for row in rows] == [
        ("recordings", None),
        ("model_step1", 1),
        ("model_step2", 2),
    ]
    assert len(clips) == 3 * NUM_CLIPS
    for row in rows:
        own = [clip for clip in clips if clip["checkpoint"] == row["name"]]
        errors = [clip["errors"]["hears-la"] for clip in own]
        # the recognizer hears one letter in every clip and misses the rest
        for clip, counted in zip(own, errors, strict=True):
            if clip["heard"]["hears-la"]:
                assert counted["edits"] == counted["characters"] - ("ላ" in clip["text"])
        total = sum(counted["characters"] for counted in errors)
        assert row["cer"]["hears-la"] == pytest.approx(sum(counted["edits"] for counted in errors) / total)
        assert -1 <= row["likeness"] <= 1
    assert rows[0]["length_ratio"] == pytest.approx(1, abs=0.01)
    for clip in clips[NUM_CLIPS:]:
        if clip["file"]:
            assert soundfile.info(out / clip["file"]).duration == pytest.approx(clip["duration_s"], abs=1e-3)
        assert clip["prompt_id"] != clip["id"]


def test_seeds_groups_and_foreign_prompts_have_their_clips_and_rows(tuned: Project, tmp_path: Path):
    foreign, held_out = tmp_path / "foreign.jsonl", tmp_path / "held_out.jsonl"
    write_utterances(held_out, [replace(clip, group="names") for clip in read_utterances(tuned.manifest)])
    write_utterances(foreign, [replace(clip, language="en") for clip in read_utterances(tuned.manifest)[:2]])
    checkpoints = [f"--checkpoint={tuned.run_dir / f'model_step{step}.pth'}" for step in (1, 2)]
    asr = write_recognizer(tmp_path / "hears-la", "ላ")
    argv = flags(tuned, tmp_path / "out", asr=asr, num_clips=5, seeds=2, prompts=foreign, manifest=held_out)
    assert main([*argv, *checkpoints]) == 0
    out = tmp_path / "out"
    rows = [*json_lines(out / "summary.jsonl"), *json_lines(out / "groups.jsonl")]
    clips = json_lines(out / "clips.jsonl")
    assert [row["num_clips"] for row in rows[:3]] == [5, 10, 10]
    assert len(clips) == 5 + 2 * 2 * (5 + 5)  # recordings; checkpoints, seeds, prompts of both kinds
    own = [clip for clip in clips if clip["step"] == 1]
    assert [clip["seed"] for clip in own[:4]] == [0, 1000, 0, 1000]
    assert own[0]["id"] == own[1]["id"]
    assert {row["num_clips"] for row in rows if row["group"] == "foreign"} == {10}
    assert [row["name"] for row in rows if row["group"] == "foreign"] == ["model_step1", "model_step2"]
    assert [row["group"] for row in rows].count("") == 3
    assert [row["num_clips"] for row in rows if row["group"] == "names"] == [5, 10, 10]
    for row in rows:
        of_row = [
            clip for clip in clips if row["group"] in clip["groups"] and clip["checkpoint"] == row["name"]
        ]
        assert row["num_clips"] == len(of_row)
        assert row["last_lost"] == sum(clip["words"]["last_lost"] for clip in of_row) / len(of_row)
    found = json_lines(out / "differences.jsonl")
    assert [each["measure"] for each in found] == ["CER, hears-la", "length", "failures"]
    assert "* model_step2 against model_step1, CER, hears-la: " in (out / "report.md").read_text("utf-8")
    with pytest.raises(UserError, match=f"--prompts {tuned.manifest}"):
        main([*flags(tuned, out, prompts=tuned.manifest), *checkpoints])


def test_without_scoring_models_lengths_and_failures_are_still_measured(tuned: Project, tmp_path: Path):
    command = Evaluate(
        checkpoint=[tuned.run_dir],
        manifest=tuned.manifest,
        output_dir=tmp_path / "out",
        models=tmp_path / "absent",
        num_clips=1,
        seeds=1,
        max_codes=5,
    )
    _, row = evaluate(command)
    assert (row.cer, row.likeness, row.num_clips) == ({}, None, 1)
    page = (tmp_path / "out/report.md").read_text("utf-8")
    assert "--asr" in page
    assert "campplus_cn_common.bin is not in absent/campplus" in page


def test_texts_are_compared_as_the_model_reads_them(
    tuned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    [item] = read_held_out(tuned.manifest, 1)
    words = item.utterance.text.strip("።").split()
    options = NormalizerOptions(readings=tuple(Reading(word, "ላ", "word") for word in words))
    load_trained = module.load_trained

    def with_readings(*args):
        trained = load_trained(*args)
        return replace(trained, tokenizer=Tokenizer(tuned.tokenizer.read_bytes(), tuned.tokenizer, options))

    monkeypatch.setattr(module, "load_trained", with_readings)
    command = Evaluate(
        checkpoint=[tuned.run_dir],
        manifest=tuned.manifest,
        output_dir=tmp_path / "out",
        models=tmp_path / "absent",
        asr=[str(write_recognizer(tmp_path / "hears-la", "ላ"))],
        num_clips=1,
        max_codes=5,
    )
    evaluate(command)
    counted = {clip["errors"]["hears-la"]["characters"] for clip in json_lines(tmp_path / "out/clips.jsonl")}
    assert counted == {len(words)}


def test_checkpoints_of_one_name_get_their_folders_names(tmp_path: Path):
    paths = [tmp_path / "a/best.pth", tmp_path / "b/best.pth"]
    assert checkpoint_names(paths) == ["a-best", "b-best"]
    assert checkpoint_names([paths[0], tmp_path / "a/latest.pth"]) == ["best", "latest"]
    assert checkpoint_names([tmp_path / "x/a/best.pth", tmp_path / "y/a/best.pth"]) == [
        "1-a-best",
        "2-a-best",
    ]
    with pytest.raises(UserError, match=f"--checkpoint {paths[0]}: "):
        checkpoint_names([paths[0], paths[0]])


def test_unusable_arguments_are_named(tuned: Project, tmp_path: Path):
    out = tmp_path / "out"
    for changes, problem in (
        ({"checkpoint": tuned.base_checkpoint}, r"gpt\.pth: .*tokenizer"),
        ({"manifest": tmp_path / "absent.jsonl"}, r"absent\.jsonl"),
        ({"asr": tmp_path}, r"config\.json"),
        ({"checkpoint": tmp_path}, r"gpt\.pth, best\.pth or latest\.pth"),
    ):
        given = {"checkpoint": tuned.run_dir / "latest.pth", **changes}
        with pytest.raises(UserError, match=problem):
            main(flags(tuned, out, **given))
    with pytest.raises(UserError, match="--checkpoint"):
        Evaluate(checkpoint=[], manifest=tmp_path, output_dir=out)
    assert not out.exists()


def test_a_recognizer_that_cannot_write_the_language_is_stopped_before_anything_is_spoken(
    tuned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("indextts.features.recognizers.first_transcripts.NUM_FIRST", NUM_CLIPS)
    monkeypatch.setattr("indextts.speech.evaluation.evaluate._spoken", None)
    asr = write_recognizer(tmp_path / "hears-la", "ላ")
    with pytest.raises(UserError, match=r"--asr hears-la: .*Amharic"):
        main(flags(tuned, tmp_path / "out", asr=asr, checkpoint=tuned.run_dir))


def clip(folder: Path, id: str, speaker: str, duration_s: float = 4.0, text: str | None = None) -> Utterance:
    text = text or f"ቃል {'ሀለመረሰ'[int(id[-1])]}"
    return Utterance(id, folder / f"{id}.wav", text, speaker, duration_s)


def write(folder: Path, *clips: Utterance) -> Path:
    write_utterances(folder / "manifest.jsonl", clips)
    return folder / "manifest.jsonl"


def test_speakers_alternate_and_each_sentence_is_prompted_by_another_clip(tmp_path: Path):
    clips = [clip(tmp_path, f"a{n}", "a") for n in range(3)] + [
        clip(tmp_path, f"b{n}", "b") for n in range(2)
    ]
    found = read_held_out(write(tmp_path, *clips), 4)
    assert [one.utterance.id for one in found] == ["a0", "b0", "a1", "b1"]
    assert found == read_held_out(tmp_path / "manifest.jsonl", 4)
    for one in found:
        assert one.prompt.speaker == one.utterance.speaker
        assert one.prompt.id != one.utterance.id


def test_prompts_last_three_seconds_if_the_speaker_has_such_clips(tmp_path: Path):
    durations = {"a0": 2.0, "a1": 4.0, "a2": 5.0, "a3": 0.5, "a4": 700.0}
    found = read_held_out(write(tmp_path, *(clip(tmp_path, id, "a", s) for id, s in durations.items())), 0)
    assert len(found) == 5
    assert {one.prompt.id for one in found} == {"a1", "a2"}


def test_a_clip_with_the_same_text_is_not_a_prompt(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    same = [clip(tmp_path, f"a{n}", "a", text="ሰላም።" if n else "ሠላም") for n in range(3)]
    other = [clip(tmp_path, f"b{n}", "b") for n in range(2)]
    found = read_held_out(write(tmp_path, *same, *other), 0)
    assert {one.utterance.speaker for one in found} == {"b"}
    assert "3 clips" in caplog.text


def test_a_manifest_without_two_clips_of_a_speaker_is_refused(tmp_path: Path):
    manifest = write(tmp_path, clip(tmp_path, "a0", "a"), clip(tmp_path, "b0", "b"))
    with pytest.raises(UserError, match=f"--manifest {manifest}: "):
        read_held_out(manifest, 0)


TEXTS = [("ሰላም ነው።", "ሰላም ናት።"), ("አለ", "አላ"), ("ገና", "ገናና")]


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_both_texts_of_each_pair_are_spoken_in_files_that_do_not_tell_which(tmp_path: Path):
    run = make_speaking_project(tmp_path / "project")
    file = tmp_path / "pairs.tsv"
    file.write_text("# a comment\n" + "".join(f"{a}\t{b}\n" for a, b in TEXTS), encoding="utf-8")
    argv = [f"--manifest={run.manifest}", "--num-clips=1", "--max-codes=40", f"--models={run.root}"]
    argv += [f"--checkpoint={run.run_dir / f'model_step{step}.pth'}" for step in (1, 2)]
    assert main([*argv, f"--output-dir={tmp_path}", f"--minimal-pairs={file}"]) == 0
    folder = tmp_path / "minimal_pairs"
    head, *sheet = rows(folder / "sheet.tsv")
    _, *answers = rows(folder / "answers.tsv")
    assert head == ["file", "first", "second", "heard"]
    sounds = sorted(path.name for path in folder.glob("*.wav"))
    assert [row[0] for row in sheet] == [row[0] for row in answers] == sounds
    assert 1 <= len(sounds) <= 2 * 2 * len(TEXTS)
    for (_, first, second, heard), (name, checkpoint, line, spoken, text) in zip(sheet, answers, strict=True):
        assert (first, second) == TEXTS[int(line) - 2]
        assert text == (first, second)[int(spoken) - 1]
        assert heard == ""
        assert checkpoint in ("model_step1", "model_step2")
        assert soundfile.info(folder / name).frames > 0
    keys = [(checkpoint, line, spoken) for _, checkpoint, line, spoken, _ in answers]
    assert len(set(keys)) == len(keys)
    assert keys != sorted(keys)  # shuffled


def test_the_order_of_files_depends_on_the_seed_alone(tmp_path: Path):
    names = shuffled_files(tmp_path, 12, seed=0)
    assert names == shuffled_files(tmp_path, 12, seed=0) != shuffled_files(tmp_path, 12, seed=1)
    assert sorted(names) == [tmp_path / f"{number:03}.wav" for number in range(1, 13)]


@pytest.mark.parametrize("line", ["one text", "a\tb\tc", "a\t", "a\ta"])
def test_a_line_that_is_not_two_texts_is_named(tmp_path: Path, line: str):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a\tb\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs\.tsv:2"):
        read_minimal_pairs(path)
    path.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(UserError, match="no pair"):
        read_minimal_pairs(path)
