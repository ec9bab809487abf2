"""Tests of indextts/restore.py: what a checkpoint allows, as one plan."""

import pytest

from indextts.errors import UserError
from indextts.restore import (
    CheckpointFacts,
    RunFacts,
    Vocabulary,
    describe,
    move_rows,
    plan_restore,
)

ALL_KEYS = frozenset({"model", "optimizer", "scheduler", "epoch", "step", "tokenizer"})
BASE = ("<s>", "</s>", "<unk>", "▁A")


def vocabulary(*appended: str, scores: str = "") -> Vocabulary:
    pieces = (*BASE, *appended)
    return Vocabulary(pieces, fingerprint="|".join(pieces) + scores)


def shapes(vocabulary: Vocabulary) -> dict[str, tuple[int, ...]]:
    """Return the trained parameters of a model for `vocabulary`: new rows, the spare one, and a body."""
    return {"text_embedding.weight": (vocabulary.size + 1 - len(BASE), 8), "gpt.ln_f.weight": (8,)}


def checkpoint(pieces: Vocabulary, **changes: object) -> CheckpointFacts:
    facts = {
        "keys": ALL_KEYS,
        "text_rows": pieces.size + 1,
        "vocabulary": pieces,
        "step": 700,
        "epoch": 2,
        "trained_shapes": shapes(pieces),
        "data_order": "order",
    }
    return CheckpointFacts(**{**facts, **changes})  # type: ignore[arg-type]


def run(pieces: Vocabulary, data_order: str = "order") -> RunFacts:
    return RunFacts(pieces, len(BASE), shapes(pieces), data_order)


def test_the_same_tokenizer_continues_with_everything_although_the_tables_have_one_row_more():
    pieces = vocabulary("ሰ", "ላ")
    facts = checkpoint(pieces)
    assert facts.text_rows == pieces.size + 1
    plan = plan_restore(facts, run(pieces))
    assert plan.continues
    assert plan.keeps_position
    assert plan.row_of is None
    assert plan.lines == ()


@pytest.mark.parametrize(
    "appended", [("ሰ", "ላ", "ም"), ("ሰ",), ("ላ", "ሰ")], ids=["more", "fewer", "reordered"]
)
def test_other_pieces_start_over_with_rows_moved_by_piece(appended: tuple[str, ...]):
    plan = plan_restore(checkpoint(vocabulary("ሰ", "ላ")), run(vocabulary(*appended)))
    assert not plan.continues
    assert not plan.keeps_position
    old_row = {"ሰ": 4, "ላ": 5}
    assert plan.row_of == (0, 1, 2, 3, *(old_row.get(piece, -1) for piece in appended), 6)


def test_starting_over_says_the_lines_that_users_look_for():
    lines = plan_restore(checkpoint(vocabulary("ሰ", "ላ")), run(vocabulary("ሰ"))).lines
    text = "\n".join(lines)
    assert "WARNING: Vocab size mismatch!" in lines
    assert "Checkpoint vocab: 6" in text
    assert "Current tokenizer: 5" in text
    assert "[Info] SKIPPING optimizer, scheduler, AND scaler restore" in lines
    assert "AUTOMATIC FIX: Skipping incompatible optimizer state" in text
    assert "[Info] Using FRESH optimizer with initial LR and warmup" in lines
    assert "[Info] Training will RESTART from step 0 (was at step 700)" in lines


def test_the_same_size_with_other_pieces_is_recognised():
    plan = plan_restore(checkpoint(vocabulary("ሰ", "ላ")), run(vocabulary("ሰ", "ም")))
    assert not plan.continues
    assert plan.row_of == (0, 1, 2, 3, 4, -1, 6)
    assert "Vocab size mismatch" not in plan.lines[0]
    assert "other pieces" in plan.lines[0]


def test_the_same_pieces_with_other_scores_continue_with_a_warning():
    plan = plan_restore(checkpoint(vocabulary("ሰ", scores="old")), run(vocabulary("ሰ", scores="new")))
    assert plan.continues
    assert plan.row_of is None
    assert "cut differently" in plan.lines[0]


def test_a_checkpoint_from_elsewhere_is_compared_by_size_and_the_log_says_so():
    plan = plan_restore(checkpoint(vocabulary("ሰ", "ላ"), vocabulary=None), run(vocabulary("ም", "ን")))
    assert plan.continues
    assert "only sizes could be compared" in plan.lines[0]


def test_a_checkpoint_from_elsewhere_of_another_size_keeps_the_rows_of_the_base_alone():
    facts = checkpoint(vocabulary("ሰ", "ላ"), vocabulary=None)
    plan = plan_restore(facts, run(vocabulary("ም")))
    assert not plan.continues
    assert plan.row_of == (0, 1, 2, 3, -1, 6)


@pytest.mark.parametrize("key", ["model", "optimizer", "epoch", "step"])
def test_a_missing_key_is_named(key: str):
    facts = checkpoint(vocabulary("ሰ"), keys=ALL_KEYS - {key})
    with pytest.raises(UserError, match=rf"Checkpoint missing required keys: \['{key}'\]"):
        plan_restore(facts, run(vocabulary("ሰ")))


def test_a_missing_scheduler_is_rebuilt_from_the_step_and_the_log_says_so():
    plan = plan_restore(checkpoint(vocabulary("ሰ"), keys=ALL_KEYS - {"scheduler"}), run(vocabulary("ሰ")))
    assert plan.continues
    assert "rebuilt from step 700" in plan.lines[0]


@pytest.mark.parametrize(
    "trained", [None, {"gpt.ln_f.weight": (8,)}, {**shapes(vocabulary("ሰ")), "gpt.ln_f.weight": (9,)}]
)
def test_an_optimizer_that_does_not_fit_is_fresh_together_with_all_else(trained: dict | None):
    plan = plan_restore(checkpoint(vocabulary("ሰ"), trained_shapes=trained), run(vocabulary("ሰ")))
    assert not plan.continues
    assert plan.row_of is None
    assert "RESTART from step 0 (was at step 700)" in plan.lines[-1]


def test_changed_data_keeps_the_matched_set_but_not_the_position():
    plan = plan_restore(checkpoint(vocabulary("ሰ")), run(vocabulary("ሰ"), data_order="other"))
    assert plan.continues
    assert not plan.keeps_position
    assert "epoch starts at its beginning" in plan.lines[-1]


def test_the_spare_row_moves_to_the_new_end():
    assert move_rows(vocabulary(), vocabulary("ሰ")) == (0, 1, 2, 3, -1, 4)


def sentence(facts: CheckpointFacts, now: RunFacts) -> str:
    return describe(plan_restore(facts, now), facts, now)


def test_a_plan_is_one_sentence_for_whoever_presses_start():
    old = vocabulary("ሰ", "ላ")
    assert sentence(checkpoint(old), run(old)) == "step 700, epoch 2: model, optimizer and scheduler continue"
    assert "epoch starts at its beginning" in sentence(checkpoint(old), run(old, data_order="other"))
    assert sentence(checkpoint(old), run(vocabulary("ሰ"))) == (
        "tokenizer changed, 6 -> 5 pieces: weights by piece, 0 rows new; "
        "optimizer, scheduler and scaler fresh; step 0 (was at step 700)"
    )
    assert sentence(checkpoint(old, trained_shapes=None), run(old)).startswith(
        "the optimizer state does not fit"
    )
