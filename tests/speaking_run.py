"""A run for synthesis: a tiny model trained for two steps on real built-in features of demo clips."""

import json
import shutil
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file

from demo.make_base_checkpoint import random_model
from indextts.commands.data import Preprocess
from indextts.data.manifest import Utterance, read_utterances, write_pairs, write_utterances
from indextts.data.pairs import build_pairs
from indextts.data.preprocess import preprocess
from indextts.projects.project import Project, make_settings
from indextts.system.files import write_json
from tests.acoustic_files import write_acoustic_files
from tests.tiny_gpt import TINY
from tests.tiny_run import BASE_SIZE, BASE_TOKENIZER, REPOSITORY, write_tokenizer
from tests.trainer_process import FIXED_FLAGS
from trainers.train_gpt_v2 import main

NUM_CODES = 24
CONFIG = replace(
    TINY,
    feature_dim=1024,
    number_text_tokens=BASE_SIZE,
    max_text_tokens=60,
    max_mel_tokens=200,
    number_mel_codes=NUM_CODES + 2,
    start_mel_token=NUM_CODES,
    stop_mel_token=NUM_CODES + 1,
    pe_length=800,
)
CLIPS_OF_A_SPEAKER = 6


def make_speaking_project(workspace: Path, *, published: bool = False) -> Project:
    """Make the project `tiny`: twelve clips of two speakers preprocessed and paired, trained two steps.

    Args:
        workspace: where the project is made.
        published: with the files of the published model in small, both halves, in place of built-in codes.
    """
    project = Project(workspace / "tiny")
    for folder in (project.config.parent, project.tokenizer.parent, project.dataset / "audio"):
        folder.mkdir(parents=True)
    settings = make_settings(name="tiny", manifest=project.manifest, base=project.config.parent)
    write_json(project.root / "project.json", settings.model_dump(mode="json"))
    base = project.config.parent
    if published:
        write_acoustic_files(base)
    else:
        project.config.write_text(yaml.safe_dump({"gpt": asdict(CONFIG)}))
        torch.save(random_model(CONFIG, seed=0).state_dict(), project.base_checkpoint)
    project.base_tokenizer.write_bytes(BASE_TOKENIZER.read_bytes())
    write_tokenizer(project.tokenizer, num_appended=320)
    write_utterances(project.manifest, [_copied(clip, project) for clip in demo_clips()])
    preprocess(
        Preprocess(
            manifest=project.manifest,
            output_dir=project.preprocessed,
            config=project.config,
            gpt_checkpoint=project.base_checkpoint,
            backend="indextts2" if published else "builtin",
            speech_encoder=base / "w2v-bert-2.0",
            semantic_codec=base / "semantic_codec/model.safetensors",
            stats=base / "wav2vec2bert_stats.pt",
            val_ratio=0.34,
            device="cpu",
            num_workers=1,
        )
    )
    for split in ("train", "val"):
        pairs = build_pairs(read_utterances(project.utterances(split)), 1, seed=0).pairs
        write_pairs(project.pairs(split), pairs)
    assert main(trainer_flags(project, max_steps=2, save_interval=1)) == 0
    (project.run_dir / ".lock").write_text("")  # its trainer has ended, but this process is alive
    return project


def trainer_flags(project: Project, **changes: object) -> list[str]:
    """Return the flags that train the project on the CPU, in batches of 2."""
    flags = {
        "train_manifest": project.pairs("train"),
        "val_manifest": project.pairs("val"),
        "tokenizer": project.tokenizer,
        "config": project.config,
        "base_checkpoint": project.base_checkpoint,
        "output_dir": project.run_dir,
        "batch_size": 2,
        **changes,
    }
    return [
        "--allow-cpu",
        *FIXED_FLAGS,
        *(f"--{name.replace('_', '-')}={value}" for name, value in flags.items()),
    ]


def clips_of(project: Project) -> list[Utterance]:
    return read_utterances(project.manifest)


def write_adapter(project: Project, path: Path) -> None:
    """Write an adapter without tensors, with the record of the project's best model as that of a LoRA."""
    meta = json.loads((project.run_dir / "best.json").read_text()) | {"settings": {"lora_rank": 2}}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({}, path, {"checkpoint": json.dumps({"meta": meta})})


def demo_clips() -> list[Utterance]:
    """Return some clips of the demo's first two speakers."""
    found = sorted(read_utterances(REPOSITORY / "demo/manifest.jsonl"), key=lambda clip: clip.speaker)
    speakers = [list(clips)[:CLIPS_OF_A_SPEAKER] for _, clips in groupby(found, lambda clip: clip.speaker)]
    return [clip for clips in speakers[:2] for clip in clips]


def _copied(clip: Utterance, project: Project) -> Utterance:
    return replace(clip, audio=Path(shutil.copy(clip.audio, project.dataset / "audio")))
