"""Tiny training set for tests: random codes, real texts, the small base tokenizer of IndexTTS-2.0."""

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from demo.make_base_checkpoint import random_model
from indextts.commands.bases import BASES
from indextts.commands.train import Train
from indextts.data.encoding import encoders_identity
from indextts.data.feature_store import FeatureStore, StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Pair, write_pairs
from indextts.data.pair_columns import PairColumns
from indextts.data.pair_index import load_index
from indextts.models.gpt.config import GPTConfig, config_for, load_config
from indextts.models.gpt.model import UnifiedVoice
from indextts.planning.restore_plan import plan_from_meta
from indextts.runs.restore_rows import plan_text
from indextts.system.log_lines import log_to_stdout
from indextts.text.bases import base_tokenizer, load_tokenizer
from indextts.text.tokenizer import Tokenizer
from indextts.training import loop
from indextts.training.batches import MicroBatch, PairDataset, open_stores, usable_pairs
from indextts.training.groups import count_tokens
from indextts.training.loop import accumulate
from indextts.training.losses import LossSums
from indextts.training.run import Run
from tests import chosen_base
from tests.byte_ranks import write_ranks
from tests.tiny_gpt import TINY
from tests.tokenizers import extend
from trainers.train_gpt_v2 import main

REPOSITORY = Path(__file__).resolve().parent.parent
BASE_TOKENIZER = REPOSITORY / "tests/base_2.0/bpe.model"
BASE_SIZE = 400
CONFIG = replace(TINY, number_text_tokens=BASE_SIZE, max_text_tokens=60)
SENTENCES = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").split("\n")[:60]

# what a run would choose for its machine, so that a test means the same on every machine
TYPED: dict[str, object] = {
    "batch_size": 3,
    "grad_accumulation": 2,
    "batch_tokens": 0,
    "num_workers": 0,
    "grad_checkpointing": False,
    "compile": False,
    "amp": False,
}


@dataclass(frozen=True)
class TinyRun:
    """Files of a tiny run; `flags` are the flags of a trainer that uses them."""

    folder: Path

    @property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.model")

    @property
    def base_size(self) -> int:
        """The number of tokens of the base."""
        return load_tokenizer(base_tokenizer(self.folder / "base/gpt.pth")).size

    def resize_tokenizer(self, by: int) -> int:
        """Write the tokenizer again with `by` more or fewer pieces, and return its size."""
        num_appended = self.tokenizer.size - self.base_size + by
        base = base_tokenizer(self.folder / "base/gpt.pth")
        write_tokenizer(self.folder / "tokenizer.model", num_appended, base)
        return self.tokenizer.size

    @property
    def config(self) -> GPTConfig:
        """The config of the base."""
        return config_for(load_config(self.folder / "base/config.yaml"), self.base_weights)

    @property
    def base_weights(self) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = torch.load(self.folder / "base/gpt.pth", weights_only=True)
        return weights

    @property
    def output(self) -> Path:
        return self.folder / "run"

    @property
    def log(self) -> str:
        return (self.output / "train.log").read_text(encoding="utf-8")

    def flags(self, **changes: object) -> list[str]:
        """Return the trainer's flags: batches of 3, two batches per step, 4 steps per epoch, no warm-up."""
        flags = {
            "train_manifest": self.folder / "train_pairs.jsonl",
            "val_manifest": self.folder / "val_pairs.jsonl",
            "tokenizer": self.folder / "tokenizer.model",
            "config": self.folder / "base/config.yaml",
            "base_checkpoint": self.folder / "base/gpt.pth",
            "output_dir": self.output,
            "epochs": 3,
            **TYPED,
            "learning_rate": 0.01,
            "warmup_steps": 0,
            "log_interval": 2,
            "val_interval": 3,
            "save_interval": 2,
            "allow_cpu": "",  # also where the GPU is hidden from the tests
            **changes,
        }
        return [
            flag(name, value)
            for name, values in flags.items()
            for value in (values if isinstance(values, list) else [values])
            if value is not None
        ]

    def train(self, **changes: object) -> int:
        """Run the trainer in this process; return its exit status."""
        log_to_stdout()
        return main(self.flags(**changes))


def flag(name: str, value: object) -> str:
    """Return a flag as typed; "" is a switch that is on."""
    name = name.replace("_", "-")
    if value is False:
        return f"--no-{name}"
    return f"--{name}" if value is True or value == "" else f"--{name}={value}"


def make_tiny_run(
    folder: Path,
    num_train: int = 22,
    num_codes: int | None = None,
    text: str | None = None,
    dropout: float = 0.1,
    model: str | None = None,
) -> TinyRun:
    """Write base, tokenizer, features and pairs; 22 pairs make 8 micro-batches of 3, the last of 1.

    Args:
        num_codes, text: of every utterance; None for different values.
        model: name of the published model that the base imitates; None for that of `pytest --base`.
    """
    model = model or chosen_base.name
    base = folder / "base"
    base.mkdir(parents=True)
    config = CONFIG
    if BASES[model].reads_style:
        tokenizer = load_tokenizer(write_ranks(base).rename(base / BASES[model].tokenizer_file))
        config = replace(
            CONFIG, base=model, number_text_tokens=tokenizer.size, max_text_tokens=200, style_dim=12
        )
        write_tokenizer(folder / "tokenizer.model", num_appended=200, base=tokenizer.path)
    else:
        (base / "bpe.model").write_bytes(BASE_TOKENIZER.read_bytes())
        write_tokenizer(folder / "tokenizer.model", num_appended=320)
    (base / "config.yaml").write_text(yaml.safe_dump({"gpt": asdict(replace(config, dropout=dropout))}))
    torch.save(base_model(config).state_dict(), base / "gpt.pth")
    write_features(folder / "features", num_train + 8, num_codes, config=config)
    write_pairs(
        folder / "train_pairs.jsonl", [pair(folder, i, (i + 1) % num_train, text) for i in range(num_train)]
    )
    val = range(num_train, num_train + 7)
    write_pairs(folder / "val_pairs.jsonl", [pair(folder, i, i + 1, text) for i in val])
    return TinyRun(folder)


@cache  # building the modules takes longer than all the rest of a tiny run
def base_model(config: GPTConfig) -> UnifiedVoice:
    return random_model(config, seed=0)


def load_pairs(manifests: Sequence[Path], tokenizer: Tokenizer, config: GPTConfig) -> PairDataset:
    """Return the pairs of `manifests`, as the trainer loads them."""
    indexes = [load_index(path, tokenizer) for path in manifests]
    return usable_pairs(indexes, open_stores(indexes, config), config)


def dataset_of(
    dataset: PairDataset, pairs: Sequence[Pair], text_ids: Sequence[np.ndarray] = ()
) -> PairDataset:
    """Return a data set of `pairs` over the stores of `dataset`, by default with its token ids."""
    return PairDataset(PairColumns.of(pairs, text_ids or text_ids_of(dataset)), dataset.stores)


def text_ids_of(dataset: PairDataset) -> list[np.ndarray]:
    return [dataset.pairs.text_ids(index) for index in range(len(dataset))]


def write_tokenizer(path: Path, num_appended: int, base: Path = BASE_TOKENIZER) -> None:
    """Write a tokenizer with `num_appended` pieces more than the base."""
    path.write_bytes(extend(base, SENTENCES, load_tokenizer(base).size + num_appended))


def write_features(
    folder: Path,
    count: int,
    num_codes: int | None = None,
    *,
    backend: tuple[str, str] = ("test", "backend"),
    config: GPTConfig = CONFIG,
) -> Path:
    """Write a feature store and return its path.

    Args:
        backend: name and identity of the speech backend.
    """
    random = np.random.default_rng(0)
    info = StoreInfo(
        *backend,
        encoders_identity(base_model(config)),
        config.model_dim,
        config.condition_shape[0],
        base=config.base,
        condition_dim=config.condition_shape[1] if config.of_base.reads_style else 0,
    )
    writer = FeatureStoreWriter(folder, info)
    for number in range(count):
        writer.add(
            EncodedUtterance(
                id=f"u{number}",
                key=key(number),
                codes=np.repeat(random.integers(0, 8, 8), 3)[: num_codes or random.integers(10, 24)],
                condition=random.standard_normal(config.condition_shape, dtype=np.float32),
                emo_vec=random.standard_normal(config.model_dim, dtype=np.float32),
            )
        )
    writer.flush()
    return writer.path


def pair(folder: Path, target: int, prompt: int, text: str | None = None) -> Pair:
    return Pair(
        id=f"u{target}__u{prompt}",
        speaker="s",
        prompt_id=f"u{prompt}",
        target_id=f"u{target}",
        target_text=text or SENTENCES[target % len(SENTENCES)],
        target_num_codes=20,
        target_duration_s=0.4,
        prompt_duration_s=0.4,
        features=features_of(folder),
        prompt_key=key(prompt),
        target_key=key(target),
        target_text_origin="agreed" if target % 2 else "given",
    )


def key(number: int | str) -> str:
    """Return the key of the features of utterance `number`, or of its id."""
    return f"{int(str(number).removeprefix('u')):064x}"


def features_of(folder: Path) -> Path:
    """Return the feature store of the run in `folder`."""
    [path] = (folder / "features").glob("*.json")
    return path


def stored_utterances(store: FeatureStore) -> list[EncodedUtterance]:
    """Return all utterances in a store that `write_features` wrote."""
    return [
        EncodedUtterance(f"u{int(key, 16)}", key, store.codes(key), store.condition(key), store.emo_vec(key))
        for key in store.keys
    ]


def rewrite_features(run: TinyRun, change: Callable[[EncodedUtterance], EncodedUtterance]) -> None:
    """Write the feature store again, with changed utterances."""
    store = FeatureStore.open(features_of(run.folder))
    utterances = stored_utterances(store)
    shutil.rmtree(store.path.parent)
    writer = FeatureStoreWriter(store.path.parent, store.info)
    for utterance in utterances:
        writer.add(change(utterance))
    writer.flush()


def array_file(run: TinyRun, id: str, name: str) -> Path:
    """Return the array file of an utterance that has a shard of its own."""
    for path in (run.folder / "features").glob(f"*/*/shard_*/{name}.npy"):
        if np.load(path.parent / "index.npy")["key"].tobytes().hex() == key(id):
            return path
    raise AssertionError(id)


def accumulate_group(this: Run, group: Sequence[MicroBatch]) -> tuple[LossSums, Tensor] | tuple[None, None]:
    """Leave the gradients of one step's loss in the parameters, as the loop does."""
    return accumulate(this, group, count_tokens(group, this.inputs.ranks)[0])


@contextmanager
def signalled_in_step(step: int, number: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """Send a signal to this process whenever a training computes `step`."""

    def signalled(this: Run, *given: Any) -> object:
        if this.state.step == step - 1:
            signal.raise_signal(number)
        return accumulate(this, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "accumulate", signalled)
        yield


def describe_restore(command: Train, num_processes: int = 1) -> str | None:
    """Return the restore plan of `command` as `--plan` prints it; None if only the weights can decide."""
    plan = plan_from_meta(command, num_processes)
    return None if plan is None else plan_text(plan)
