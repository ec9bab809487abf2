"""Time and memory from codes to sound, with networks of the published sizes and seeded random weights.

    python -m benchmarks.acoustic --seconds 3 --reference-seconds 3 --steps 25

The reference recording, the codes and the latents are random, too: what is computed does not depend on them.
The GPT that makes codes and latents is not part of it.

Axes: M codes, D width of the GPT.
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
from benchmarks.workload import git_commit, machine
from indextts.features.backend import CODES_PER_SECOND
from indextts.features.indextts2 import IndexTTS2Backend
from indextts.features.semantic_codec import SemanticCodec
from indextts.features.speech_encoder import NUM_LAYERS, SpeechEncoder
from indextts.synthesis.acoustic import AcousticModel
from indextts.synthesis.bigvgan import BigVGAN
from indextts.synthesis.campplus import CAMPPlus, CAMPPlusConfig
from indextts.synthesis.config import BigVGANConfig, S2MelConfig
from indextts.synthesis.flow_matching import SolverSettings
from indextts.synthesis.front_end import SAMPLE_RATE_HZ
from indextts.synthesis.s2mel import S2Mel

LATENT_DIM = 1280
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
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine(torch.device(args.device))}, commit {git_commit()}")
    clock = Clock(args.device)
    model = random_model(args.seed, torch.device(args.device))
    clock.tell("networks made")
    generator = torch.Generator().manual_seed(args.seed)
    num_samples = int(args.reference_seconds * SAMPLE_RATE_HZ)
    noise: NDArray[np.float32] = torch.randn(num_samples, generator=generator).mul(0.1).numpy()
    voice = model.voice_of(noise)
    clock.tell(f"voice of a reference of {args.reference_seconds:g} s")
    num_codes = round(args.seconds * CODES_PER_SECOND)
    codes = torch.randint(PUBLISHED_CODEC.codebook_size, (num_codes,), generator=generator)
    latents = torch.randn(num_codes, LATENT_DIM, generator=generator)
    samples = model.render(codes, latents, voice, seed=args.seed, settings=SolverSettings(steps=args.steps))
    seconds = len(samples) / SAMPLE_RATE_HZ
    clock.tell(f"{seconds:.2f} s of sound from {num_codes} codes in {args.steps} steps")
    print(f"samples: {len(samples)}, from {samples.min():.3f} to {samples.max():.3f}, rms {rms(samples):.3f}")
    if args.output:
        soundfile.write(args.output, samples, SAMPLE_RATE_HZ, subtype="PCM_16")
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.acoustic", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of sound, about")
    parser.add_argument("--reference-seconds", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=SolverSettings().steps, help="of the flow matching")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, help="write the sound there, too")
    return parser.parse_args(argv)


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


def random_model(seed: int, device: torch.device) -> AcousticModel:
    """The networks in their published sizes, with the weights that torch begins with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        w2v_bert = Wav2Vec2BertModel(Wav2Vec2BertConfig(num_hidden_layers=NUM_LAYERS))
        encoder = SpeechEncoder(w2v_bert, torch.zeros(1024), torch.ones(1024))
        codec, s2mel = SemanticCodec(PUBLISHED_CODEC), S2Mel(S2MEL, LATENT_DIM)
        campplus, vocoder = CAMPPlus(CAMPPlusConfig()), BigVGAN(BIGVGAN)
        vocoder.conv_post.weight_g.data *= QUIET
    for network in (encoder, codec, s2mel, campplus, vocoder):
        network.requires_grad_(False).eval().to(device)
    return AcousticModel(IndexTTS2Backend(encoder, codec, device), s2mel, campplus, vocoder)


def rms(samples: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.square(samples, dtype=np.float64).mean()))


if __name__ == "__main__":
    sys.exit(main())
