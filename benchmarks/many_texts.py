"""Time and memory of many texts in batches, compared with one text at a time.

    python -m benchmarks.many_texts --size small

Each case is a separate process, and the cases take turns. Random weights from the same seeds; the GPT cannot
stop, so every text has the same number of codes. Only the work from the text to the sound is measured; the
voice is random and is not encoded.

    demo    the structure of the demo (GPT 6 x 256, one beam) and built-in codes
    small   the published structure in small: GPT 6 x 512, three beams, flow matching of 5 layers of width
            128, BigVGAN with 192 channels, a reference of 1.5 s

Another process streams a text: the time to the first piece of sound and to the last, and the mean difference
of its log-mel spectrum to that of the complete speech; beside it the difference of two complete speeches with
different noise.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, interleaved, peak_bytes, publish, reset_peak, table, timed
from benchmarks.speech_models import BIGVGAN, S2MEL
from benchmarks.workload import build_model, config_of
from indextts.commands.bases import BASE_2_5
from indextts.commands.sampling_options import Sampling
from indextts.commands.terminal import parse, run
from indextts.features.builtin import BuiltinBackend
from indextts.features.mel_spectrogram import reference_mel
from indextts.features.semantic_codec import SemanticCodec, SemanticCodecConfig
from indextts.models.gpt.config import GPTConfig, load_config
from indextts.models.gpt.generate import set_precision
from indextts.speech.synthesis.acoustic import AcousticModel
from indextts.speech.synthesis.bigvgan import BigVGAN
from indextts.speech.synthesis.renderer import BuiltinRenderer, Reference
from indextts.speech.synthesis.s2mel import S2Mel, SolverSettings
from indextts.speech.synthesis.segments import VoicePrompt
from indextts.speech.synthesis.streaming import SpeechStream
from indextts.speech.synthesis.text_to_speech import TextToSpeech
from indextts.speech.synthesis.trained_model import TrainedModel
from indextts.text.bases import load_tokenizer
from indextts.text.tokenizer import Tokenizer

BASE, DEMO = REPOSITORY / "tests/base_2.0", REPOSITORY / "demo/checkpoints"
CPU = torch.device("cpu")
VOICE_FRAMES = 129  # 1.5 s
HEADER = [
    "texts",
    "path",
    "codes, CPU per text (s)",
    "sound, CPU per text (s)",
    "both",
    "wall (s)",
    "times faster: codes",
    "both",
    "peak memory added (MB)",
]


class ManyTexts(Benchmark):
    """Time many texts."""

    program: ClassVar[str] = "benchmarks.many_texts"
    size: Literal["demo", "small"] = Field("small", description="Size of the models.")
    codes: int = Field(100, ge=50, description="Codes of every text, 20 ms each.")
    texts: int = Field(64, ge=2, le=64, description="Largest number of texts.")
    repeats: int = Field(2, ge=1, description="Repeats of every case.")
    threads: int = Field(1, ge=1, description="Threads of torch.")


@dataclass(frozen=True)
class Case:
    """Work of a process: `number` texts in `precision`, or a stream of one."""

    size: str
    codes: int
    threads: int
    number: int
    precision: str = "float32"
    is_stream: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(ManyTexts, argv)
    case = partial(Case, command.size, command.codes, command.threads)
    cases = {
        **{f"{number}, float32": case(number) for number in sorted({1, 8, command.texts})},
        f"{command.texts}, bfloat16": case(command.texts, "bfloat16"),
        "stream": case(1, is_stream=True),
    }
    works = {name: partial(_measured, what) for name, what in cases.items()}
    found = interleaved(works, command.repeats)
    lines = [
        f"{command.codes} codes a text; {command.threads} thread(s); medians of {command.repeats} repeats.",
        "",
        *table(HEADER, _rows(found)),
        "",
        *_stream_lines(found["stream"]),
    ]
    publish(command, f"Many texts, size {command.size}", lines, "cpu")
    return 0


def _rows(found: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    one = {key: _median(found["1, float32"], key) for key in ("codes_s", "cpu_s")}
    return [
        [
            *name.split(", "),
            *(f"{_median(results, key):.3f}" for key in ("codes_s", "sound_s", "cpu_s", "wall_s")),
            *(f"{one[key] / _median(results, key):.1f}" for key in ("codes_s", "cpu_s")),
            f"{_median(results, 'added_bytes') / 1e6:.0f}",
        ]
        for name, results in found.items()
        if name != "stream"
    ]


def _median(results: Sequence[dict[str, float]], key: str) -> float:
    return statistics.median(result[key] for result in results)


def _stream_lines(found: Sequence[dict[str, float]]) -> list[str]:
    return [
        f"Stream of one text: the first piece, {_median(found, 'first_s'):.2f} s of sound, after "
        f"{_median(found, 'first_cpu_s'):.2f} s of processor time; the last after "
        f"{_median(found, 'cpu_s'):.2f} s. Its log-mel spectrum differs from that of the complete speech by "
        f"{_median(found, 'distance_db'):.2f} dB on average; two complete speeches with different noise "
        f"differ by {_median(found, 'noise_db'):.2f} dB."
    ]


def _measured(case: Case, _: int) -> dict[str, float]:
    """Run the case in a process."""
    environment = os.environ | {"OMP_NUM_THREADS": str(case.threads)}
    argv = [sys.executable, "-m", "benchmarks.many_texts", json.dumps(vars(case))]
    done = subprocess.run(argv, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


# --- in the process of a case ---------------------------------------------------------------------------


def run_case(case: Case) -> dict[str, float]:
    """Return the processor time and wall clock per text, and the memory that the work added."""
    torch.set_num_threads(case.threads)
    tts = _text_to_speech(case)
    voice = _voice(tts)
    beams = {"num_beams": 1, "repetition_penalty": 1.0} if case.size == "demo" else {}
    sampling = Sampling(max_codes=case.codes, **beams)
    _speak(tts, voice, sampling.model_copy(update={"max_codes": 10}), 1)  # warm-up
    reset_peak()
    start = peak_bytes()
    if case.is_stream:
        return _streamed(tts, voice, sampling)
    sounds: list[float] = []
    renderer: Any = tts.renderer
    render = renderer.render

    def noted(*given: Any) -> Any:
        result, took = timed(lambda: render(*given))
        sounds.append(took.cpu_s)
        return result

    renderer.render = noted
    _, took = timed(lambda: _speak(tts, voice, sampling, case.number))
    return {
        "codes_s": (took.cpu_s - sum(sounds)) / case.number,
        "sound_s": sum(sounds) / case.number,
        "cpu_s": took.cpu_s / case.number,
        "wall_s": took.wall_s / case.number,
        "added_bytes": peak_bytes() - start,
    }


def _speak(tts: TextToSpeech, voice: Any, sampling: Sampling, number: int) -> None:
    texts = _texts(number)
    lines = [tts.line(text, voice, sampling.seed + n) for n, text in enumerate(texts)]
    spoken = [speech for _, speech in tts.speak(lines, sampling)]
    assert len(spoken) == number
    assert all(speech.num_codes > 0.9 * sampling.max_codes for speech in spoken)


def _streamed(tts: TextToSpeech, voice: Any, sampling: Sampling) -> dict[str, float]:
    line = tts.line(_texts(1)[0], voice, sampling.seed)
    stream = SpeechStream(tts, line, sampling)
    pieces = iter(stream)
    first, took_first = timed(lambda: next(pieces))
    _, took_rest = timed(lambda: list(pieces))
    streamed = stream.speech.samples
    [(_, whole)] = tts.speak([line], sampling)
    segment = whole.segments[0]
    [other] = tts.renderer.render([(replace(segment, seed=segment.seed + 1), line.voice.reference)])
    return {
        "first_s": len(first) / whole.sample_rate_hz,
        "first_cpu_s": took_first.cpu_s,
        "cpu_s": took_first.cpu_s + took_rest.cpu_s,
        "distance_db": _distance_db(streamed, whole.samples),
        "noise_db": _distance_db(other, whole.samples),
    }


def _distance_db(a: Any, b: Any) -> float:
    """Return the mean absolute difference of the log-mel spectra of two sounds (S,)."""
    mels = [reference_mel(torch.from_numpy(np.ascontiguousarray(samples))[None]) for samples in (a, b)]
    return float((mels[0] - mels[1]).abs().mean()) * 20 / float(np.log(10))


def _texts(number: int) -> list[str]:
    words = (REPOSITORY / "demo/english.txt").read_text(encoding="utf-8").split()
    return [" ".join(words[7 * n : 7 * n + 8]) for n in range(number)]


def _text_to_speech(case: Case) -> TextToSpeech:
    tokenizer = (
        load_tokenizer(DEMO / BASE_2_5.tokenizer_file)
        if case.size == "demo"
        else Tokenizer.load(BASE / "bpe.model")
    )
    config = _gpt_config(case.size)
    gpt = build_model(config, CPU).eval().requires_grad_(False)
    gpt.mel_head.bias.data[[config.start_mel_token, config.stop_mel_token]] = -1e4  # it never stops
    renderer: Any
    if case.size == "demo":
        backend = BuiltinBackend(config.number_mel_codes - 2, config.of_base.features_per_code)
        renderer = BuiltinRenderer(backend, CPU, style_dim=config.style_dim)
    else:
        settings = SolverSettings()
        if case.precision != "float32":
            settings = replace(settings, dtype=getattr(torch, case.precision))
        renderer = _acoustic(config, settings)
    if case.precision != "float32":
        set_precision(gpt, getattr(torch, case.precision))
    return TextToSpeech(TrainedModel(gpt, tokenizer, Path("random")), renderer)


def _gpt_config(size: str) -> GPTConfig:
    if size == "demo":
        return replace(load_config(DEMO / "config.yaml"), base=BASE_2_5.name)
    return replace(config_of("small", dropout=0.0), number_text_tokens=400)


def _acoustic(config: GPTConfig, settings: SolverSettings) -> AcousticModel:
    sizes = S2MEL.model_copy(
        update={
            "DiT": S2MEL.DiT.model_copy(update={"hidden_dim": 128, "num_heads": 4, "depth": 5}),
            "wavenet": S2MEL.wavenet.model_copy(update={"hidden_dim": 128, "num_layers": 4}),
        }
    )
    num_codes = config.number_mel_codes - 2
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        codec = SemanticCodec(
            SemanticCodecConfig(
                codebook_size=num_codes,
                hidden_size=1024,
                codebook_dim=8,
                vocos_dim=32,
                vocos_intermediate_dim=32,
                vocos_num_layers=1,
            )
        )
        s2mel = S2Mel(sizes, config.model_dim)
        vocoder = BigVGAN(BIGVGAN.model_copy(update={"upsample_initial_channel": 192}))
    for network in (codec, s2mel, vocoder):
        network.requires_grad_(False).eval()
    backend: Any = SimpleNamespace(codec=codec, num_codes=num_codes)  # all that rendering uses
    campplus: Any = None  # only the encoding of a voice needs it
    return AcousticModel(backend, s2mel, campplus, vocoder, settings)


def _voice(tts: TextToSpeech) -> Any:
    config = tts.trained.gpt.config
    generator = torch.Generator().manual_seed(1)
    draw: Callable[..., torch.Tensor] = partial(torch.randn, generator=generator)
    reference = Reference(
        torch.zeros(0),
        style=draw(1, 192),
        mel=draw(1, 80, VOICE_FRAMES) - 4,
        prompt=draw(1, VOICE_FRAMES, 512),
    )
    condition = draw(*config.condition_shape)
    return VoicePrompt(reference, condition, draw(config.model_dim))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print(json.dumps(run_case(Case(**json.loads(sys.argv[1])))))
    else:
        run(main)
