"""From semantic codes and the GPT's latents to a mel spectrogram: the three networks in s2mel.pth.

Axes: M codes, D width of the GPT, H width of a semantic embedding, P mel frames of the prompt, T generated
mel frames, C mel bands, K width of the condition, S width of the style.

    embeddings of the codes (1, M, H) + gpt_layer(latents (1, M, D)) -> content (1, M, H)
    prompt (1, P, K), content stretched by the length regulator (1, T, K) -> condition (1, P + T, K)
      -> flow matching, with the prompt's mel and the speaker's style -> mel (1, C, T)

Length regulator (`length_regulator`), from 50 embeddings per second to mel frames:

    (B, M, H) -> linear (B, K, M) -> nearest (B, K, T) -> 4 x [conv 3, norm, Mish] -> conv 1 -> (B, T, K)

Its norm takes statistics over all channels and positions of a row, so the result depends on the total length.
In a batch every row is stretched to the longest row. Therefore, as published, it processes one utterance at a
time; this is a thousandth of the work.

Flow matching (`cfm`), by Euler steps with classifier-free guidance:

    x = noise, 0 over the prompt;  for every step of time from 0 to 1:
        x = x + step * ((1 + rate) * velocity - rate * velocity without prompt, style and condition)
        x = 0 over the prompt

In a batch, rows are padded at the end, and the padding changes nothing (`DiT.forward`, `isolate_padding`).

The velocity without condition has zeros in place of the condition; its projection still adds the bias.

Names and shapes of the parameters are those of the three parts under `net` in the published s2mel.pth,
without its weight normalisation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from indextts.errors import UserError
from indextts.features.semantic_codec import without_weight_norm
from indextts.features.weights import fill_weights
from indextts.models.checkpoint import read_file
from indextts.speech.synthesis.config import FlowConfig, LengthRegulatorSection, S2MelConfig
from indextts.speech.synthesis.dit import DiT


@dataclass(frozen=True)
class SolverSettings:
    """Settings of the flow-matching solver and its result; the defaults are the published ones."""

    steps: int = 25  # Euler steps; more are slower and more accurate
    guidance_rate: float = 0.7  # strength of classifier-free guidance; 0 disables it and halves the time
    temperature: float = 1.0  # factor of the noise
    dtype: torch.dtype = torch.float32  # of the estimator's layers
    duration_factor: float = 1.0  # of the speech; above 1 is slower. Only with IndexTTS-2.5.


class FlowMatching(nn.Module):
    """The estimator and its solver."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.estimator = DiT(config)

    def forward(
        self,
        condition: Tensor,
        prompt: Tensor,
        style: Tensor,
        noise: Tensor,
        settings: SolverSettings,
        lengths: Sequence[tuple[int, int]] | None = None,
    ) -> Tensor:
        """Return the mel (B, C, P + T), with zeros over the prompt.

        Args:
            condition: (B, P + T, K).
            prompt: (B, C, P), the mel of the prompt.
            style: (B, S).
            noise: (B, C, P + T), normal, before the temperature.
            lengths: frames of the prompt and of prompt and generated mel of each row; None if all have the
                length of the batch.
        """
        num_rows, num_all = len(noise), noise.shape[2]
        of_prompt, of_all = zip(*(lengths or [(prompt.shape[2], num_all)] * num_rows), strict=True)
        is_padded = min(of_all) < num_all
        frames = torch.arange(num_all, device=noise.device)
        ends = torch.tensor(of_prompt, device=noise.device)
        is_prompt = (frames < ends[:, None])[:, None]  # (B, 1, P + T)
        copies = 2 if settings.guidance_rate > 0 else 1
        x_lens = torch.tensor(of_all * copies, device=noise.device)
        prompt_x = F.pad(prompt, (0, num_all - prompt.shape[2])) * is_prompt
        prompt_x, style, condition = (_with_zeros(part, copies) for part in (prompt_x, style, condition))
        times = torch.linspace(0, 1, settings.steps + 1)  # on the host, where a loop can read them
        x = (noise * settings.temperature).masked_fill(is_prompt, 0)
        time = times[0]
        for step in times.diff():
            now = time.to(noise.device).expand(copies * num_rows)
            velocities = self.estimator(
                x.repeat(copies, 1, 1), prompt_x, x_lens, now, style, condition, isolate_padding=is_padded
            )
            x = (x + step * _guided(velocities, settings.guidance_rate, num_rows)).masked_fill(is_prompt, 0)
            time = time + step
        return x


def _with_zeros(part: Tensor, copies: int) -> Tensor:
    """Append rows of zeros to the rows of `part`, as many for each of `copies` - 1."""
    return torch.cat([part, part.new_zeros((copies - 1) * len(part), *part.shape[1:])])


def _guided(velocities: Tensor, rate: float, num_rows: int) -> Tensor:
    """Combine the velocities with and without condition; without the latter, return them unchanged."""
    if len(velocities) == num_rows:
        return velocities
    return (1 + rate) * velocities[:num_rows] - rate * velocities[num_rows:]


class LengthRegulator(nn.Module):
    """The length regulator; see the module docstring."""

    def __init__(self, config: LengthRegulatorSection) -> None:
        super().__init__()
        dim = config.channels
        layers: list[nn.Module] = []
        for _ in config.sampling_ratios:
            layers += [nn.Conv1d(dim, dim, 3, padding=1), nn.GroupNorm(1, dim), nn.Mish()]
        self.model = nn.Sequential(*layers, nn.Conv1d(dim, dim, 1))
        self.content_in_proj = nn.Linear(config.in_channels, dim)
        # In the published file, for discrete input, which the published model does not use.
        self.embedding = nn.Embedding(config.content_codebook_size, dim)
        self.mask_token = nn.Parameter(torch.zeros(1, dim))

    def forward(self, embeddings: Tensor, num_frames: Tensor) -> Tensor:
        """Return frames (B, T, K) for embeddings (B, M, H), T = max(num_frames), at least 1.

        Args:
            num_frames: (B,); later frames of a row are zero.
        """
        length = int(num_frames.max())
        x = self.stretch(embeddings, length)  # (B, K, T)
        x = self.model(x).transpose(1, 2)  # (B, T, K)
        is_real = torch.arange(length, device=x.device) < num_frames[:, None]  # (B, T)
        frames: Tensor = x * is_real[:, :, None]
        return frames

    def stretch(self, embeddings: Tensor, length: int) -> Tensor:
        """Project embeddings (B, M, H) and resample them to `length` by nearest neighbour: (B, K, length)."""
        x = self.content_in_proj(embeddings).transpose(1, 2)  # (B, K, M)
        # integer arithmetic would differ: the published weights were trained with float32 rounding in
        # `nearest`
        return F.interpolate(x, size=length, mode="nearest")


PARTS = ("cfm", "length_regulator", "gpt_layer")
ADVICE = "use s2mel.pth and config.yaml of the same published model"
GPT_LAYER_DIMS = (256, 128)


@dataclass(frozen=True)
class MelTarget:
    """The inputs for one mel."""

    prompt: Tensor  # (1, P, K), the condition from the prompt's own content
    content: Tensor  # (1, M, H), M at least 1
    prompt_mel: Tensor  # (1, C, P)
    style: Tensor  # (1, S)
    noise: Tensor  # (1, C, P + T), normal

    @property
    def num_frames(self) -> int:
        """Return T."""
        return self.noise.shape[2] - self.prompt_mel.shape[2]


class S2Mel(nn.Module):
    """The three networks in s2mel.pth."""

    def __init__(self, config: S2MelConfig, latent_dim: int) -> None:
        super().__init__()
        self.cfm = FlowMatching(config)
        self.length_regulator = LengthRegulator(config.length_regulator)
        wide, narrow = GPT_LAYER_DIMS
        # as published, without activations in between
        self.gpt_layer = nn.Sequential(
            nn.Linear(latent_dim, wide),
            nn.Linear(wide, narrow),
            nn.Linear(narrow, config.length_regulator.in_channels),
        )

    def content(self, embeddings: Tensor, latents: Tensor) -> Tensor:
        """Return the content (1, M, H) from `embeddings` (1, M, H) and `latents` (1, M, D)."""
        content: Tensor = embeddings + self.gpt_layer(latents)
        return content

    def stretched(self, content: Tensor, num_frames: int) -> Tensor:
        """Return `content` (1, M, H) as a condition for mel frames: (1, num_frames, K)."""
        condition: Tensor = self.length_regulator(content, torch.tensor([num_frames], device=content.device))
        return condition

    def mels(self, targets: Sequence[MelTarget], settings: SolverSettings) -> list[Tensor]:
        """Return the mel of each target: (1, C, T), the frames of its noise without those of the prompt."""
        conditions = [
            torch.cat([target.prompt, self.stretched(target.content, target.num_frames)], dim=1)[0]
            for target in targets
        ]
        prompts = [target.prompt_mel.shape[2] for target in targets]
        lengths = list(zip(prompts, map(len, conditions), strict=True))
        mel = self.cfm(
            pad_sequence(conditions, batch_first=True),
            _padded([target.prompt_mel[0] for target in targets]),
            torch.cat([target.style for target in targets]),
            _padded([target.noise[0] for target in targets]),
            settings,
            lengths,
        )
        return [mel[row : row + 1, :, first:last] for row, (first, last) in enumerate(lengths)]


def _padded(rows: Sequence[Tensor]) -> Tensor:
    """Return rows (C, T) of different lengths as a batch (B, C, T), zeros after each."""
    return pad_sequence([row.T for row in rows], batch_first=True).transpose(1, 2)


def load_s2mel(path: Path, config: S2MelConfig, latent_dim: int, device: torch.device) -> S2Mel:
    """Return the model with the weights under `net` in a s2mel.pth.

    Raises:
        UserError: the file cannot be read, or a tensor is missing, unexpected or of the wrong shape.
    """
    net = read_file(path).get("net")
    if not isinstance(net, dict) or not all(isinstance(net.get(part), dict) for part in PARTS):
        raise UserError(f"{path}: has no {', '.join(PARTS)} under 'net'; {ADVICE}")
    weights = {
        f"{part}.{name.removeprefix('module.')}": tensor
        for part in PARTS
        for name, tensor in net[part].items()
        if isinstance(tensor, Tensor)
    }
    with torch.device("meta"):
        model = S2Mel(config, latent_dim)
    fill_weights(model, without_weight_norm(weights), str(path), ADVICE, device)
    return model


CODES_PER_BLOCK = 25  # a whole number of mel frames: 43, or 86 at half the rate of codes


def target_frames(num_codes: int) -> int:
    """Return the number of mel frames for codes: 1.72 each as published, although 22050/256/50 is 1.7227."""
    return 43 * num_codes // 25
