"""The failure table: the faults that a training run can meet, and the behaviour in each case.

A test that proves a row carries the mark `failure` with the row's number: `grep -rn "failure(.*17" tests`
finds the tests of row 17.
"""

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    fault: str
    behaviour: str


TABLE = {
    1: Row(
        "truncated checkpoint", "quarantined; the log names it, the checkpoint before it and the steps lost"
    ),
    2: Row("one flipped bit, a zeroed page", "as 1; every corruption is found"),
    3: Row("all checkpoints corrupt", "status 3; the run never restarts from the base"),
    4: Row(
        "metadata file missing, not JSON, of another schema, huge",
        "rewritten from the record in the checkpoint, if that is valid; otherwise the log names the file",
    ),
    5: Row("missing or unexpected tensors", "named; status 3"),
    6: Row("tensor of another shape or type", "refused before anything is copied"),
    7: Row("one row more than pieces", "an exact resume"),
    8: Row("tokenizer of the same size with other pieces", "rows move by piece, everything else restarts"),
    9: Row("same pieces, other scores", "the run resumes with a warning"),
    10: Row("features made with another tokenizer", "impossible: a start tokenizes the texts"),
    11: Row("fresh optimizer with old counters", "step, epoch and position 0, a new warm-up, a new best"),
    12: Row("optimizer, scheduler or scaler missing", "a matched set, or none of it"),
    13: Row("batch, accumulation, seed, data or epochs changed", "the run resumes and logs the differences"),
    14: Row("pickle with code", "status 3; no code runs"),
    15: Row("paths and links in a checkpoint that lead elsewhere", "never opened, never deleted"),
    16: Row("decompression bomb, tensor larger than its data", "refused without allocating the memory"),
    17: Row("killed at any instant", "resumes from the newest valid checkpoint to a bit-identical end"),
    18: Row("killed while pruning", "renamed before deletion; the next owner finishes the deletion"),
    19: Row(
        "SIGTERM, SIGINT to the trainer or its group", "the trainer finishes the step and saves; 143, 130"
    ),
    20: Row("SIGTERM during imports, loading, a save, a validation", "143; no partial file"),
    21: Row("a second and a third signal", "the third ends the run at once; the last checkpoint is valid"),
    22: Row(
        "disk full during a save",
        "older checkpoints make room; training continues and retries; 4 only at the end of the run",
    ),
    23: Row("disk full for log, metrics, TensorBoard", "one warning; training continues"),
    24: Row("output folder not writable", "refused at the start: 2, or 4 if the disk is full"),
    25: Row("output folder deleted during the run", "created again for the next save"),
    26: Row("two trainers in one folder", "the second exits with 5, the first is untouched"),
    27: Row(
        "lock of a dead process, a reused PID, a reboot",
        "recognised; blocks nothing, no process is signalled",
    ),
    28: Row("page killed or reloaded", "training continues, the page finds it"),
    29: Row("log without a reader", "a file, never a pipe"),
    30: Row("orphaned workers that hold the lock", "they exit with the trainer and release the lock"),
    31: Row(
        "a worker dies or does not answer, /dev/shm is full",
        "1, a resume works; a stop ends the wait and saves; no shared memory is used",
    ),
    32: Row("line that is not JSON", "status 2 with file:line; the check names all such lines"),
    33: Row("byte order mark, bytes that are not UTF-8", "the mark is skipped; the bytes are as 32"),
    34: Row("missing field", "as 32; the field is named"),
    35: Row("array missing, truncated, a folder", "skipped, named and counted; too many end the run with 2"),
    36: Row("array of objects", "as 35; nothing is unpickled"),
    37: Row("false array header", "as 35; compared with the size of the file"),
    38: Row("codes of another type", "as 35"),
    39: Row("arrays of another shape", "as 35"),
    40: Row("features that are not finite", "as 35; the utterance is named"),
    41: Row("no codes, no text", "refused, or left out and counted"),
    42: Row("code beyond the codebook, below 0", "refused at the start; the utterance is named"),
    43: Row("start or stop among codes or text", "codes are as 42; text never encodes to them"),
    44: Row("text or codes longer than the position tables", "left out and counted, never truncated"),
    45: Row(
        "length in the manifest differs from the array",
        "the array counts; the check reports it; an inconsistent store is refused",
    ),
    46: Row("duplicate ids, validation in training", "refused"),
    47: Row("empty sets, validation smaller than a batch", "status 2; a real loss"),
    48: Row(
        "loss or gradient not finite", "the step is skipped and counted, never saved; 6 after ten in a row"
    ),
    49: Row("out of memory", "the batch is split, no sample is lost; 7 if one sample does not fit"),
    50: Row("clock set back", "serial numbers, start ticks and the monotonic clock decide"),
    51: Row(
        "a checkpoint is a symbolic link", "read through it; never written, renamed or deleted through it"
    ),
    52: Row("paths with spaces, shell characters, Amharic, a dash", "they work; nothing is executed"),
    53: Row("huge log, control characters, not UTF-8", "a bounded tail"),
    54: Row("corrupt TensorBoard file", "training continues; later points are in another file"),
    55: Row("steps replayed after a resume", "a separate curve; in metrics.jsonl the later line counts"),
    56: Row("port in use", "one line, status 2"),
    57: Row("forged job record", "not a job; no process is signalled"),
    58: Row("resume from an older step", "a new part of the run; the newer checkpoints stay"),
    59: Row("more epochs or steps for a finished run", "it resumes at an anchored rate"),
    60: Row("another GPU, thread count or torch", "resumes; warns that the last bits may differ"),
    61: Row("base checkpoint changed", "status 3"),
    62: Row("frozen rows moved, optimizer apart from the model", "found before a save; status 1"),
    63: Row("tokenizer changed, settings not typed", "the settings of the run stay"),
    64: Row("an older checkpoint resumed on the same pairs", "best.pth stays until a model is better"),
    65: Row("validation on other pairs", "best and patience start over, logged once"),
    66: Row(
        "checkpoint of another program, tokenizer with other pieces",
        "rows move by the pieces of its tokenizer; 3 if that is unknown, unless the loss is accepted",
    ),
    67: Row("codes of another codebook", "status 3; names the stores, or the checkpoint and a store"),
    68: Row("index of the pairs corrupt or of other pairs", "built again; the same ids in each case"),
    69: Row("killed or stopped while pairs are indexed", "no partial file, no process left; built again"),
    70: Row("a finished run extended by little", "the plan has the rates to come; --rewarm sets a peak"),
    71: Row("warm-up too long, schedule lost, checkpoints gone", "a warning; the log is true"),
    72: Row("texts, pairs, order or features changed", "the plan is true: the position follows the pair ids"),
    73: Row("GPU too small for the settings that a resume holds", "status 3; the message names what fits"),
    74: Row(
        "LoRA rank, alpha or targets changed",
        "the adapters are converted, the rest restarts; status 3 where some would be lost",
    ),
}


def rows_of(function: ast.FunctionDef) -> list[int]:
    """Return the rows that a test says it proves."""
    return [
        argument.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.failure"
        for argument in decorator.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, int)
    ]


def proofs_of(path: Path) -> dict[str, list[int]]:
    """Return the rows that each test of a file says it proves, by file and name."""
    return {
        f"{path.name}::{node.name}": rows_of(node)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
