"""Tests of indextts/commands: one model per command line, there and back; bases, launches, pairs files."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, Field

from indextts.commands.base import Command
from indextts.commands.bases import BASES, base_of
from indextts.commands.data import BuildPairs
from indextts.commands.launching import ALONE, SHUTDOWN_S, Launch, launch_of
from indextts.commands.pairs_file import PairsFile
from indextts.commands.terminal import continued, parse, run, to_argv, typed_fields, with_typed
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.projects.jobs.files import KILL_S, SAVE_S
from indextts.projects.project import DEMO, Project, read_settings
from indextts.projects.stages import plan_stage
from tests.conftest import REPOSITORY
from tools.commands_page import COMMANDS, commands_page

NASTY = ["a,b", "[x]", "two words", "-rf", "--epochs", "", "=", "a\nb"]
ALL_AT_ONCE = "a,b [x] q\"q it's $(touch x) ሰላም --epochs = *? a\nb"


def filled(command: type[Command], text: str) -> Command:
    """Return the command with `text` in every field that takes text or a path."""
    values: dict[str, object] = {}
    for name, field in command.model_fields.items():
        kind = str(field.annotation)
        if "Literal" in kind:
            continue
        if "list" in kind:
            item = Path if "Path" in kind else str
            values[name] = [item(text or "p"), item("second")]
        elif "Path" in kind:
            values[name] = Path(text or "p")
        elif kind == "<class 'str'>":
            values[name] = text
    return command(**values)


@pytest.mark.parametrize(
    ("command", "text"),
    [*((command, ALL_AT_ONCE) for command in COMMANDS), *((Train, text) for text in NASTY)],
)
@pytest.mark.failure(52)
def test_a_command_survives_conversion_to_argv_and_back(command: type[Command], text: str):
    original = filled(command, text)
    assert parse(command, to_argv(original)) == original


def test_defaults_are_left_out_of_argv():
    command = BuildPairs(manifest=Path("m"), output=Path("o"), seed=2025)
    assert to_argv(command) == ["--manifest=m", "--output=o"]


def test_a_value_out_of_bounds_is_a_one_line_error_with_the_flag_as_typed():
    argv = ["--train-manifest=t", "--val-manifest=v", "--tokenizer=m", "--learning-rate=-1", "--epochs=0"]
    with pytest.raises(UserError, match=r"--epochs: .*got 0; --learning-rate: .*got -1\.0"):
        parse(Train, argv)


def test_the_documented_flags_exist():
    flags = {f"--{name.replace('_', '-')}" for name in Train.model_fields}
    typed = """--train-manifest --val-manifest --tokenizer --config --base-checkpoint --output-dir --epochs
        --learning-rate --text-loss-weight --mel-loss-weight --warmup-steps --log-interval --val-interval
        --save-interval --keep-checkpoints --batch-size --grad-accumulation --num-workers --amp --resume
        --max-steps --weight-decay --grad-clip --seed --val-batch-size --max-val-batches"""
    assert set(typed.split()) <= flags


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_program_exists_and_every_flag_has_help(command: type[BaseModel]):
    assert (REPOSITORY / command.program).is_file()  # type: ignore[attr-defined]
    assert command.__doc__
    assert all(field.description for field in command.model_fields.values())


def test_the_flags_in_the_docs_are_those_of_the_commands():
    assert (REPOSITORY / "docs/commands.md").read_text(encoding="utf-8") == commands_page()


def test_the_users_mistake_ends_a_program_with_status_2_and_one_line():
    program = REPOSITORY / "tools/build_gpt_prompt_pairs.py"
    argv = ["--manifest", "absent.jsonl", "--output", "never.jsonl"]
    answer = subprocess.run([sys.executable, program, *argv], capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.startswith("[Error] ")
    assert answer.stderr.count("\n") == 1
    assert "absent.jsonl" in answer.stderr


def test_ctrl_c_ends_a_program_with_one_line_and_status_130(capsys):
    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as caught:
        run(interrupted)
    assert caught.value.code == 130
    assert capsys.readouterr().err == "[Error] stopped; run the same command to continue\n"


REQUIRED = ["--train-manifest=t", "--val-manifest=v", "--tokenizer=m"]
REQUIRED_FIELDS = {"train_manifest", "val_manifest", "tokenizer"}


@pytest.mark.parametrize(
    ("argv", "fields"),
    [
        ([], set()),
        (["--learning-rate=2e-5"], {"learning_rate"}),
        (["--learning-rate", "2e-5"], {"learning_rate"}),
        (["--learning_rate", "2e-5"], {"learning_rate"}),
        (["--batch_size=8", "--epochs", "10"], {"batch_size", "epochs"}),
        (["--amp"], {"amp"}),
        (["--no-amp"], {"amp"}),
        (["--no_allow_cpu"], {"allow_cpu"}),
        (["--resume=--epochs", "--output-dir=--amp=1"], {"resume", "output_dir"}),
        (["--resume=a --seed=3"], {"resume"}),
        (["--train-manifest=u", "--train-manifest", "w"], set()),
    ],
    ids=lambda value: str(sorted(value)),  # a set's own order is another one in every process
)
def test_typed_fields_include_values_equal_to_the_default(argv: list[str], fields: set[str]):
    assert typed_fields(Train, [*REQUIRED, *argv]) == REQUIRED_FIELDS | fields
    assert parse(Train, [*REQUIRED, *argv]).model_fields_set == REQUIRED_FIELDS | fields


def test_a_typed_list_replaces_the_default_list():
    class Listing(Command):
        """List numbers."""

        program: ClassVar[str] = "tools/listing.py"
        numbers: list[int] = Field([1, 2], description="Numbers.")

    assert parse(Listing, []).numbers == [1, 2]
    assert parse(Listing, ["--numbers=3"]).numbers == [3]
    assert parse(Listing, ["--numbers", "1", "--numbers=2", "--numbers=1"]).numbers == [1, 2, 1]


def test_on_resume_typed_defaults_stay_in_argv():
    default = Train.model_fields["learning_rate"].default
    given = {"train_manifest": [Path("t")], "val_manifest": [Path("v")], "tokenizer": Path("m")}
    fresh = Train(**given, learning_rate=default, amp=False, num_workers=0)
    resumed = Train(**given, learning_rate=default, amp=False, num_workers=0, resume="auto")
    automatic = ["--num-workers=0", "--no-amp"]
    assert to_argv(fresh) == [*REQUIRED, *automatic]
    assert to_argv(resumed) == [*REQUIRED, "--resume=auto", f"--learning-rate={default}", *automatic]
    assert parse(Train, to_argv(resumed)) == resumed
    assert {"learning_rate", "amp"} <= parse(Train, to_argv(resumed)).model_fields_set


@pytest.mark.parametrize("name", sorted(Train.automatic))
def test_an_automatic_setting_stays_in_argv_only_if_it_was_typed(name: str):
    typed = with_typed(RUN, {*REQUIRED_FIELDS, name})
    assert parse(Train, to_argv(typed)).model_fields_set == {*REQUIRED_FIELDS, name}
    assert parse(Train, to_argv(RUN)).model_fields_set == REQUIRED_FIELDS


def test_on_resume_a_form_with_every_field_overrides_the_checkpoint():
    filled_in = Train(**{**RUN.model_dump(), "learning_rate": 2e-5, "batch_size": 8, "resume": "auto"})
    stored = Train(**{**RUN.model_dump(), "learning_rate": 7e-5, "batch_size": 36}).model_dump(mode="json")
    assert continued(parse(Train, to_argv(filled_in)), stored) == filled_in


RUN = Train(train_manifest=[Path("t")], val_manifest=[Path("v")], tokenizer=Path("m"))


def test_on_resume_untyped_flags_keep_the_runs_values():
    run_flags = [
        "--learning-rate=7e-5",
        "--batch-size=36",
        "--amp",
        "--seed=7",
        "--epochs=3",
        "--max-steps=900",
    ]
    elsewhere = ["--num-workers=4", "--allow-cpu", "--output-dir=old", "--config=old.yaml"]
    stored = parse(Train, [*REQUIRED, *run_flags, *elsewhere]).model_dump(mode="json")
    argv = [
        "--train-manifest=t2",
        "--val-manifest=v2",
        "--tokenizer=m2",
        "--resume=auto",
        "--output-dir=here",
    ]
    assert continued(parse(Train, argv), stored) == parse(Train, [*argv, *run_flags])


def test_an_unknown_setting_is_dropped_and_an_invalid_one_is_named():
    command = parse(Train, [*REQUIRED, "--resume=auto"])
    of_today = parse(Train, [*REQUIRED, "--resume=auto"]).model_dump(mode="json")
    assert continued(command, {**of_today, "a_flag_of_tomorrow": True}) == command
    with pytest.raises(UserError, match=r"checkpoint: --epochs: .*got 0"):
        continued(command, {"epochs": 0})
    typed = parse(Train, [*REQUIRED, "--resume=auto", "--epochs=2"])
    assert continued(typed, {"epochs": 0}).epochs == 2


def test_a_projects_training_command_has_its_settings_even_at_their_defaults():
    project, settings = Project(Path("w/demo")), read_settings(DEMO)
    default = Train.model_fields["learning_rate"].default
    typed = settings.with_fields("train", learning_rate=default)
    [command] = plan_stage(project, typed, "train").commands
    argv = to_argv(command)
    assert f"--learning-rate={default}" in argv
    assert "--max-steps=0" in argv  # or an earlier try's limit, stored in its checkpoint, would hold
    assert parse(Train, argv) == command
    [limited] = plan_stage(project, typed.with_fields("train", max_steps=60), "train").commands
    assert "--max-steps=60" in to_argv(limited)


SOURCES = sorted((REPOSITORY / "indextts").rglob("*.py"))
# One module per package knows what a base computes differently.
KNOWING = ("bases.py", "model_folder.py")
# Classes that only one base has; the modules that know the bases choose between them.
CLASSES = "ByteLevelTokenizer|HalvingCodec"


@pytest.mark.parametrize(("folder", "name"), [("published_keys", "2.0"), ("published_keys25", "2.5")])
def test_the_weights_of_a_published_gpt_tell_its_base(shared: Path, folder: str, name: str):
    weights = json.loads((shared / "vectors" / folder / "gpt.json").read_text())
    assert base_of(weights) is BASES[name]
    assert BASES[name].weight_names <= set(weights)


def test_one_of_the_own_weights_is_enough_and_a_file_of_another_model_is_2_0():
    assert base_of(["gpt.ln_f.weight", "spk_emb_proj.weight"]).name == "2.5"
    assert base_of(["encoder.weight"]).name == "2.0"


def test_no_file_compares_bases_outside_the_modules_that_know_them():
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {text}"
        for path in SOURCES
        if path.name not in KNOWING
        for line, text in comparisons(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def comparisons(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and code of each comparison with a base, or with what only one base has.

    That is its name, the kind of its speaker condition, its classes and its weights; also in a table with one
    entry per base.
    """
    own = "|".join(re.escape(name) for base in BASES.values() for name in base.weight_names)
    pattern = re.compile(rf"BASE_2_\d|['\"]2\.[05]['\"]|base\.condition|\b({CLASSES})\b|['\"]({own})['\"]")
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.Compare():
                parts = [node]
            case ast.Call(func=ast.Name(id="isinstance")):
                parts = [node]
            case ast.MatchValue():
                parts = [node.value]
            case ast.Subscript():
                parts = [node.slice]
            case ast.Dict():
                parts = list(node.keys)
        code = " ".join(ast.unparse(part) for part in parts if part is not None)
        if pattern.search(code):
            yield getattr(node, "lineno", 0), code


def test_one_process_needs_no_launcher():
    assert (ALONE.prefix, ALONE.environment, ALONE.num_processes) == ([], {}, 1)
    assert Launch(gpus="2").prefix == []  # another card is no reason for one


def test_torchrun_accepts_the_arguments_of_several_processes():
    run = pytest.importorskip("torch.distributed.run")
    parser = run.get_args_parser()
    program = ["trainers/train_gpt_v2.py", "--epochs=3", "--amp"]
    here = parser.parse_args([*Launch(processes=2).prefix[2:], *program])
    assert (here.standalone, here.nproc_per_node, here.training_script) == (True, "2", program[0])
    assert here.training_script_args == program[1:]
    launch = Launch(processes=8, nodes=2, node_rank=1, endpoint="gpu-1.local:29400")
    there = parser.parse_args([*launch.prefix[2:], *program])
    assert (there.standalone, there.nnodes, there.nproc_per_node, there.node_rank) == (False, "2", "8", 1)
    assert (there.rdzv_backend, there.rdzv_endpoint) == ("static", "gpu-1.local:29400")
    assert here.shutdown_timeout == there.shutdown_timeout == SHUTDOWN_S


def test_the_stages_of_a_stop_end_before_torchrun_kills():
    assert SAVE_S + KILL_S < SHUTDOWN_S


def test_gpus_are_numbers_as_nvidia_smi_counts_them():
    launch = Launch(processes=2, gpus=" 3 , 0 ")
    assert launch.gpu_numbers == (3, 0)
    assert launch.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3,0"}
    # as a YAML file has them
    assert Launch(**{"gpus": [3, 0]}).gpus == "3,0"
    assert Launch(**{"gpus": 2}).gpus == "2"


def test_each_other_machine_has_its_own_command():
    launch = Launch(processes=4, nodes=3, endpoint="[fd00::1]")
    others = list(launch.on_other_nodes())
    assert [other.node_rank for other in others] == [1, 2]
    assert {other.endpoint for other in others} == {launch.endpoint}
    assert launch.num_processes == 12
    assert "--rdzv-endpoint=[fd00::1]:29500" in others[1].prefix


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"processes": 0}, "--processes: Input should be greater than or equal to 1"),
        ({"gpus": "0;reboot"}, "--gpus '0;reboot': "),
        ({"gpus": "-1"}, "--gpus '-1': "),
        ({"gpus": "\u0663"}, "--gpus "),  # a digit, but none of CUDA's
        ({"gpus": "0,1,0"}, "duplicate number"),
        ({"gpus": "0,1", "processes": 3}, "--processes 3: "),
        ({"nodes": 2}, "--nodes 2: pass --endpoint"),
        ({"nodes": 2, "node_rank": 2, "endpoint": "a"}, "2 machines are numbered 0 to 1"),
        ({"endpoint": "$(reboot)"}, "name or address of machine 0"),
        ({"endpoint": "-x"}, "name or address of machine 0"),
        ({"endpoint": "a:65536"}, "name or address of machine 0"),
        ({"threads": 2}, "--threads: Extra inputs are not permitted"),
    ],
)
def test_an_impossible_launch_is_refused_with_the_reason(fields: dict[str, object], problem: str):
    with pytest.raises(UserError) as refused:
        launch_of(fields)
    assert problem in str(refused.value)
    assert str(refused.value).startswith("launch: ")


def test_blanks_around_commas_are_accepted_and_too_many_are_refused():
    assert Launch(processes=2, gpus=" 1 ,  0 ").gpus == "1,0"
    with pytest.raises(UserError, match="characters; pass numbers of GPUs"):
        Launch(gpus="0" + " " * 2_000_000 + "0")


OTHER_FILES = ["--val-manifest=v", "--tokenizer=t"]


@pytest.mark.parametrize(
    ("typed", "file"),
    [
        ("a/b.jsonl", PairsFile(Path("a/b.jsonl"))),
        ("a/b.jsonl@0.15", PairsFile(Path("a/b.jsonl"), share=0.15)),
        ("b.jsonl@en", PairsFile(Path("b.jsonl"), "en")),
        ("b.jsonl@eng@3", PairsFile(Path("b.jsonl"), "en", 3)),
        ("me@home/b.jsonl", PairsFile(Path("me@home/b.jsonl"))),
        ("b@2024.jsonl@.5", PairsFile(Path("b@2024.jsonl"), share=0.5)),
    ],
)
def test_a_file_has_an_optional_language_and_share(typed: str, file: PairsFile):
    assert PairsFile.parse(typed) == file
    assert PairsFile.parse(str(file)) == file


@pytest.mark.parametrize(
    "argv",
    [
        ["--train-manifest=a@0.85", "--train-manifest=b"],
        ["--train-manifest=a@0"],
        ["--train-manifest=a@xqq"],
        ["--train-manifest=a", "--val-manifest=b@0.5"],
    ],
)
def test_a_share_of_some_files_only_and_an_unknown_language_are_refused(argv: list[str]):
    with pytest.raises(UserError, match="manifest"):
        parse(Train, [*OTHER_FILES, *argv])


def test_the_command_line_has_the_files_as_typed():
    argv = ["--train-manifest=new.jsonl@0.85", "--train-manifest=old.jsonl@en@0.15", "--val-manifest=v@en"]
    command = parse(Train, [*argv, "--tokenizer=t"])
    assert [file.share for file in command.train_files] == [0.85, 0.15]
    assert to_argv(command)[:3] == argv
