"""Time and memory from a text to sound: GPT and acoustic half in their published sizes, random weights.

    python -m benchmarks.speech --seconds 3 --steps 25 --beams 3

A clip of the demo, of 3.0 s, is the voice. The GPT cannot stop by itself here, so that the sound has the
asked length; what is computed does not depend on what the weights are.
"""

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from transformers import Wav2Vec2BertConfig, Wav2Vec2BertModel

from benchmarks.speech_models import PUBLISHED_CODEC
from benchmarks.workload import PUBLISHED, git_commit, machine
from indextts.commands.sampling_options import Sampling
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
from indextts.speech.synthesis.s2mel import S2Mel, SolverSettings
from indextts.speech.synthesis.sound import PublishedSound
from indextts.speech.synthesis.speak import Speaker
from indextts.speech.synthesis.trained import TrainedModel
from indextts.text.tokenizer import Tokenizer

DEMO = Path(__file__).resolve().parent.parent / "demo"
TEXT = "the weather is good today."
QUIET = 0.003  # of random weights, so that the sound is not clipped
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


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine(device)}, commit {git_commit()}")
    clock = Clock(args.device)
    gpt = random_gpt(args.seed, device)
    num_parameters = sum(parameter.numel() for parameter in gpt.parameters())
    clock.tell(f"GPT of {num_parameters / 1e6:.0f} M parameters made")
    sound = PublishedSound(random_acoustic(args.seed, device), SolverSettings(steps=args.steps))
    clock.tell("acoustic half made")
    tokenizer = Tokenizer.load(DEMO / "checkpoints/bpe.model")
    speaker = Speaker(TrainedModel(gpt, tokenizer, Path("random")), sound)
    voice = speaker.voice(args.voice)
    clock.tell(f"voice and emotion of {args.voice.name}")
    num_codes = round(args.seconds * CODES_PER_SECOND)
    sampling = Sampling(max_codes=num_codes, num_beams=args.beams, seed=args.seed)

    def tell_codes(done: int) -> None:
        if done == num_codes:
            clock.tell(f"{done} codes, {args.beams} beams")

    spoken = speaker.say(TEXT, voice, sampling, tell_codes)
    clock.tell(f"{spoken.duration_s:.2f} s of sound from {spoken.num_codes} codes in {args.steps} steps")
    samples = spoken.samples
    print(f"samples: {len(samples)}, from {samples.min():.3f} to {samples.max():.3f}, rms {rms(samples):.3f}")
    if args.output:
        soundfile.write(args.output, samples, spoken.sample_rate_hz, subtype="PCM_16")
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speech", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of sound, about")
    parser.add_argument("--steps", type=int, default=SolverSettings().steps, help="of the flow matching")
    parser.add_argument("--beams", type=int, default=Sampling().num_beams)
    parser.add_argument("--voice", type=Path, default=DEMO / "audio/demo_0096.opus", help="a recording")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, help="write the sound there, too")
    return parser.parse_args(argv)


def random_gpt(seed: int, device: torch.device) -> UnifiedVoice:
    """The GPT of the published config with seeded random weights, which never stops by itself."""
    gpt = random_model(PUBLISHED, seed)
    gpt.mel_head.bias.data[PUBLISHED.stop_mel_token] = -1e4
    return gpt.eval().requires_grad_(False).to(device)


class Clock:
    """Time since the last telling, and the most memory that the process ever held."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def tell(self, what: str) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
        wall, cpu = time.perf_counter(), time.process_time()
        peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        on_card = f", card {torch.cuda.max_memory_allocated() / 1e9:.2f} GB" if self.device == "cuda" else ""
        print(
            f"{what}: {wall - self.wall:.2f} s, {cpu - self.cpu:.2f} s of CPU, peak {peak_gb:.2f} GB{on_card}"
        )
        self.wall, self.cpu = wall, cpu


def random_acoustic(seed: int, device: torch.device) -> AcousticModel:
    """Return the acoustic half in its published sizes, with the weights that torch begins with."""
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


def rms(samples: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.square(samples, dtype=np.float64).mean()))


if __name__ == "__main__":
    sys.exit(main())
