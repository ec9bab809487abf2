"""Tests of the pipeline on the demo: all stages in order, stopped, resumed, skipped."""

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from indextts import projects
from indextts.commands.app import RunPipeline
from indextts.commands.bases import BASES, Base
from indextts.commands.data import Preprocess
from indextts.commands.launching import ALONE, Launch
from indextts.commands.terminal import parse, to_argv
from indextts.data.manifest import read_utterances
from indextts.data.review import DecisionLog, decide
from indextts.errors import UserError
from indextts.projects import pipeline
from indextts.projects.pipeline import CURRENT, copy_base_files, current_stage
from indextts.projects.project import Project, make_settings, read_project
from indextts.projects.stages import plan_stage
from indextts.runs.directory import read_metrics, verify_checkpoint
from indextts.speech.synthesis.trained_model import load_trained
from indextts.text.bases import load_tokenizer
from tests.conftest import REPOSITORY
from tests.import_sources import run_import, write_tone
from tests.small_repository import NUM_CLIPS, copy_repository
from tests.waiting import PATIENCE_S, wait_until
from tools import extend_bpe

PIPELINE = "tools/run_pipeline.py"
STAGES = ["data", "tokenizer", "preprocess", "pairs", "train", "export"]


@dataclass(frozen=True)
class Demo:
    """A small demo, run stage by stage in this process, which has torch loaded."""

    repository: Path  # a copy of the repository with the small demo
    workspace: Path
    programs: list[tuple[str, str]]  # (stage, program) in the order in which they ran

    def run(self, workspace: Path, **flags: Any) -> dict[str, str]:
        """Run the pipeline; return the result of each stage as the table at the end shows it."""

        def call(argv: list[str], launch: Launch = ALONE) -> int:
            stage = json.loads((workspace / "demo" / CURRENT).read_text())["stage"]
            self.programs.append((stage, argv[0]))
            main = runpy.run_path(str(REPOSITORY / argv[0]), run_name="program")["main"]
            return int(main(argv[1:]))

        with pytest.MonkeyPatch.context() as patch:
            for module in (pipeline, projects.project):
                patch.setattr(module, "DEMO", self.repository / "demo/project.yaml")
            patch.setattr(pipeline, "run_program", call)
            results = pipeline.run_pipeline(RunPipeline(demo=True, workspace=workspace, **flags))
        assert [result.status for result in results] == [0] * len(results)
        return {result.name: result.text for result in results}

    def copy(self, folder: Path) -> Path:
        """Copy the workspace, with the times of its files, which decide what is unchanged."""
        workspace = folder / "copy"
        shutil.copytree(self.workspace, workspace)
        for record in (workspace / "demo/pipeline").iterdir():
            text = record.read_text(encoding="utf-8").replace(str(self.workspace), str(workspace))
            record.write_text(text, encoding="utf-8")
        return workspace


def command_line(workspace: Path, *flags: str, repository: Path = REPOSITORY) -> list[str]:
    return [sys.executable, str(repository / PIPELINE), f"--workspace={workspace}", *flags]


def run(
    workspace: Path, *flags: str, repository: Path = REPOSITORY, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(repository)}
    argv = command_line(workspace, *flags, repository=repository)
    return subprocess.run(argv, capture_output=True, text=True, cwd=cwd, env=environment)


def table(output: str) -> dict[str, str]:
    """Return the result of each stage as the table at the end shows it."""
    return dict(re.findall(rf"^({'|'.join(STAGES)}) +[\d.]+  (.*)$", output, flags=re.MULTILINE))


def test_the_published_speech_encoder_is_read_from_the_base_folder(tmp_path: Path):
    base = tmp_path / "IndexTTS-2"
    settings = make_settings(
        name="x", manifest=tmp_path / "m.jsonl", base=base, preprocess={"backend": "indextts2"}
    )
    project = Project(tmp_path / "x")
    plan = plan_stage(project, settings, "preprocess")
    (command,) = plan.commands
    assert command.semantic_codec == base / "semantic_codec/model.safetensors"
    assert command.stats == base / "wav2vec2bert_stats.pt"
    assert command.speech_encoder == Preprocess.model_fields["speech_encoder"].default  # the hub's cache
    assert {command.semantic_codec, command.stats, command.speech_encoder} < set(plan.reads)
    for folder in ("hf_cache/w2v-bert-2.0", "w2v-bert-2.0"):  # that of an official installation comes second
        (base / folder).mkdir(parents=True)
        (base / folder / "config.json").touch()
        (command,) = plan_stage(project, settings, "preprocess").commands
        assert command.speech_encoder == base / folder
    (builtin,) = plan_stage(
        project, settings.with_fields("preprocess", backend="builtin"), "preprocess"
    ).commands
    assert builtin == Preprocess(
        manifest=project.manifest,
        output_dir=project.preprocessed,
        config=project.config,
        gpt_checkpoint=project.base_checkpoint,
        backend="builtin",
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Return a finished demo of two steps."""
    folder = tmp_path_factory.mktemp("pipeline")
    made = Demo(copy_repository(folder / "repository", epochs=100), folder / "work space", [])
    assert list(made.run(made.workspace, max_steps=2)) == STAGES
    return made


def test_a_larger_vocabulary_begins_a_new_part(demo: Demo, tmp_path: Path):
    project = Project(demo.copy(tmp_path) / "demo")
    cpu = torch.device("cpu")
    first, exported = (load_trained(path, cpu) for path in (project.run_dir / "latest.pth", project.export))
    assert first.tokenizer.size == exported.tokenizer.size
    assert first.tokenizer.language_row == exported.tokenizer.language_row == 75
    size = first.tokenizer.size + 20
    argv = [f"--base-model={project.base_tokenizer}", f"--manifests={REPOSITORY / 'demo/manifest.jsonl'}"]
    assert extend_bpe.main([*argv, f"--output-model={project.tokenizer}", f"--target-size={size}"]) == 0
    (train,) = plan_stage(project, read_project(project).with_fields("train", max_steps=2), "train").commands
    argv = [sys.executable, str(REPOSITORY / train.program), *to_argv(train)]
    again = subprocess.run(argv, capture_output=True, text=True)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "Vocab size mismatch!" in again.stdout
    second = load_trained(project.run_dir / "latest.pth", cpu)
    assert (second.part, second.step, second.tokenizer.size) == (2, 2, size)
    old, new = (each.gpt.state_dict()["text_embedding.weight"] for each in (first, second))
    base_size = load_tokenizer(project.base_tokenizer).size
    assert torch.equal(new[:base_size], old[:base_size])


def test_preprocessing_runs_again_when_a_linked_recording_changed(tmp_path: Path):
    source, project = tmp_path / "in", Project(tmp_path / "x")
    settings = make_settings(name="x", manifest=tmp_path / "m.jsonl", base=tmp_path / "base")
    write_tone(source / "a.wav", 220)
    (source / "a.txt").write_text("ሰላም", encoding="utf-8")

    def read_files() -> dict[Path, bytes]:
        run_import(source, project.dataset, speaker="s", link=True)
        reads = plan_stage(project, settings, "preprocess").reads
        return {path: path.read_bytes() for path in reads if path.is_file()}

    before = read_files()
    assert read_files() == before
    write_tone(source / "a.wav", 330)  # of the same length
    assert read_files() != before


def test_all_stages_run_in_order(demo: Demo):
    assert demo.programs[:9] == [
        ("data", "tools/import_dataset.py"),
        ("data", "check_amharic_data.py"),
        ("tokenizer", "tools/extend_bpe.py"),
        ("tokenizer", "verify_amharic_training.py"),
        ("preprocess", "tools/preprocess_data.py"),
        ("pairs", "tools/build_gpt_prompt_pairs.py"),
        ("pairs", "tools/build_gpt_prompt_pairs.py"),
        ("train", "trainers/train_gpt_v2.py"),
        ("export", "tools/export_gpt.py"),
    ]


def test_the_project_folder_has_the_files_that_users_know(demo: Demo):
    folder = demo.workspace / "demo"
    for name in (
        "project.json",
        "checkpoints/config.yaml",
        "checkpoints/gpt.pth",
        "checkpoints/multilingual_zh_ja_yue_char_del.tiktoken",
        "dataset/manifest.jsonl",
        "dataset/audio",
        "tokenizers/amharic_extended.tiktoken",
        "preprocessed_amharic/train_manifest.jsonl",
        "preprocessed_amharic/val_manifest.jsonl",
        "preprocessed_amharic/train_pairs.jsonl",
        "preprocessed_amharic/val_pairs.jsonl",
        "training_output/latest.pth",
        "export/gpt.pth",
    ):
        assert (folder / name).exists(), name
    assert verify_checkpoint(folder / "training_output/latest.pth").step == 2


def test_finished_and_unchanged_stages_are_skipped(demo: Demo, tmp_path: Path):
    results = demo.run(demo.copy(tmp_path), max_steps=2)
    assert list(results) == STAGES
    assert all(result.endswith("(unchanged)") for result in results.values()), results


def test_a_stage_with_changed_input_and_the_later_ones_run_again(demo: Demo, tmp_path: Path):
    workspace = demo.copy(tmp_path)
    os.utime(workspace / "demo/preprocessed_amharic/train_manifest.jsonl")
    results = demo.run(workspace, max_steps=2, until="pairs")
    assert list(results) == STAGES[:4]
    assert "(unchanged)" in results["tokenizer"]
    assert "(unchanged)" not in results["pairs"]
    assert list(demo.run(workspace, max_steps=2, first="preprocess", until="pairs")) == STAGES[2:4]
    with pytest.raises(UserError, match="--first train: comes after --until pairs"):
        demo.run(workspace, first="train", until="pairs")


def test_a_rejected_clip_is_absent_from_all_later_stages(demo: Demo, tmp_path: Path):
    workspace = demo.copy(tmp_path)
    manifest = workspace / "demo/dataset/manifest.jsonl"
    decide(DecisionLog(manifest), ["demo_0001"], {"verdict": "reject"})
    decide(DecisionLog(manifest), ["demo_0002"], {"text": "አዲስ ጽሑፍ"})
    results = demo.run(workspace, max_steps=2, until="pairs")
    assert [stage for stage in results if "(unchanged)" in results[stage]] == ["data"]
    folder = workspace / "demo/preprocessed_amharic"
    used = {
        utterance.id: utterance.text
        for split in ("train", "val")
        for utterance in read_utterances(folder / f"{split}_manifest.jsonl")
    }
    assert len(used) == NUM_CLIPS - 1
    assert "demo_0001" not in used
    assert used["demo_0002"] == "አዲስ ጽሑፍ"
    assert "demo_0001" not in (folder / "train_pairs.jsonl").read_text(encoding="utf-8")
    assert "demo_0001" in manifest.read_text(encoding="utf-8")


def test_a_stopped_training_resumes_with_the_same_command(demo: Demo, tmp_path: Path):
    workspace = demo.copy(tmp_path)
    output = workspace / "demo/training_output"
    argv = command_line(workspace, "--demo", repository=demo.repository)
    with subprocess.Popen(
        argv,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": str(demo.repository)},
    ) as process:
        wait_until(lambda: "step=10 " in (output / "train.log").read_text(), process=process)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert table(printed)["train"].startswith("stopped")
    assert "train: python trainers/train_gpt_v2.py" in printed
    stopped_at = verify_checkpoint(output / "latest.pth").step
    assert stopped_at >= 10

    demo.run(workspace, max_steps=stopped_at + 10)
    steps = [line["step"] for line in read_metrics(output / "metrics.jsonl") if line["kind"] == "train"]
    assert [step for step in steps if step % 10 == 0] == list(range(10, stopped_at + 11, 10))
    assert steps[-1] == stopped_at + 10  # the end of a run has a line of its own
    assert json.loads((output / "exit.json").read_text())["reason"] == "finished"


# a line is written at once: the lines of two ranks do not mix
SAVES_WITH_GPUS = """
import os, signal, sys, time
def end(number, frame):
    os.write(1, b"saved\\n")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
os.write(1, f"ready {os.environ['CUDA_VISIBLE_DEVICES']}\\n".encode())
while True:
    time.sleep(0.01)
"""

LAUNCHES_TWO = """
import sys
from pathlib import Path
from indextts.projects import pipeline
from indextts.commands.launching import Launch
pipeline.REPOSITORY = Path(sys.argv[1])
print("status", pipeline.run_program(["program.py"], Launch(processes=2, gpus="0,1")))
"""


def test_several_ranks_are_launched_and_stopped_together(tmp_path: Path):
    (tmp_path / "program.py").write_text(SAVES_WITH_GPUS)
    argv = [sys.executable, "-u", "-c", LAUNCHES_TWO, str(tmp_path)]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert [process.stdout.readline() for _ in range(2)] == [b"ready 0,1\n"] * 2
        process.terminate()
        output = process.communicate(timeout=PATIENCE_S)[0]
    assert output == b"saved\nsaved\nstatus 143\n"


def test_the_current_stage_is_the_last_one_that_began_since_the_job_did(tmp_path: Path):
    project = Project(tmp_path)
    assert current_stage(project, 0.0) == ""
    (tmp_path / CURRENT).parent.mkdir()
    (tmp_path / CURRENT).write_text(json.dumps({"stage": "pairs", "started": 100.5}))
    assert current_stage(project, 100.0) == current_stage(project, 100.5) == "pairs"
    assert current_stage(project, 101.0) == ""


@pytest.mark.parametrize(
    "content", ["", "[]", "[" * 100_000, '{"stage": "pairs"}', '{"stage": "x", "started": "1"}']
)
def test_a_corrupt_record_of_the_current_stage_counts_as_absent(tmp_path: Path, content: str):
    (tmp_path / CURRENT).parent.mkdir()
    (tmp_path / CURRENT).write_text(content)
    assert current_stage(Project(tmp_path), 0.0) == ""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--config"),
        (("--config=absent.yaml",), "absent.yaml: "),
        (("--demo", "--max-steps=-1"), "--max-steps: "),
    ],
)
def test_bad_flags_are_an_error_of_one_line(tmp_path: Path, flags: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message) as refused:
        pipeline.run_pipeline(parse(RunPipeline, [f"--workspace={tmp_path}", *flags]))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("published", BASES.values(), ids=BASES)
def test_a_missing_base_file_is_named_with_the_download_command(tmp_path: Path, published: Base):
    base, name = tmp_path / "base", "gpt.pth"
    base.mkdir()
    for each in ("config.yaml", published.tokenizer_file):
        (base / each).touch()
    settings = make_settings(name="x", manifest=tmp_path / "m.jsonl", base=base)
    command = rf"download_checkpoints\.py --base {published.name} --output-dir {base}$"
    with pytest.raises(UserError, match=rf"^base: {base}/{name} is absent; .*{command}"):
        copy_base_files(Project(tmp_path / "x"), settings)
    assert not (tmp_path / "x").exists()


def test_a_wrong_flag_of_a_late_stage_fails_before_the_first_stage(demo: Demo, tmp_path: Path):
    base = demo.workspace / "demo/checkpoints"
    text = f"name: mine\nmanifest: m.jsonl\nbase: {base}\ntrain: {{learning_rat: 1}}\n"
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=r"train: --learning-rat: "):
        pipeline.run_pipeline(RunPipeline(workspace=tmp_path / "workspace", config=tmp_path / "mine.yaml"))
    assert not (tmp_path / "workspace/mine/dataset").exists()


def test_a_stage_that_fails_ends_the_pipeline_with_its_status(demo: Demo, tmp_path: Path):
    workspace = demo.copy(tmp_path)
    (workspace / "demo/tokenizers/amharic_extended.tiktoken").unlink()
    shutil.rmtree(workspace / "demo/pipeline")
    manifest, base = workspace / "demo/dataset/manifest.jsonl", demo.workspace / "demo/checkpoints"
    (tmp_path / "mine.yaml").write_text(f"name: demo\nmanifest: {manifest}\nbase: {base}\n")
    answer = run(workspace, f"--config={tmp_path}/mine.yaml")
    assert answer.returncode == 2
    assert "manifest.jsonl" in answer.stderr
    assert list(table(answer.stdout)) == ["data"]
    assert "failed with status 2" in table(answer.stdout)["data"]
