"""The failure table: every fault that a training can meet, what then happens, and the tests that prove it.

One row is one fault. Tests of rows that no other file had are in test_failure_checkpoints.py,
test_failure_process.py and test_failure_data.py; all others are where their subject is.
"""

import ast
from dataclasses import dataclass
from functools import cache

import pytest

from tests.conftest import REPOSITORY


@dataclass(frozen=True)
class Row:
    fault: str
    behaviour: str
    proofs: tuple[str, ...]  # file without test_ and .py, ::, test without test_


TABLE = {
    1: Row(
        "checkpoint cut off",
        "set apart, the one before taken; which, and how far back, is said",
        (
            "failure_checkpoints::row_1_a_cut_off_checkpoint_is_left_out_and_the_one_before_taken",
            "trainer::a_damaged_newest_checkpoint_is_named_and_the_one_before_is_taken",
        ),
    ),
    2: Row(
        "one bit flipped, a page zeroed",
        "as 1: every damage is found",
        (
            "failure_checkpoints::row_2_of_400_random_damages_of_a_real_checkpoint_every_one_is_found",
            "digest::one_flipped_bit_anywhere_gives_another_digest",
            "run_owner::auto_goes_around_damaged_ones_and_they_shadow_nothing_later",
        ),
    ),
    3: Row(
        "all checkpoints damaged",
        "status 3, never a start from the base",
        (
            "failure_checkpoints::row_3_a_folder_whose_checkpoints_are_all_damaged_is_refused_with_status_3",
            "run_owner::a_folder_that_only_has_damaged_ones_is_never_started_from_the_base",
        ),
    ),
    4: Row(
        "meta file missing, no JSON, of another schema, huge",
        "the checkpoint does not count; as 1",
        (
            "failure_checkpoints::row_4_a_checkpoint_with_a_bad_meta_file_does_not_count",
            "failure_checkpoints::row_4_whatever_is_in_a_meta_file_it_is_one_or_it_says_why_not",
        ),
    ),
    5: Row(
        "missing or unexpected tensors",
        "named and refused with status 3",
        (
            "failure_checkpoints::"
            "rows_5_and_6_weights_that_do_not_fit_are_named_and_refused_before_anything_is_written",
            "gpt_load::every_misfit_goes_to_the_log_and_the_sentence_counts_them",
            "trainer::a_checkpoint_without_what_a_resume_needs_is_refused",
        ),
    ),
    6: Row(
        "tensor of another shape or type",
        "refused before anything is copied",
        (
            "failure_checkpoints::"
            "rows_5_and_6_weights_that_do_not_fit_are_named_and_refused_before_anything_is_written",
            "gpt_load::weights_of_another_size_are_named_with_both_shapes",
        ),
    ),
    7: Row(
        "one row more than pieces",
        "an exact resume",
        (
            "trainer::the_same_tokenizer_restores_the_optimizer_although_the_tables_have_one_row_more",
            "trainer::a_run_that_goes_on_from_any_step_ends_bit_identical",
        ),
    ),
    8: Row(
        "tokenizer of the same size with other pieces",
        "rows move by piece, all the rest starts over",
        (
            "failure_checkpoints::"
            "row_8_other_pieces_of_the_same_number_keep_their_rows_bit_identical_and_start_over",
            "restore_plan::the_same_size_with_other_pieces_is_recognised",
        ),
    ),
    9: Row(
        "same pieces, other scores",
        "the run goes on with a warning",
        (
            "failure_checkpoints::row_9_the_same_pieces_with_other_scores_go_on_with_a_warning",
            "restore_plan::the_same_pieces_with_other_scores_continue_with_a_warning",
        ),
    ),
    10: Row(
        "features made with another tokenizer",
        "cannot be: tokens are made from the texts when a run starts",
        (
            "failure_checkpoints::row_10_the_tokens_are_made_from_the_texts_with_the_tokenizer_of_the_run",
            "data_preprocess::another_vocabulary_leaves_features_valid",
        ),
    ),
    11: Row(
        "a fresh optimizer under old counters",
        "step, epoch, position 0, warm-up, a new best",
        (
            "trainer::another_tokenizer_keeps_the_rows_and_starts_all_the_rest_over",
            "restore_plan::starting_over_takes_the_settings_of_the_command_and_a_schedule_from_step_0",
        ),
    ),
    12: Row(
        "optimizer, scheduler, scaler partly there",
        "a matched set, or none of it",
        (
            "failure_checkpoints::row_12_optimizer_schedule_and_scaler_come_together_or_not_at_all",
            "restore_plan::an_optimizer_that_does_not_fit_is_fresh_together_with_all_else",
            "restore_plan::a_missing_key_is_named",
        ),
    ),
    13: Row(
        "batch, accumulation, seed, data or epochs changed",
        "the run goes on, and what it changes is said",
        (
            "restore_plan::what_was_typed_wins_and_says_what_it_changes",
            "restore_plan::another_seed_starts_the_epoch_at_its_beginning",
            "restore_plan::changed_data_keeps_the_matched_set_but_not_the_position",
            "restore_plan::another_batch_size_counts_the_steps_to_come_anew",
            "exact_resume::with_changed_settings_every_sample_of_the_epoch_is_seen_once",
        ),
    ),
    14: Row(
        "pickle that wants to run code",
        "refused with status 3, nothing runs",
        ("failure_checkpoints::row_14_a_file_that_wants_to_run_code_is_refused_and_runs_nothing",),
    ),
    15: Row(
        "paths and links in a checkpoint that lead elsewhere",
        "never opened, never deleted",
        (
            "failure_checkpoints::row_15_paths_in_a_checkpoint_are_never_opened_or_deleted",
            "failure_checkpoints::row_51_a_symbolic_link_is_no_checkpoint_and_never_written_through",
        ),
    ),
    16: Row(
        "archive that inflates, tensor larger than its data",
        "refused without the memory for it",
        ("failure_checkpoints::row_16_what_would_inflate_is_refused_where_there_is_no_memory_for_it",),
    ),
    17: Row(
        "killed at any instant",
        "the newest whole checkpoint, and a bit-identical end",
        (
            "exact_resume::a_run_killed_at_this_place_ends_bit_identical",
            "exact_resume::a_run_killed_again_and_again_right_after_a_save_ends_bit_identical",
            "exact_resume::the_benchmark_finds_nothing_wrong_in_a_few_kills",
        ),
    ),
    18: Row(
        "killed while pruning",
        "renamed before it is deleted; the next owner ends it",
        (
            "run_owner::a_kill_before_any_change_of_the_disk_leaves_what_the_next_owner_mends",
            "run_owner::nothing_is_removed_while_the_newest_is_damaged",
        ),
    ),
    19: Row(
        "SIGTERM, SIGINT to the trainer or its group",
        "the step is finished and saved; 143, 130",
        (
            "failure_process::row_19_a_signal_to_the_whole_group_ends_the_step_saves_and_loses_nothing",
            "failure_process::row_19_each_signal_has_its_status_and_the_step_is_finished",
            "trainer::a_stopped_run_saves_its_step_and_the_resumed_one_goes_on_at_the_next",
            "exact_resume::a_run_stopped_at_this_place_loses_no_step_and_ends_bit_identical",
        ),
    ),
    20: Row(
        "SIGTERM in imports, loading, a save, a validation",
        "143; nothing half written",
        (
            "failure_process::row_20_a_signal_in_the_imports_ends_the_run_with_143",
            "failure_process::row_20_a_signal_at_this_place_ends_the_run_with_143_and_the_next_one_goes_on",
        ),
    ),
    21: Row(
        "a second and a third signal",
        "the third ends at once, the last checkpoint is whole",
        ("failure_process::row_21_the_third_signal_ends_at_once_and_the_last_checkpoint_is_whole",),
    ),
    22: Row(
        "disk full in a save",
        "the training goes on and tries again; 4 after three in a row; the checkpoint before is whole",
        (
            "failure_process::"
            "row_22_a_full_disk_is_said_and_tried_again_and_the_run_recovers_when_there_is_room",
            "failure_process::"
            "row_22_the_third_failed_save_in_a_row_ends_the_run_with_4_and_the_old_checkpoint_is_whole",
            "failure_process::row_22_a_write_that_fails_at_any_byte_leaves_the_checkpoint_before",
        ),
    ),
    23: Row(
        "disk full for log, numbers, TensorBoard",
        "said once, the training goes on",
        (
            "failure_process::row_23_a_log_and_numbers_that_cannot_be_written_do_not_stop_a_run",
            "failure_process::row_23_a_file_on_a_full_disk_is_done_without",
            "failure_process::row_23_a_tensorboard_folder_that_cannot_be_made_is_said_once",
        ),
    ),
    24: Row(
        "output folder that cannot be written",
        "seen at the start: 2, or 4 where it is full",
        (
            "trainer_bad_input::an_output_folder_that_cannot_be_written_is_one_sentence",
            "failure_process::row_24_a_start_on_a_full_disk_ends_with_4",
        ),
    ),
    25: Row(
        "output folder deleted during the run",
        "made again and saved into",
        ("failure_process::row_25_a_folder_that_is_deleted_is_made_again_and_saved_into",),
    ),
    26: Row(
        "two trainers in one folder",
        "the second ends with 5, the first is untouched",
        (
            "failure_process::row_26_of_12_trainers_at_once_exactly_one_runs",
            "trainer::a_second_trainer_in_the_same_folder_ends_with_status_5",
        ),
    ),
    27: Row(
        "lock of a dead process, its number used again, reboot",
        "recognised, stops nobody, nobody is signalled",
        (
            "failure_process::row_27_a_lock_file_that_nobody_holds_stops_nobody",
            "run_owner::a_second_trainer_is_refused_and_the_lock_ends_with_its_process",
            "run_owner::without_locks_the_owners_identity_decides",
            "jobs_records::a_stranger_with_the_number_of_a_job_is_not_signalled",
        ),
    ),
    28: Row(
        "page killed or loaded again",
        "the training goes on, the page finds it",
        (
            "jobs_starting::a_job_outlives_the_page_that_started_it",
            "jobs_starting::of_three_pages_that_start_at_once_exactly_one_is_let_through",
            "webui_walk::a_newcomer_gets_from_the_first_tab_to_a_training_stops_and_resumes_it",
        ),
    ),
    29: Row(
        "nobody reads the log",
        "it is a file, never a pipe",
        ("jobs_runner::ten_megabytes_of_output_block_nothing",),
    ),
    30: Row(
        "workers orphaned with the lock",
        "gone with the trainer, and so is the lock",
        ("failure_process::row_30_a_killed_trainer_leaves_no_worker_and_no_lock_behind",),
    ),
    31: Row(
        "a worker dies",
        "no save from the handler, status 1, a resume goes on",
        ("failure_process::row_31_a_worker_that_the_system_kills_ends_the_run_with_1_and_a_resume_goes_on",),
    ),
    32: Row(
        "line that is no JSON",
        "status 2 with file:line; the check names all",
        (
            "manifest::a_line_that_is_no_json_object_is_named",
            "trainer_bad_input::bad_input_is_one_sentence_and_leaves_no_checkpoint",
            "data_check::all_problems_of_recordings_and_lines_are_collected",
        ),
    ),
    33: Row(
        "byte order mark, bytes that are no UTF-8",
        "the mark is read, the bytes are as 32",
        (
            "manifest::a_byte_order_mark_windows_line_ends_and_blank_lines_are_read",
            "manifest::a_line_that_is_not_utf_8_is_named",
        ),
    ),
    34: Row(
        "field missing",
        "as 32, the field is named",
        (
            "manifest::a_missing_field_is_named_with_its_line",
            "manifest::a_missing_field_of_a_pair_is_named",
        ),
    ),
    35: Row(
        "array missing, cut off, a folder",
        "skipped, named and counted; too many end the run with 2",
        (
            "failure_data::"
            "rows_35_to_40_pairs_whose_arrays_cannot_be_used_are_skipped_named_and_never_replaced",
            "failure_data::row_35_more_than_ten_of_a_small_set_end_the_run_and_leave_its_checkpoints",
            "failure_data::row_35_pairs_to_validate_on_that_cannot_be_read_are_counted",
            "data_feature_store::a_damaged_array_is_named",
        ),
    ),
    36: Row(
        "array of objects",
        "as 35, nothing is unpickled",
        (
            "failure_data::"
            "rows_35_to_40_pairs_whose_arrays_cannot_be_used_are_skipped_named_and_never_replaced",
        ),
    ),
    37: Row(
        "header that lies",
        "as 35, compared with the size of the file",
        (
            "failure_data::"
            "rows_35_to_40_pairs_whose_arrays_cannot_be_used_are_skipped_named_and_never_replaced",
        ),
    ),
    38: Row(
        "codes of another type",
        "as 35",
        (
            "failure_data::"
            "rows_35_to_40_pairs_whose_arrays_cannot_be_used_are_skipped_named_and_never_replaced",
        ),
    ),
    39: Row(
        "arrays of another shape",
        "as 35",
        (
            "failure_data::"
            "rows_35_to_40_pairs_whose_arrays_cannot_be_used_are_skipped_named_and_never_replaced",
        ),
    ),
    40: Row(
        "features that are not finite",
        "as 35, the utterance is named",
        (
            "failure_data::"
            "rows_35_to_40_pairs_whose_arrays_cannot_be_used_are_skipped_named_and_never_replaced",
        ),
    ),
    41: Row(
        "no codes, no text",
        "refused, or left out and counted",
        (
            "failure_data::row_41_a_text_that_has_no_token_is_left_out_and_counted",
            "data_feature_store::codes_that_do_not_fit_are_refused",
            "manifest::a_wrong_value_is_named_with_its_line",
        ),
    ),
    42: Row(
        "code beyond the codebook, below 0",
        "refused at the start, the utterance is named",
        (
            "failure_data::rows_42_and_43_a_code_that_is_none_is_refused_at_the_start_and_its_utterance_named",
            "data_feature_store::codes_that_do_not_fit_are_refused",
        ),
    ),
    43: Row(
        "start or stop among codes or text",
        "codes are as 42; no text gives them",
        (
            "failure_data::rows_42_and_43_a_code_that_is_none_is_refused_at_the_start_and_its_utterance_named",
            "text_tokenizer::start_and_stop_never_come_out_of_a_text",
        ),
    ),
    44: Row(
        "text or codes longer than the position tables",
        "left out and counted, never cut",
        (
            "failure_data::row_44_the_longest_that_the_published_positions_hold_is_kept_whole"
            "_and_one_more_is_left_out",
            "trainer_bad_input::too_long_samples_are_left_out_up_front_with_their_count",
        ),
    ),
    45: Row(
        "length in the manifest differs from the array",
        "the array holds; the check says it; a store that differs from itself is not read",
        (
            "failure_data::row_45_the_length_of_the_array_holds_whatever_the_pairs_file_says",
            "failure_data::row_45_a_store_whose_index_differs_from_its_arrays_is_not_read",
            "data_check::a_manifest_that_differs_from_its_store_is_a_problem",
            "manifest::a_number_of_codes_is_a_whole_number_above_0",
        ),
    ),
    46: Row(
        "ids twice, validation in training",
        "refused",
        (
            "manifest::a_duplicate_id_is_named_with_both_lines",
            "trainer_bad_input::bad_input_is_one_sentence_and_leaves_no_checkpoint",
            "data_check::a_validation_target_that_is_trained_on_is_a_problem",
        ),
    ),
    47: Row(
        "empty sets, validation of less than a batch",
        "status 2; a real loss",
        (
            "failure_data::row_47_an_empty_set_or_one_of_which_nothing_is_left_is_refused",
            "failure_data::row_47_a_validation_set_of_less_than_a_batch_has_a_real_loss",
            "failure_data::row_47_when_no_pair_to_validate_on_can_be_read_the_run_ends_before_its_first_step",
        ),
    ),
    48: Row(
        "loss or gradient not finite",
        "the step is skipped and counted; 6 after ten in a row; never saved",
        (
            "failure_data::row_48_a_poisoned_batch_is_skipped_and_all_else_is_as_if_its_step_had_not_been",
            "failure_data::row_48_weights_that_are_not_finite_are_never_saved",
            "training_optim::what_is_not_finite_changes_nothing",
            "training_optim::ten_bad_steps_in_a_row_end_the_run_and_nine_do_not",
            "trainer::a_loss_that_is_not_finite_ends_the_run_with_status_6_and_no_checkpoint_of_it",
        ),
    ),
    49: Row(
        "out of memory",
        "the batch is split, no sample is lost, the size is kept; 7 where one sample does not fit",
        (
            "failure_data::row_49_a_split_step_has_the_gradient_of_the_whole_and_sees_every_sample",
            "failure_data::row_49_the_size_that_fits_is_kept_through_a_resume",
            "failure_data::"
            "row_49_a_single_sample_that_does_not_fit_ends_the_run_with_7_and_says_what_to_change",
            "failure_data::row_49_another_error_is_no_lack_of_memory",
        ),
    ),
    50: Row(
        "clock set back",
        "newest goes by serial, identity by ticks, intervals by the monotonic clock",
        (
            "failure_data::row_50_a_clock_that_goes_back_a_day_changes_nothing",
            "checkpoint::newest_means_serial_and_never_step",
        ),
    ),
    51: Row(
        "latest or best is a symbolic link",
        "no checkpoint, never written through",
        ("failure_checkpoints::row_51_a_symbolic_link_is_no_checkpoint_and_never_written_through",),
    ),
    52: Row(
        "paths with blanks, shell characters, Amharic, a dash",
        "they work, nothing is run",
        (
            "failure_process::row_52_a_run_works_in_a_folder_of_any_name",
            "jobs_starting::nasty_values_arrive_unchanged",
            "commands::a_command_survives_the_way_to_argv_and_back",
        ),
    ),
    53: Row(
        "huge log, control characters, no UTF-8",
        "its tail, bounded",
        (
            "jobs_log_tail::tail_shows_what_a_terminal_would",
            "jobs_log_tail::tail_reads_the_same_little_of_a_terabyte",
            "jobs_log_tail::tail_keeps_the_last_lines",
        ),
    ),
    54: Row(
        "TensorBoard file damaged",
        "the run is untouched, later points are in another file",
        ("failure_data::row_54_a_damaged_tensorboard_file_touches_neither_the_run_nor_later_points",),
    ),
    55: Row(
        "steps done again after a resume",
        "a curve of their own; in metrics.jsonl the later line counts",
        (
            "failure_data::row_55_a_step_that_was_done_again_is_in_a_curve_of_its_own",
            "run_dir::of_a_step_that_was_replayed_the_later_line_counts",
        ),
    ),
    56: Row(
        "port in use",
        "one sentence, status 2",
        ("webui_serving_security::a_port_in_use_is_one_sentence_and_status_2",),
    ),
    57: Row(
        "forged record of a job",
        "no job, and nobody is signalled",
        (
            "jobs_records::a_folder_without_a_whole_record_is_no_job",
            "processes::init_is_nobodys_to_signal",
        ),
    ),
    58: Row(
        "resume from an older step",
        "a new part of the run; the newer ones stay",
        (
            "trainer::an_older_checkpoint_begins_a_new_part_and_replaces_nothing",
            "run_owner::other_parts_the_best_the_pinned_and_foreign_files_are_never_removed",
        ),
    ),
    59: Row(
        "a finished run, then more epochs or steps",
        "it goes on at an anchored rate",
        (
            "failure_checkpoints::row_59_a_finished_run_goes_on_when_it_is_told_a_later_end",
            "trainer::more_epochs_of_a_finished_run_raise_the_rate_gently",
        ),
    ),
    60: Row(
        "another card, other threads, another torch",
        "goes on; that last bits may differ is said",
        ("restore_plan::another_machine_continues_and_says_that_last_bits_may_differ",),
    ),
    61: Row(
        "base checkpoint changed",
        "refused with status 3",
        (
            "failure_checkpoints::row_61_a_resume_with_another_base_is_refused_with_status_3",
            "restore_plan::another_base_file_is_refused_and_the_same_bytes_elsewhere_are_not",
        ),
    ),
    62: Row(
        "frozen rows moved, optimizer beside the model",
        "noticed before a save, status 1",
        (
            "failure_checkpoints::row_62_rows_that_the_optimizer_no_longer_shares_with_the_model"
            "_end_the_run_before_a_save",
            "trainer::the_frozen_rows_are_checked_at_every_save",
            "trainer::the_base_rows_are_bit_identical_after_the_run_and_the_new_ones_are_not",
            "training_optim::a_moved_table_is_noticed",
        ),
    ),
}


@cache
def functions_of(file: str) -> frozenset[str]:
    """Return the names of the tests in a file as they are collected: top-level functions."""
    tree = ast.parse((REPOSITORY / f"tests/test_{file}.py").read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_the_table_has_every_row():
    assert list(TABLE) == list(range(1, 63))


@pytest.mark.parametrize("number", TABLE, ids=lambda number: f"{number} {TABLE[number].fault}")
def test_every_row_is_proved_by_tests_that_exist(number: int):
    row = TABLE[number]
    missing = [
        proof
        for proof in row.proofs
        if f"test_{proof.split('::')[1]}" not in functions_of(proof.split("::")[0])
    ]
    assert row.proofs
    assert missing == []


def test_every_test_of_a_row_stands_in_its_row():
    files = ("failure_checkpoints", "failure_process", "failure_data")
    named = {proof for row in TABLE.values() for proof in row.proofs}
    for file in files:
        for name in functions_of(file):
            if name.startswith("test_"):
                assert f"{file}::{name.removeprefix('test_')}" in named
