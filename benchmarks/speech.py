"""Time and memory from a text to sound: GPT and acoustic models in their published sizes, random weights.

    python -m benchmarks.speech --seconds 3 --steps 25 --beams 3

The voice is a clip of the demo, 3.0 s long. The GPT cannot stop by itself here, so the sound has the
requested length; the computation does not depend on the values of the weights.
"""

import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import soundfile
import torch
from pydantic import Field
from transformers import Wav2Vec2BertConfig, Wav2Vec2BertModel

from benchmarks.frame import REPOSITORY, Benchmark, Took, publish, table, timed, wait_for_device
from benchmarks.speech_models import PUBLISHED_CODEC
from benchmarks.train_step import device_of
from benchmarks.workload import PUBLISHED
from indextts.commands.base import Device
from indextts.commands.sampling_options import Sampling
from indextts.commands.terminal import parse, run
from indextts.features.backend import CODES_PER_SECOND
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig
from indextts.features.indextts2 import IndexTTS2Backend
from indextts.features.semantic_codec import SemanticCodec
from indextts.features.speech_encoder import NUM_LAYERS, SpeechEncoder
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import random_model
from indextts.speech.synthesis.acoustic import AcousticModel
from indextts.speech.synthesis.bigvgan import BigVGAN
from indextts.speech.synthesis.config import BigVGANConfig, S2MelConfig
from indextts.speech.synthesis.renderer import PublishedRenderer
from indextts.speech.synthesis.s2mel import S2Mel, SolverSettings
from indextts.speech.synthesis.text_to_speech import TextToSpeech
from indextts.speech.synthesis.trained_model import TrainedModel
from indextts.text.tokenizer import Tokenizer

DEMO = REPOSITORY / "demo"
TEXT = "the weather is good today."
QUIET = 0.003  # scale of the vocoder's last weights; keeps the sound from clipping
S2MEL = S2MelConfig.model_validate(
    {
        "style_encoder": {"dim": 192},
        "length_regulator": {
            "channels": 512,
            "in_channels": 1024,
            "content_codebook_size": 2048,
            "sampling_ratios": [1, 1, 1, 1],
        },
        "DiT": {
            "hidden_dim": 512,
            "num_heads": 8,
            "depth": 13,
            "in_channels": 80,
            "content_dim": 512,
            "content_codebook_size": 1024,
        },
        "wavenet": {"hidden_dim": 512, "num_layers": 8, "kernel_size": 5, "dilation_rate": 1},
    }
)
BIGVGAN = BigVGANConfig(
    num_mels=80,
    upsample_rates=(4, 4, 2, 2, 2, 2),
    upsample_kernel_sizes=(8, 8, 4, 4, 4, 4),
    upsample_initial_channel=1536,
    resblock_kernel_sizes=(3, 7, 11),
    resblock_dilation_sizes=((1, 3, 5),) * 3,
)


ResultT = TypeVar("ResultT")


class Speech(Benchmark):
    """Time the stages from a text to sound."""

    program: ClassVar[str] = "benchmarks.speech"
    seconds: float = Field(3.0, gt=0, description="Approximate length of the sound.")
    steps: int = Field(SolverSettings().steps, ge=1, description="Steps of the flow matching.")
    beams: int = Field(Sampling().num_beams, ge=1, description="Beams of the GPT.")
    voice: Path = Field(DEMO / "audio/demo_0096.opus", description="Recording of the voice.")
    seed: int = Field(0, description="Seed of weights and sampling.")
    device: Device = Field("auto", description="Device.")
    threads: int = Field(0, ge=0, description="Threads of torch; 0 leaves its default.")
    wav: Path | None = Field(None, description="File for the sound.")


class Stages:
    """Times stages and notes the process's peak memory after each."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rows: list[list[str]] = []

    def measure(self, stage: str, work: Callable[[], ResultT]) -> ResultT:
        result, took = timed(work, str(self.device))
        self.note(stage, took)
        return result

    def note(self, stage: str, took: Took) -> None:
        peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        cells = [stage, f"{took.wall_s:.2f}", f"{took.cpu_s:.2f}", f"{peak_gb:.2f}"]
        if self.device.type == "cuda":
            cells.append(f"{torch.cuda.max_memory_allocated() / 1e9:.2f}")
        self.rows.append(cells)

    @property
    def header(self) -> list[str]:
        gpu = ["peak GPU memory (GB)"] if self.device.type == "cuda" else []
        return ["stage", "wall clock (s)", "processor time (s)", "peak memory (GB)", *gpu]


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Speech, argv)
    if command.threads:
        torch.set_num_threads(command.threads)
    device = device_of(command.device)
    stages = Stages(device)
    gpt = stages.measure("GPT built", lambda: random_gpt(command.seed, device))
    solver = SolverSettings(steps=command.steps)
    sound = PublishedRenderer(
        stages.measure("acoustic models built", lambda: random_acoustic(command.seed, device)), solver
    )
    tokenizer = Tokenizer.load(DEMO / "checkpoints/bpe.model")
    tts = TextToSpeech(TrainedModel(gpt, tokenizer, Path("random")), sound)
    voice = stages.measure("voice and emotion of the recording", lambda: tts.read_voice(command.voice))
    num_codes = round(command.seconds * CODES_PER_SECOND)
    sampling = Sampling(max_codes=num_codes, num_beams=command.beams, seed=command.seed)
    codes_done: list[Took] = []
    wall, cpu = time.perf_counter(), time.process_time()

    def note_codes(done: int) -> None:
        if done == num_codes:
            wait_for_device(str(device))
            codes_done.append(Took(time.perf_counter() - wall, time.process_time() - cpu))
            stages.note(f"{done} codes, {command.beams} beams", codes_done[0])

    spoken, took = timed(lambda: tts.synthesize(TEXT, voice, sampling, note_codes), str(device))
    took = Took(took.wall_s - codes_done[0].wall_s, took.cpu_s - codes_done[0].cpu_s)
    stages.note(f"{spoken.duration_s:.2f} s of sound in {command.steps} steps", took)
    if command.wav:
        soundfile.write(command.wav, spoken.samples, spoken.sample_rate_hz, subtype="PCM_16")
    num_parameters = sum(parameter.numel() for parameter in gpt.parameters())
    lines = [f"GPT of {num_parameters / 1e6:.0f} M parameters.", "", *table(stages.header, stages.rows)]
    publish(command, "From a text to sound, published size, random weights", lines, str(device))
    return 0


def random_gpt(seed: int, device: torch.device) -> UnifiedVoice:
    """Return the GPT of the published config with seeded random weights; it never stops by itself."""
    gpt = random_model(PUBLISHED, seed)
    gpt.mel_head.bias.data[PUBLISHED.stop_mel_token] = -1e4
    return gpt.eval().requires_grad_(False).to(device)


def random_acoustic(seed: int, device: torch.device) -> AcousticModel:
    """Return the acoustic models in their published sizes with torch's initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        w2v_bert = Wav2Vec2BertModel(Wav2Vec2BertConfig(num_hidden_layers=NUM_LAYERS))
        encoder = SpeechEncoder(w2v_bert, torch.zeros(1024), torch.ones(1024))
        codec, s2mel = SemanticCodec(PUBLISHED_CODEC), S2Mel(S2MEL, PUBLISHED.model_dim)
        campplus, vocoder = CAMPPlus(CAMPPlusConfig()), BigVGAN(BIGVGAN)
        vocoder.conv_post.weight_g.data *= QUIET
    for network in (encoder, codec, s2mel, campplus, vocoder):
        network.requires_grad_(False).eval().to(device)
    return AcousticModel(IndexTTS2Backend(encoder, codec, device), s2mel, campplus, vocoder)


if __name__ == "__main__":
    run(main)
