"""Tests of indextts/runs/restore.py: what a checkpoint allows, as one plan, and what is said of it."""

from dataclasses import asdict
from pathlib import Path

import pytest

from indextts.commands.terminal import continued, parse
from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.directory import CheckpointMeta, FileIdentity
from indextts.runs.restore import plan_restore
from indextts.runs.restore_facts import REQUIRED_KEYS, CheckpointFacts, RestorePlan, RunFacts
from indextts.runs.restore_text import describe, plan_text
from indextts.runs.schedule import EpochSize, Schedule
from indextts.text.vocabulary import Vocabulary, move_rows
from tests.tiny_gpt import TINY

BASE = ("<s>", "</s>", "<unk>", "▁A")
REQUIRED = ["--train-manifest=t.jsonl", "--val-manifest=v.jsonl", "--tokenizer=bpe.model"]
# 2,000 samples, 4 of them in a step: 500 steps an epoch, 5,000 in all; 2 epochs and 200 steps are done
FLAGS = ["--learning-rate=5e-5", "--warmup-steps=400", "--epochs=10", "--batch-size=4", "--seed=7"]
STORED = Schedule(5e-5, 400, 5000)
STEP = 1200


def vocabulary(*appended: str, scores: str = "") -> Vocabulary:
    pieces = (*BASE, *appended)
    return Vocabulary(pieces, fingerprint="|".join(pieces) + scores)


PIECES = vocabulary("ሰ", "ላ")


def shapes(vocabulary: Vocabulary) -> dict[str, tuple[int, ...]]:
    """Return the trained parameters of a model for `vocabulary`: new rows, the spare one, and a body."""
    return {"text_embedding.weight": (vocabulary.size + 1 - len(BASE), 8), "gpt.ln_f.weight": (8,)}


def identity(name: str, content: str | None = None, num_bytes: int = 10) -> FileIdentity:
    return FileIdentity(path=name, num_bytes=num_bytes, mtime_ns=1, digest=content or f"digest of {name}")


def meta(pieces: Vocabulary = PIECES, **changes: object) -> CheckpointMeta:
    fields = {
        "step": STEP,
        "epoch": 2,
        "samples_done": 800,
        "batch_idx": 200,
        "serial": 3,
        "part": 1,
        "is_best": True,
        "tokenizer_fingerprint": pieces.fingerprint,
        "tokenizer_size": pieces.size,
        "base_size": len(BASE),
        "gpt_config": asdict(TINY),
        "data_order": "order 7",
        "num_samples": 2000,
        "manifests": [identity("t.jsonl"), identity("v.jsonl")],
        "base": identity("gpt.pth"),
        "settings": parse(Train, [*REQUIRED, *FLAGS]).model_dump(mode="json"),
        "schedule": asdict(STORED),
        "environment": {"torch": "2.13.0", "python": "3.11.7", "device": "cpu", "arithmetic": "float32"},
        "losses": {"text_loss": 3.0, "mel_loss": 4.0},
        "num_bytes": 0,
        "digest": "",
        "pieces": list(pieces.pieces),
    }
    return CheckpointMeta.model_validate_json(CheckpointMeta(**{**fields, **changes}).model_dump_json())


def checkpoint(pieces: Vocabulary = PIECES, **changes: object) -> CheckpointFacts:
    recorded = meta(pieces)
    facts = {
        "name": "latest.pth",
        "keys": frozenset({*REQUIRED_KEYS, "scheduler", "tokenizer"}),
        "text_rows": pieces.size + 1,
        "step": recorded.step,
        "epoch": recorded.epoch,
        "meta": recorded,
        "trained_shapes": shapes(pieces),
    }
    return CheckpointFacts(**{**facts, **changes})  # type: ignore[arg-type]


def foreign(pieces: Vocabulary = PIECES, **changes: object) -> CheckpointFacts:
    """Return a checkpoint of the predecessor, its moments found by name."""
    return checkpoint(pieces, **{"meta": None, **changes})


def run(pieces: Vocabulary = PIECES, argv: tuple[str, ...] = (), **changes: object) -> RunFacts:
    facts = {
        "vocabulary": pieces,
        "base_size": len(BASE),
        "gpt_config": asdict(TINY),
        "command": parse(Train, [*REQUIRED, "--resume=auto", *argv]),
        "size": EpochSize(2000),
        "data_order": lambda seed: f"order {seed}",
        "manifests": (identity("t.jsonl"), identity("v.jsonl")),
        "base": identity("gpt.pth"),
        "environment": meta().environment,
        "trained_shapes": shapes(pieces),
    }
    return RunFacts(**{**facts, **changes})  # type: ignore[arg-type]


def planned(*argv: str, **changes: object) -> RestorePlan:
    return plan_restore(checkpoint(), run(argv=argv, **changes))


def named(plan: RestorePlan) -> dict[str, tuple[str, str, str]]:
    return {d.name: (d.before, d.now, d.holds) for d in plan.differences}


def text(facts: CheckpointFacts, now: RunFacts) -> list[str]:
    return plan_text(plan_restore(facts, now), facts, now).splitlines()


# ---- the vocabulary


def test_the_same_tokenizer_continues_with_everything_although_the_tables_have_one_row_more():
    facts, now = checkpoint(), run(argv=tuple(FLAGS))
    assert facts.text_rows == now.vocabulary.size + 1
    plan = plan_restore(facts, now)
    assert plan.continues
    assert plan.keeps_position
    assert plan.row_of is None
    assert plan.schedule == STORED
    assert (plan.lines, plan.differences, plan.notes, plan.rate_change) == ((), (), (), "")


@pytest.mark.parametrize(
    "appended", [("ሰ", "ላ", "ም"), ("ሰ",), ("ላ", "ሰ")], ids=["more", "fewer", "reordered"]
)
def test_other_pieces_start_over_with_rows_moved_by_piece(appended: tuple[str, ...]):
    plan = plan_restore(checkpoint(), run(vocabulary(*appended)))
    assert not plan.continues
    assert not plan.keeps_position
    old_row = {"ሰ": 4, "ላ": 5}
    assert plan.row_of == (0, 1, 2, 3, *(old_row.get(piece, -1) for piece in appended), 6)


def test_starting_over_says_the_lines_that_users_look_for():
    lines = plan_restore(checkpoint(), run(vocabulary("ሰ"))).lines
    said = "\n".join(lines)
    assert "WARNING: Vocab size mismatch!" in lines
    assert "Checkpoint vocab: 6" in said
    assert "Current tokenizer: 5" in said
    assert "[Info] SKIPPING optimizer, scheduler, AND scaler restore" in lines
    assert "AUTOMATIC FIX: Skipping incompatible optimizer state" in said
    assert "[Info] Using FRESH optimizer with initial LR and warmup" in lines
    assert "[Info] Training will RESTART from step 0 (was at step 1200)" in lines


@pytest.mark.failure(11)
def test_starting_over_takes_the_settings_of_the_command_and_a_schedule_from_step_0():
    now = run(vocabulary("ሰ"), argv=("--batch-size=5",))
    plan = plan_restore(checkpoint(), now)
    assert plan.command == now.command
    assert plan.schedule == Schedule(2e-5, 1000, 4000)
    assert named(plan)["learning_rate"] == ("5e-05", "2e-05", "now")


@pytest.mark.failure(8)
def test_the_same_size_with_other_pieces_is_recognised():
    plan = plan_restore(checkpoint(), run(vocabulary("ሰ", "ም")))
    assert not plan.continues
    assert plan.row_of == (0, 1, 2, 3, 4, -1, 6)
    assert "Vocab size mismatch" not in plan.lines[0]
    assert "other pieces" in plan.lines[0]


@pytest.mark.failure(9)
def test_the_same_pieces_with_other_scores_continue_with_a_warning():
    plan = plan_restore(checkpoint(), run(vocabulary("ሰ", "ላ", scores="new"), argv=tuple(FLAGS)))
    assert plan.continues
    assert plan.row_of is None
    assert "cut differently" in plan.lines[0]


def test_the_spare_row_moves_to_the_new_end():
    assert move_rows(vocabulary(), vocabulary("ሰ")) == (0, 1, 2, 3, -1, 4)


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
    said = refusal(checkpoint(), run(gpt_config={**asdict(TINY), "layers": 5}))
    assert f"layers is {TINY.layers} in the checkpoint and 5 in the config" in said
    module = {**asdict(TINY.condition_module), "num_blocks": 9}
    assert "condition_module is" in refusal(
        checkpoint(), run(gpt_config={**asdict(TINY), "condition_module": module})
    )


def test_the_published_number_of_text_tokens_in_the_config_is_not_compared():
    plan = planned(*FLAGS, gpt_config={**asdict(TINY), "number_text_tokens": 12000})
    assert plan.continues
    assert plan.differences == ()


@pytest.mark.failure(61)
def test_another_base_file_is_refused_and_the_same_bytes_elsewhere_are_not():
    assert "its frozen weights are part of the run" in refusal(
        checkpoint(), run(base=identity("gpt.pth", "other"))
    )
    assert "now 99 bytes" in refusal(checkpoint(), run(base=identity("gpt.pth", "", num_bytes=99)))
    assert planned(base=identity("/elsewhere/base.pth", "digest of gpt.pth")).continues


def test_an_absent_base_file_is_said():
    plan = planned(base=None)
    assert plan.continues
    assert plan.notes == ("Whether checkpoints/gpt.pth is the run's base could not be checked: it is absent",)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ((*BASE[:3], "▁B", "ሰ", "ላ"), "id 3 is '▁B' and was '▁A'"),
        (BASE[:3], "id 3 is 'absent' and was '▁A'"),
    ],
)
def test_a_tokenizer_that_does_not_extend_the_runs_base_is_refused(pieces: tuple[str, ...], said: str):
    assert said in refusal(checkpoint(), run(Vocabulary(pieces, "other")))


# ---- the matched set


@pytest.mark.parametrize(
    "trained", [None, {"gpt.ln_f.weight": (8,)}, {**shapes(PIECES), "gpt.ln_f.weight": (9,)}]
)
@pytest.mark.failure(12)
def test_an_optimizer_that_does_not_fit_is_fresh_together_with_all_else(trained: dict | None):
    plan = plan_restore(checkpoint(trained_shapes=trained), run())
    assert not plan.continues
    assert not plan.takes_scaler
    assert plan.row_of is None
    assert "RESTART from step 0 (was at step 1200)" in plan.lines[-1]
    assert plan.schedule.learning_rate(1) == 2e-5 / 1000


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("arithmetic", ["float16", "bfloat16"])
def test_a_scaler_is_restored_with_the_optimizer_and_where_both_are_float16(
    fits: bool, in_file: bool, arithmetic: str
):
    facts = foreign(has_scaler=in_file, trained_shapes=shapes(PIECES) if fits else None)
    plan = plan_restore(facts, run(environment={"arithmetic": arithmetic}))
    assert plan.takes_scaler == (fits and in_file and arithmetic == "float16")
    is_said = any("AMP enabled but no scaler state" in note for note in plan.notes)
    assert is_said == (fits and not in_file and arithmetic == "float16")


# ---- which settings hold


def test_what_was_not_typed_is_the_runs_and_said():
    plan = planned("--batch-size=4")
    assert plan.command.learning_rate == 5e-5
    assert plan.command.seed == 7
    assert plan.schedule == STORED
    assert plan.keeps_position
    assert named(plan) == {
        "learning_rate": ("5e-05", "2e-05", "checkpoint"),
        "warmup_steps": ("400", "1000", "checkpoint"),
        "seed": ("7", "1234", "checkpoint"),
    }
    assert (
        "[Warn] learning_rate: 5e-05 stays; the run's own, since it was not given now (the default is 2e-05)"
        in plan.lines
    )


@pytest.mark.failure(13)
def test_what_was_typed_wins_and_says_what_it_changes():
    plan = planned(*FLAGS[:-1], "--text-loss-weight=0.4", "--amp", "--seed=8", "--grad-clip=2")
    command = plan.command
    assert (command.text_loss_weight, command.amp, command.seed, command.grad_clip) == (0.4, True, 8, 2.0)
    assert named(plan) == {
        "text_loss_weight": ("0.2", "0.4", "now"),
        "amp": ("off", "on", "now"),
        "seed": ("7", "8", "now"),
        "grad_clip": ("1", "2", "now"),
    }
    assert any("the logged losses stay comparable" in line for line in plan.lines)


@pytest.mark.failure(13)
def test_another_seed_starts_the_epoch_at_its_beginning():
    plan = planned(*FLAGS, "--seed=8")
    assert plan.continues
    assert not plan.keeps_position
    assert (
        "[Warn] The epoch starts at its beginning, since the training data or the seed changed" in plan.lines
    )


@pytest.mark.failure(13)
def test_changed_data_keeps_the_matched_set_but_not_the_position():
    changed = (identity("t.jsonl", "other"), identity("v.jsonl"))
    plan = planned(*FLAGS, manifests=changed, size=EpochSize(2400), data_order=lambda _: "other")
    assert plan.continues
    assert not plan.keeps_position
    assert plan.schedule.total_steps == STEP + 8 * 600
    [difference] = plan.differences
    assert difference.name == "train_manifest"
    assert "2,000 before and 2,400 now" in difference.effect


def test_pairs_that_moved_are_the_same_pairs():
    moved = (identity("/data/t.jsonl", "digest of t.jsonl"), identity("/data/v.jsonl", "digest of v.jsonl"))
    plan = planned(*FLAGS, "--train-manifest=again.jsonl", manifests=moved[:1] * 2 + moved[1:])
    assert "train_manifest" in named(plan)
    assert planned(*FLAGS, manifests=moved).differences == ()


def test_other_validation_pairs_do_not_touch_the_position():
    plan = planned(*FLAGS, manifests=(identity("t.jsonl"), identity("w.jsonl")))
    assert plan.keeps_position
    assert named(plan) == {"val_manifest": ("v.jsonl", "w.jsonl", "now")}


@pytest.mark.failure(60)
def test_another_machine_continues_and_says_that_last_bits_may_differ():
    here = {"torch": "2.14.0", "python": "3.12.1", "device": "NVIDIA H200", "arithmetic": "bfloat16"}
    plan = planned(*FLAGS, environment=here)
    assert plan.continues
    assert plan.keeps_position
    assert set(named(plan)) == {"torch", "device", "arithmetic"}
    assert any("results may differ in the last bits" in line for line in plan.lines)


def test_another_dropout_in_the_config_is_a_difference_and_no_refusal():
    plan = planned(*FLAGS, gpt_config={**asdict(TINY), "dropout": 0.0})
    assert named(plan) == {"config dropout": ("0.1", "0", "now")}


# ---- the schedule


def test_a_typed_learning_rate_is_reached_without_a_jump_and_both_numbers_are_said():
    plan = planned(*FLAGS, "--learning-rate=1e-5")
    assert plan.schedule.learning_rate(STEP) == pytest.approx(STORED.learning_rate(STEP))
    assert plan.schedule.learning_rate(1600) == Schedule(1e-5, 400, 5000).learning_rate(1600)
    assert plan.rate_change == (
        "learning rate at step 1,600: 4.2e-05 -> 8.4e-06, reached without a jump from 4.6e-05 at step 1,200"
    )
    assert f"[Warn] {plan.rate_change}" in plan.lines


def test_a_finished_run_is_extended_by_typing_more_epochs():
    finished = meta(step=5000, epoch=10, samples_done=0, batch_idx=0)
    facts = checkpoint(meta=finished, step=5000, epoch=10)
    assert "Nothing is left to train: 10 of 10 epochs" in "\n".join(plan_restore(facts, run()).notes)
    plan = plan_restore(facts, run(argv=("--epochs=12",)))
    assert not any("Nothing is left" in note for note in plan.notes)
    assert plan.schedule.total_steps == 6000
    assert plan.schedule.learning_rate(5000) == pytest.approx(STORED.learning_rate(5000))
    assert plan.rate_change.endswith("6,000 steps in all instead of 5,000")


def test_a_longer_run_told_in_its_warm_up_keeps_its_rate():
    early = checkpoint(meta=meta(step=200, epoch=0), step=200, epoch=0)
    plan = plan_restore(early, run(argv=("--epochs=20",)))
    assert plan.schedule == Schedule(5e-5, 400, 10_000)
    assert plan.rate_change == (
        "learning rate at step 201: 2.5e-05, as it was; 10,000 steps in all instead of 5,000"
    )


def test_a_run_that_its_max_steps_ended_says_how_it_goes_on():
    settings = {**meta().settings, "max_steps": STEP}
    stopped = checkpoint(meta=meta(settings=settings, schedule=asdict(Schedule(5e-5, 400, STEP))))
    assert "--max-steps is 1200" in "\n".join(plan_restore(stopped, run()).notes)
    plan = plan_restore(stopped, run(argv=("--max-steps=0",)))
    assert plan.schedule.total_steps == 5000
    assert plan.notes == ()


@pytest.mark.failure(13)
def test_another_batch_size_counts_the_steps_to_come_anew():
    plan = planned(*FLAGS, "--batch-size=8")
    assert plan.keeps_position
    assert plan.schedule.total_steps == STEP + 150 + 7 * 250


def test_steps_that_were_skipped_do_not_bend_the_schedule_of_the_same_settings():
    """A poisoned batch counts its samples and no step: seen from here the run looks a step shorter."""
    skipped = checkpoint(meta=meta(step=STEP - 1), step=STEP - 1)
    assert plan_restore(skipped, run()).schedule == STORED


def test_a_schedule_on_a_bridge_is_taken_over_as_it_is():
    bent = Schedule(1e-5, 400, 5000, anchor_step=1000, anchor_rate=4.8e-5, bridge_steps=400)
    settings = {**meta().settings, "learning_rate": 1e-5}
    plan = plan_restore(checkpoint(meta=meta(settings=settings, schedule=asdict(bent))), run())
    assert plan.schedule == bent
    assert plan.rate_change == ""


# ---- files from elsewhere


def test_a_checkpoint_from_elsewhere_is_compared_by_size_and_the_log_says_so():
    plan = plan_restore(foreign(), run(vocabulary("ም", "ን")))
    assert plan.continues
    assert "only sizes could be compared" in plan.lines[0]


def test_a_checkpoint_from_elsewhere_keeps_step_and_epoch_and_starts_the_epoch_again():
    plan = plan_restore(foreign(), run(argv=tuple(FLAGS)))
    assert plan.continues
    assert not plan.keeps_position
    assert plan.schedule == Schedule(5e-5, 400, STEP + 8 * 500)
    assert any("does not say which samples are done" in line for line in plan.lines)
    assert "rebuilt from step 1200" in plan.lines[-1]


def test_a_rate_that_a_foreign_scheduler_recorded_is_where_the_schedule_begins():
    plan = plan_restore(foreign(learning_rate=3e-6), run(argv=tuple(FLAGS)))
    assert plan.schedule.learning_rate(STEP) == pytest.approx(3e-6)
    assert plan.schedule.learning_rate(STEP + 400) > 4e-5


def test_a_missing_scheduler_is_rebuilt_from_the_step_and_the_log_says_so():
    plan = plan_restore(foreign(has_scheduler=False), run())
    assert plan.continues
    assert "No scheduler state in the checkpoint: rebuilt from step 1200" in plan.lines[-1]


def test_a_checkpoint_from_elsewhere_of_another_size_keeps_the_rows_of_the_base_alone():
    plan = plan_restore(foreign(), run(vocabulary("ም")))
    assert not plan.continues
    assert plan.row_of == (0, 1, 2, 3, -1, 6)


def test_why_a_foreign_optimizer_has_no_names_is_said():
    plan = plan_restore(foreign(trained_shapes=None, misfit="it has 4 parameters, not 5"), run())
    assert "The optimizer state does not fit: it has 4 parameters, not 5" in plan.notes


# ---- what people read


def sentence(facts: CheckpointFacts, now: RunFacts) -> str:
    return describe(plan_restore(facts, now), facts, now)


def test_a_plan_is_one_sentence_for_whoever_presses_start():
    facts = checkpoint()
    assert sentence(facts, run()) == "step 1,200, epoch 2: model, optimizer and scheduler continue"
    assert "epoch starts at its beginning" in sentence(facts, run(data_order=lambda _: "other"))
    assert sentence(facts, run(vocabulary("ሰ"))) == (
        "tokenizer changed, 6 -> 5 pieces: weights by piece, 0 rows new; "
        "optimizer, scheduler and scaler fresh; step 0 (was at step 1,200)"
    )
    assert sentence(checkpoint(trained_shapes=None), run()).startswith("the optimizer state does not fit")


def test_the_text_of_a_plan_is_what_happens_then_what_differs_in_columns():
    assert text(checkpoint(), run(argv=(*FLAGS[:-1], "--learning-rate=1e-5", "--amp"))) == [
        "latest.pth: step 1,200, epoch 2: model, optimizer and scheduler continue",
        "to do: steps 1,201 to 5,000",
        "learning rate at step 1,600: 4.2e-05 -> 8.4e-06, reached without a jump from 4.6e-05 at step 1,200",
        "  learning_rate  5e-05 -> 1e-05  the peak of the schedule",
        "  amp            off -> on       the rounding, from the next step on",
        "  seed           7 stays         the run's own, since it was not given now (the default is 1234)",
    ]


def test_a_plan_without_differences_is_two_lines():
    assert len(text(checkpoint(), run(argv=tuple(FLAGS)))) == 2


def test_the_meta_file_alone_gives_the_same_text_as_the_whole_file():
    facts, seen = checkpoint(), CheckpointFacts.of_meta("latest.pth", meta())
    for argv in ((), tuple(FLAGS), ("--seed=8",), ("--epochs=20", "--batch-size=5")):
        for pieces in (PIECES, vocabulary("ሰ"), vocabulary("ሰ", "ላ", scores="new")):
            now = run(pieces, argv)
            blind = run(pieces, argv, data_order=None, trained_shapes=None)
            assert text(seen, blind) == text(facts, now)


def test_changed_pairs_that_were_only_counted_are_said_to_be_so():
    changed = (identity("t.jsonl", "other"), identity("v.jsonl"))
    lines = text(
        CheckpointFacts.of_meta("latest.pth", meta()),
        run(data_order=None, trained_shapes=None, manifests=changed, size=EpochSize(2400)),
    )
    assert lines[1] == "to do: steps 1,201 to about 6,000"
    assert any("counted and not read" in line for line in lines)


def test_the_plans_command_is_a_whole_command():
    now = run(argv=("--epochs=20",))
    plan = plan_restore(checkpoint(), now)
    assert plan.command == continued(now.command, meta().settings)
    assert plan.command.output_dir == Path("trained_ckpts")
    assert plan.command.epochs == 20


def test_other_options_of_the_normaliser_are_a_difference_and_what_was_not_recorded_is_none():
    before = {"version": 2, "homophones": "off", "thousand": "ሺህ"}
    now = {"version": 3, "homophones": "strict", "thousand": "ሺህ", "dialect": "any"}
    facts = checkpoint(meta=meta(normalizer=before))
    plan = plan_restore(facts, run(argv=FLAGS, normalizer=now))
    assert plan.continues
    assert named(plan) == {
        "normalizer version": ("2", "3", "now"),
        "normalizer homophones": ("off", "strict", "now"),
    }
    assert all("texts are read otherwise" in difference.effect for difference in plan.differences)
    assert plan_restore(checkpoint(), run(argv=FLAGS, normalizer=now)).differences == ()


# ---- several processes


def on(num_processes: int) -> dict[str, object]:
    return {**meta().environment, "processes": num_processes}


def test_more_processes_are_said_and_count_the_steps_to_come_anew():
    plan = planned(environment=on(4))
    assert named(plan)["processes"] == ("1", "4", "now")
    # 1,200 of the third epoch are left: 75 steps of 16 samples, and 7 epochs of 125
    assert plan.schedule.total_steps == STEP + 75 + 7 * 125
    assert plan.schedule.learning_rate(STEP) == STORED.learning_rate(STEP)


def test_more_processes_with_a_smaller_batch_each_are_the_same_run():
    plan = planned("--batch-size=1", environment=on(4))
    assert plan.schedule == STORED
    assert named(plan)["processes"] == ("1", "4", "now")
    assert named(plan)["batch_size"] == ("4", "1", "now")


def test_the_number_of_processes_is_compared_with_the_checkpoints():
    facts = checkpoint(meta=meta(environment=on(4)))
    assert plan_restore(facts, run(environment=on(4))).schedule == STORED
    assert "processes" not in named(plan_restore(facts, run(environment=on(4))))
    back = plan_restore(facts, run(environment=on(1)))
    assert named(back)["processes"] == ("4", "1", "now")
    assert back.schedule.total_steps == STEP + 300 + 7 * 500


def test_a_run_that_starts_over_counts_the_batches_of_all_processes():
    plan = plan_restore(checkpoint(), run(vocabulary("ሰ"), argv=tuple(FLAGS), environment=on(4)))
    assert not plan.continues
    assert plan.schedule.total_steps == 10 * 125
