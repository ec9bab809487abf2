"""Tests of indextts/runs/restore.py and restore_rows.py: the restore plan, its rows and its log lines."""

import re
from dataclasses import asdict

import pytest

from indextts.commands.terminal import continued
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.restore import plan_restore
from indextts.runs.restore_facts import REQUIRED_KEYS, CheckpointFacts, RestorePlan, RunFacts
from indextts.runs.restore_rows import RestoreRow, log_lines, plan_text, restore_rows
from indextts.runs.schedule import Schedule
from indextts.text.vocabulary import Vocabulary, move_rows
from tests.restore_inputs import (
    BASE,
    FLAGS,
    PIECES,
    STEP,
    STORED,
    checkpoint,
    foreign,
    identity,
    meta,
    run,
    shapes,
    vocabulary,
)
from tests.tiny_gpt import TINY


def planned(*argv: str, **changes: object) -> RestorePlan:
    return plan_restore(checkpoint(), run(argv=argv, **changes))


def named(plan: RestorePlan) -> dict[str, tuple[str, str, str]]:
    """Return what differs from the checkpoint: the value before, the value now, and which one is used."""
    found = {}
    for row in restore_rows(plan):
        before, now, default = (str(row.text.values.get(name)) for name in ("before", "now", "default"))
        if row.text.id == "restore.changed_value":
            found[str(row.name)] = (before, now, "now")
        elif row.text.id.startswith("restore.held"):
            found[str(row.name)] = (before, default, "checkpoint")
    return found


def notes(plan: RestorePlan) -> list[str]:
    """Return what else is unusual."""
    return [
        str(row)
        for row in restore_rows(plan)
        if row.kind in ("changed", "unknown") and row.text.id != "restore.changed_value"
    ]


def row_of(plan: RestorePlan, part: str) -> RestoreRow:
    [found] = [row for row in restore_rows(plan) if row.name.id == f"restore.{part}"]
    return found


def log(plan: RestorePlan) -> str:
    return "\n".join(log_lines(plan))


# ---- the vocabulary


@pytest.mark.failure(7)
def test_the_same_tokenizer_restores_everything_despite_the_spare_row():
    facts, now = checkpoint(), run(argv=tuple(FLAGS))
    assert facts.text_rows == now.vocabulary.size + 1
    plan = plan_restore(facts, now)
    assert plan.continues
    assert plan.keeps_position
    assert plan.row_of is None
    assert plan.schedule == STORED
    assert {row.kind for row in restore_rows(plan)} == {"continues"}
    assert (named(plan), notes(plan)) == ({}, [])


@pytest.mark.parametrize(
    "appended",
    [("ሰ", "ላ", "ም"), ("ሰ",), ("ላ", "ሰ"), ("ሰ", "ም")],
    ids=["more", "fewer", "reordered", "of the same number"],
)
@pytest.mark.failure(8)
def test_other_pieces_restart_with_rows_moved_by_piece(appended: tuple[str, ...]):
    plan = plan_restore(checkpoint(), run(vocabulary(*appended)))
    assert not plan.continues
    assert not plan.keeps_position
    old_row = {"ሰ": 4, "ላ": 5}
    assert plan.row_of == (0, 1, 2, 3, *(old_row.get(piece, -1) for piece in appended), 6)


@pytest.mark.failure(11)
def test_starting_over_keeps_the_settings_of_the_run_and_takes_a_schedule_from_step_0():
    now = run(vocabulary("ሰ"), argv=("--batch-size=5",))
    plan = plan_restore(checkpoint(), now)
    assert plan.command == continued(now.command, meta().settings)
    assert plan.schedule == Schedule(5e-5, 400, 4000)
    assert named(plan) == {
        "batch_size": ("4", "5", "now"),
        "learning_rate": ("5e-05", "2e-05", "checkpoint"),
        "warmup_steps": ("400", "1000", "checkpoint"),
        "seed": ("7", "1234", "checkpoint"),
    }


@pytest.mark.failure(9)
def test_the_same_pieces_with_other_scores_continue_with_a_warning():
    plan = plan_restore(checkpoint(), run(vocabulary("ሰ", "ላ", scores="new"), argv=tuple(FLAGS)))
    assert plan.continues
    assert plan.row_of is None
    assert "[Warn] Tokenizer: same pieces with other scores" in log(plan)


# ---- what is refused, with status 3


def refusal(facts: CheckpointFacts, now: RunFacts) -> str:
    with pytest.raises(UserError) as caught:
        plan_restore(facts, now)
    assert caught.value.exit_status == RESUME_REFUSED
    return str(caught.value)


@pytest.mark.parametrize("key", ["model", "optimizer", "epoch", "step"])
@pytest.mark.failure(12)
def test_a_missing_key_is_named(key: str):
    facts = foreign(keys=frozenset(REQUIRED_KEYS) - {key})
    assert f"Checkpoint missing required keys: ['{key}']" in refusal(facts, run())


def test_a_config_of_other_sizes_is_refused_with_both():
    message = refusal(checkpoint(), run(gpt_config={**asdict(TINY), "layers": 5}))
    assert re.search(rf"layers is {TINY.layers}\D+5\D", message)
    module = {**asdict(TINY.condition_module), "num_blocks": 9}
    assert "condition_module is" in refusal(
        checkpoint(), run(gpt_config={**asdict(TINY), "condition_module": module})
    )


@pytest.mark.failure(61)
def test_another_base_file_is_refused_but_the_same_bytes_at_another_path_are_not():
    assert "--base-checkpoint" in refusal(checkpoint(), run(base=identity("gpt.pth", "other")))
    assert "now 99 bytes" in refusal(checkpoint(), run(base=identity("gpt.pth", "", num_bytes=99)))
    assert planned(base=identity("/elsewhere/base.pth", "digest of gpt.pth")).continues


@pytest.mark.parametrize(
    ("pieces", "named_id"),
    [((*BASE[:3], "▁B", "ሰ", "ላ"), "id 3 is '▁B' and was '▁A'"), (BASE[:3], "id 3 is 'absent' and was '▁A'")],
)
def test_a_tokenizer_that_does_not_extend_the_runs_base_is_refused(pieces: tuple[str, ...], named_id: str):
    assert named_id in refusal(checkpoint(), run(Vocabulary(pieces, "other")))


# ---- the matched set


@pytest.mark.parametrize(
    "trained", [None, {"gpt.ln_f.weight": (8,)}, {**shapes(PIECES), "gpt.ln_f.weight": (9,)}]
)
@pytest.mark.failure(12)
def test_a_misfit_optimizer_restarts_together_with_everything_else(trained: dict | None):
    plan = plan_restore(checkpoint(trained_shapes=trained), run())
    assert not plan.continues
    assert not plan.takes_scaler
    assert plan.row_of is None
    assert log(plan).endswith("RESTART from step 0 (was at step 1200)")
    assert row_of(plan, "optimizer").text.id == "restore.misfit"
    assert plan.schedule.learning_rate(1) == 5e-5 / 400


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("arithmetic", ["float16", "bfloat16"])
def test_a_scaler_is_restored_with_the_optimizer_if_both_are_float16(
    fits: bool, in_file: bool, arithmetic: str
):
    facts = foreign(has_scaler=in_file, trained_shapes=shapes(PIECES) if fits else None)
    plan = plan_restore(facts, run(environment={"arithmetic": arithmetic}))
    assert plan.takes_scaler == (fits and in_file and arithmetic == "float16")
    is_said = any("AMP enabled but no scaler state" in note for note in notes(plan))
    assert is_said == (fits and not in_file and arithmetic == "float16")


# ---- which settings hold, and what else differs

HELD = {
    "learning_rate": ("5e-05", "2e-05", "checkpoint"),
    "warmup_steps": ("400", "1000", "checkpoint"),
    "seed": ("7", "1234", "checkpoint"),
}
TRAIN, VAL = identity("t.jsonl"), identity("v.jsonl")
MOVED = (identity("/data/t.jsonl", TRAIN.digest), identity("/data/v.jsonl", VAL.digest))
NORMALIZER = {"version": 2, "homophones": "off", "thousand": "ሺህ"}


def on(num_processes: int) -> dict[str, object]:
    return {**meta().environment, "processes": num_processes}


@pytest.mark.parametrize(
    ("argv", "changes", "differences"),
    [
        (["--batch-size=4"], {}, HELD),
        ([*FLAGS, "--seed=8"], {}, {"seed": ("7", "8", "now")}),
        # other content in the same order, and the same content elsewhere
        (
            FLAGS,
            {"manifests": (identity("t.jsonl", "other"), VAL)},
            {"train_manifest": ("t.jsonl", "t.jsonl", "now")},
        ),
        (FLAGS, {"manifests": MOVED}, {}),
        (FLAGS, {"gpt_config": {**asdict(TINY), "dropout": 0.0}}, {"config dropout": ("0.1", "0", "now")}),
        (FLAGS, {"gpt_config": {**asdict(TINY), "number_text_tokens": 12000}}, {}),
        (
            FLAGS,
            {"environment": {**meta().environment, "device": "NVIDIA H200", "arithmetic": "bfloat16"}},
            {"Device": ("cpu", "NVIDIA H200", "now"), "Arithmetic": ("float32", "bfloat16", "now")},
        ),
        (FLAGS, {"environment": on(4)}, {"Processes": ("1", "4", "now")}),
        (FLAGS, {"normalizer": NORMALIZER}, {}),  # the checkpoint records none
    ],
)
@pytest.mark.failure(13, 60, 72)
def test_typed_settings_win_others_stay_and_every_difference_is_named(
    argv: list[str], changes: dict, differences: dict
):
    plan = planned(*argv, **changes)
    assert named(plan) == differences
    assert plan.continues
    assert plan.keeps_position == ("seed" not in differences or differences is HELD)
    for name, (before, now, used) in differences.items():
        line = next(line for line in log_lines(plan) if line.startswith(f"[Warn] {name}: {before} "))
        assert now in line
        assert ("stays" in line) == (used == "checkpoint")
    assert ("[Warn] Data order: the epoch restarts" in log(plan)) != plan.keeps_position


def test_changed_normaliser_options_are_named_and_new_ones_are_not():
    now = {**NORMALIZER, "version": 3, "homophones": "strict", "dialect": "any"}
    plan = plan_restore(checkpoint(meta=meta(normalizer=NORMALIZER)), run(argv=FLAGS, normalizer=now))
    assert named(plan) == {
        "normalizer version": ("2", "3", "now"),
        "normalizer homophones": ("off", "strict", "now"),
    }


@pytest.mark.parametrize(
    ("processes_before", "argv", "processes", "total_steps"),
    [
        (1, ["--batch-size=8"], 1, STEP + 150 + 7 * 250),
        # 1,200 of the third epoch are left: 75 steps of 16 samples, and 7 epochs of 125
        (1, [], 4, STEP + 75 + 7 * 125),
        (1, ["--batch-size=1"], 4, 5000),
        (4, [], 4, 5000),
        (4, [], 1, STEP + 300 + 7 * 500),
    ],
)
@pytest.mark.failure(13)
def test_another_batch_size_or_world_size_recounts_the_remaining_steps(
    processes_before: int, argv: list[str], processes: int, total_steps: int
):
    facts = checkpoint(meta=meta(environment=on(processes_before)))
    plan = plan_restore(facts, run(argv=tuple(argv), environment=on(processes)))
    assert plan.keeps_position
    assert plan.schedule.total_steps == total_steps
    assert plan.schedule.learning_rate(STEP) == pytest.approx(STORED.learning_rate(STEP))
    assert ("Processes" in named(plan)) == (processes != processes_before)


def test_only_languages_that_the_checkpoint_has_not_learned_get_a_copied_row():
    new = {"am": 75, "so": 80}
    for learned, init, added in (
        (frozenset({"am"}), "ar", {"so": 80}),
        (frozenset({"am", "so"}), "ar", {}),
        (frozenset({"am"}), "own", {}),
        (None, "ar", {}),  # an older checkpoint does not name them
    ):
        facts = checkpoint(languages=learned)
        plan = plan_restore(facts, run(argv=(f"--language-row-init={init}",), new_languages=new))
        assert plan.added_languages == added
        assert ("Language rows: so" in log(plan)) == bool(added)


# ---- the schedule

FINISHED = meta(step=5000, epoch=10, samples_done=0, batch_idx=0)


def test_a_finished_run_is_extended_by_typing_more_epochs():
    facts = checkpoint(meta=FINISHED, step=5000, epoch=10)
    assert row_of(plan_restore(facts, run()), "step").kind == "finished"
    plan = plan_restore(facts, run(argv=("--epochs=12",)))
    assert "5,001 to 6,000" in str(row_of(plan, "step"))
    assert plan.schedule.learning_rate(5000) == pytest.approx(STORED.learning_rate(5000))
    assert "--rewarm" not in log(plan_restore(facts, run(argv=("--epochs=20",))))


@pytest.mark.failure(70)
def test_a_short_extension_names_the_low_rate_to_come_and_how_to_raise_it():
    facts = checkpoint(meta=FINISHED, step=5000, epoch=10)
    plan = plan_restore(facts, run(argv=("--epochs=11",)))
    step, rate = plan.schedule.highest_after(5000)
    assert rate < 0.1 * 5e-5
    for number in (f"{rate:.1e} at step {step:,}", f"{100 * rate / 5e-5:.2g} % of 5e-05", "--rewarm"):
        assert number in str(row_of(plan, "rate"))


@pytest.mark.failure(70)
def test_a_rewarm_rises_to_its_peak_and_the_same_value_changes_nothing_later():
    facts = checkpoint(meta=FINISHED, step=5000, epoch=10)
    argv = ("--epochs=12", "--rewarm=2e-5")
    plan = plan_restore(facts, run(argv=argv))
    assert plan.schedule == Schedule(2e-5, 400, 6000, start_step=5000, start_rate=STORED.learning_rate(5000))
    assert plan.schedule.learning_rate(5400) == 2e-5
    assert "2.0e-05 at step 5,400" in str(row_of(plan, "rate"))
    later = {
        "meta": meta(
            step=5500,
            epoch=11,
            samples_done=0,
            settings=plan.command.model_dump(mode="json"),
            schedule=asdict(plan.schedule),
        ),
        "step": 5500,
        "epoch": 11,
    }
    for again in ((), argv, ("--rewarm=2e-5",)):
        assert plan_restore(checkpoint(**later), run(argv=again)).schedule == plan.schedule
    longer = plan_restore(checkpoint(**later), run(argv=("--epochs=13",))).schedule
    assert (longer.peak, longer.start_step, longer.total_steps) == (2e-5, 5000, 6500)
    off = plan_restore(checkpoint(**later), run(argv=("--rewarm=0",))).schedule
    assert (off.peak, off.start_step) == (5e-5, 0)
    assert off.learning_rate(5500) == pytest.approx(plan.schedule.learning_rate(5500))
    higher = plan_restore(checkpoint(**later), run(argv=("--rewarm=3e-5",))).schedule
    assert (higher.peak, higher.start_step) == (3e-5, 5500)


def test_a_rewarm_is_ignored_with_a_note_if_the_run_restarts():
    rewarmed = meta(settings={**meta().settings, "rewarm": 2e-5})
    for argv, num_notes in (((), 0), (("--rewarm=3e-5",), 1)):
        plan = plan_restore(checkpoint(meta=rewarmed), run(vocabulary("ሰ"), argv=argv))
        assert plan.schedule == Schedule(5e-5, 400, 5000)
        assert plan.command.rewarm == 0
        assert sum(row.text.id == "restore.rewarm_ignored" for row in restore_rows(plan)) == num_notes


def test_a_rewarm_of_a_checkpoint_of_another_program_starts_at_its_rate():
    plan = plan_restore(foreign(learning_rate=3e-7), run(argv=(*FLAGS, "--rewarm=1e-5")))
    assert plan.schedule.learning_rate(STEP) == 3e-7
    assert plan.schedule.learning_rate(STEP + 400) == 1e-5


@pytest.mark.parametrize(
    ("facts", "pieces", "argv", "is_warned"),
    [
        (checkpoint(), PIECES, (), False),
        (checkpoint(), PIECES, ("--warmup-steps=5001",), True),
        (checkpoint(), vocabulary("ሰ"), ("--warmup-steps=5001",), True),
        (checkpoint(), vocabulary("ሰ"), ("--warmup-steps=5000",), False),
        (checkpoint(), PIECES, ("--rewarm=2e-5", "--warmup-steps=3801"), True),
        (foreign(), PIECES, ("--epochs=4", "--warmup-steps=9999"), True),
    ],
)
def test_a_warm_up_longer_than_the_run_is_a_note(facts, pieces, argv: tuple[str, ...], is_warned: bool):
    plan = plan_restore(facts, run(pieces, argv=("--batch-size=4", *argv)))
    assert any("never reaches its peak" in note for note in notes(plan)) == is_warned


def test_a_run_that_max_steps_ended_names_the_flag_that_extends_it():
    settings = {**meta().settings, "max_steps": STEP}
    stopped = checkpoint(meta=meta(settings=settings, schedule=asdict(Schedule(5e-5, 400, STEP))))
    assert "step 1,200 of at most 1,200 is done" in str(row_of(plan_restore(stopped, run()), "step"))
    plan = plan_restore(stopped, run(argv=("--max-steps=0",)))
    assert plan.schedule.total_steps == 5000
    assert row_of(plan, "step").kind == "continues"


def test_skipped_steps_do_not_change_the_schedule_of_the_same_settings():
    """A skipped batch counts its samples but no step, so the remaining samples give one step less."""
    skipped = checkpoint(meta=meta(step=STEP - 1), step=STEP - 1)
    assert plan_restore(skipped, run()).schedule == STORED


def test_a_schedule_on_a_bridge_is_restored_unchanged():
    bent = Schedule(1e-5, 400, 5000, anchor_step=1000, anchor_rate=4.8e-5, bridge_steps=400)
    settings = {**meta().settings, "learning_rate": 1e-5}
    plan = plan_restore(checkpoint(meta=meta(settings=settings, schedule=asdict(bent))), run())
    assert plan.schedule == bent
    assert row_of(plan, "rate").kind == "continues"


@pytest.mark.parametrize(
    ("before", "flags", "said"),
    [
        ({}, ["--train-text-rows=used"], "train_text_rows was new and is used"),
        ({"train_text_rows": "all"}, ["--train-text-rows=new"], "train_text_rows was all and is new"),
        ({"lora_rank": 4}, ["--lora-code-head"], "the code head was not trained"),
        ({"lora_rank": 4, "lora_code_head": True, "train_text_rows": "used"}, [], ""),
        (
            {"lora_rank": 4, "train_text_rows": "used"},
            ["--train-text-rows=new"],
            "with --train-text-rows used",
        ),
        ({"lora_rank": 4, "lora_code_head": True}, ["--no-lora-code-head"], "with --lora-code-head"),
    ],
)
def test_other_trained_weights_restart_the_run_and_those_of_lora_are_never_lost(
    before: dict[str, object], flags: list[str], said: str
):
    facts = checkpoint(meta=meta(settings={**meta().settings, **before}))
    if said.startswith("with "):
        assert said in refusal(facts, run(argv=tuple(flags)))
        return
    plan = plan_restore(facts, run(argv=tuple(flags)))
    assert plan.misfit == said
    assert plan.continues == (not said)


# ---- checkpoints of other programs


def test_a_foreign_checkpoint_keeps_step_and_epoch_and_restarts_the_epoch():
    plan = plan_restore(foreign(), run(argv=tuple(FLAGS)))
    assert plan.continues
    assert not plan.keeps_position
    assert plan.schedule == Schedule(5e-5, 400, STEP + 8 * 500)
    assert "[Warn] Data order: the epoch restarts" in log(plan)
    assert "rebuilt from step 1,200" in log(plan)


@pytest.mark.failure(66)
def test_an_accepted_loss_drops_rows_of_unknown_pieces_and_keeps_those_of_the_base():
    facts, this = foreign(), run(vocabulary("ም"), argv=("--accept-lost-rows",))
    plan = plan_restore(facts, this)
    assert not plan.continues
    assert plan.row_of == (0, 1, 2, 3, -1, 6)
    assert "4 of the base and 0 of 2 learned rows" in log(plan)


def test_a_foreign_checkpoint_that_learned_no_rows_loses_none():
    assert plan_restore(foreign(vocabulary()), run(vocabulary("ም"))).row_of == (0, 1, 2, 3, -1, 4)


@pytest.mark.failure(66)
def test_the_rows_of_a_foreign_checkpoint_move_by_the_pieces_of_its_tokenizer():
    facts, argv = foreign(old_pieces=PIECES), ("--resume-tokenizer=old.model",)
    assert plan_restore(facts, run(argv=argv)).continues
    now = vocabulary("ም", "ላ", "ሰ")
    plan = plan_restore(facts, run(now, argv))
    assert not plan.continues
    assert plan.row_of == move_rows(PIECES, now) == (0, 1, 2, 3, -1, 5, 4, 6)
    assert "4 of the base and 2 of 2 learned rows moved by piece, 1 new" in log(plan)
    assert "old.model" in log(plan)


# ---- the plan as text


def test_the_text_of_a_plan_is_its_checkpoint_then_the_rows():
    lines = plan_text(planned(*FLAGS[:-1], "--learning-rate=1e-5", "--amp")).splitlines()
    starts = [
        "latest.pth: step 1,200, epoch 2: the run continues",
        "  Model weights: of step 1,200",
        "  Optimizer: ",
        "  Learning rate: 4.6e-05 now",
        "  Step: 1,201 to 5,000, epoch 3 of 10",
        "  Data order: after 800 of 2,000 pairs",
        "  learning_rate: 5e-05 -> 1e-05",
        "  amp: off -> on",
        "  seed: 7 stays",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    restarts = plan_text(plan_restore(checkpoint(), run(vocabulary("ሰ"))))
    assert re.search(r"6 -> 5 pieces.* 0 new\n(.*\n)*.*back to 0, was at step 1,200", restarts)


def test_the_meta_file_alone_gives_the_same_rows_as_the_checkpoint():
    facts, seen = checkpoint(), CheckpointFacts.of_meta("latest.pth", meta())
    for argv in ((), tuple(FLAGS), ("--seed=8",), ("--epochs=20", "--batch-size=5")):
        for pieces in (PIECES, vocabulary("ሰ"), vocabulary("ሰ", "ላ", scores="new")):
            now = run(pieces, argv)
            blind = run(pieces, argv, trained_shapes=None)
            assert restore_rows(plan_restore(seen, blind)) == restore_rows(plan_restore(facts, now))
