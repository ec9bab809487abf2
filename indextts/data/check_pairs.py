"""Checks of pairs files, of the training and validation split, and of feature stores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import Pair, Utterance, read_pairs, read_utterances
from indextts.data.report import Findings, Report, speaker_lines, spread
from indextts.errors import UserError
from indextts.system.amounts import counted


def check_pairs(path: Path, manifest: Path | None = None) -> Report:
    """Return the report on a pairs file; a UserError for an invalid pair.

    The check of the manifest judges the texts; here the manifest gives the speakers.
    """
    pairs = read_pairs(path)
    targets = {pair.target_id: pair for pair in pairs}
    hours = sum(target.target_duration_s for target in targets.values()) / 3600
    num_of = Counter(pair.speaker for pair in pairs)
    facts = [
        f"pairs: {len(pairs)}, {counted(len(targets), 'target')}, {hours:.2f} hours of targets",
        f"pairs per target: {spread(list(Counter(pair.target_id for pair in pairs).values()))}",
        *speaker_lines({name: str(num_of[name]) for name in sorted(num_of)}),
    ]
    findings = Findings()
    _check_voices(pairs, [] if manifest is None else read_utterances(manifest), findings)
    prompts = {pair.prompt_id: (pair.features, pair.prompt_key, None) for pair in pairs}
    targets_of = {p.target_id: (p.features, p.target_key, p.target_num_codes) for p in pairs}
    check_features({**prompts, **targets_of}, findings)
    return Report(f"{path}: pairs", facts, [], findings.lines())


def check_split(train: Path, val: Path) -> Report:
    """Return the report on validation targets in the training pairs; errors as for `check_pairs`."""
    train_pairs, val_pairs = read_pairs(train), read_pairs(val)
    train_ids = {pair.target_id for pair in train_pairs} | {pair.prompt_id for pair in train_pairs}
    targets = sorted({pair.target_id for pair in val_pairs})
    findings = Findings()
    for target in targets:
        if target in train_ids:
            findings.add("validation targets that are also in the training pairs", target)
    facts = [f"validation targets: {len(targets)}, utterances in training: {len(train_ids)}"]
    return Report(f"{train} and {val}: split", facts, [], findings.lines())


def _check_voices(pairs: Sequence[Pair], utterances: Sequence[Utterance], findings: Findings) -> None:
    """Check that prompt and target are different utterances of one speaker; `utterances` may be empty."""
    speaker_of = {utterance.id: utterance.speaker for utterance in utterances}
    for pair in pairs:
        if pair.prompt_id == pair.target_id:
            findings.add("pairs with the same utterance as prompt and target", pair.id)
        for id in (pair.target_id, pair.prompt_id):
            if utterances and id not in speaker_of:
                findings.add("utterances of pairs that are not in the manifest", f"{id} of {pair.id}")
            elif speaker_of.setdefault(id, pair.speaker) != pair.speaker:
                found = f"{id} is by {speaker_of[id]}, pair {pair.id} is by {pair.speaker}"
                findings.add("pairs with an utterance of another speaker", found)


def check_features(stored: Mapping[str, tuple[Path, str, int | None]], findings: Findings) -> None:
    """Check utterances against their feature stores; reads and verifies every file of the stores.

    Args:
        stored: feature store, key, and number of codes in the line, if any, by id.
    """
    stores = {}
    for path in sorted({features for features, _, _ in stored.values()}):
        try:
            stores[path] = FeatureStore.open(path)
            for file in stores[path].corrupt_files():
                findings.add("corrupt files of the feature store", str(file))
        except UserError as error:
            stores.pop(path, None)
            findings.add("unreadable feature stores", str(error))
    for id, (features, key, num_codes) in sorted(stored.items()):
        store = stores.get(features)
        if store is None:
            continue
        if key not in store:
            findings.add("utterances missing from their feature store", id)
        elif num_codes not in (None, store.num_codes(key)):
            found = f"{id}: {num_codes}, the store has {store.num_codes(key)}"
            findings.add("numbers of codes that differ from the feature store", found)
