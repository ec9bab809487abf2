"""Whether what a manifest or pairs say of their feature store is true."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from indextts.data.feature_store import FeatureStore
from indextts.data.findings import Findings
from indextts.errors import UserError


@dataclass(frozen=True)
class Stored:
    """Where the features of an utterance are; `num_codes` is what its line says, if it does."""

    features: Path
    key: str
    num_codes: int | None


def check_features(stored: Mapping[str, Stored], findings: Findings) -> None:
    """Check utterances, by id, against their feature stores, which are read whole."""
    stores = {}
    for path in sorted({each.features for each in stored.values()}):
        try:
            stores[path] = FeatureStore.open(path)
            for file in stores[path].damaged_files():
                findings.add("files of the feature store are damaged", str(file))
        except UserError as error:
            stores.pop(path, None)
            findings.add("feature stores cannot be read", str(error))
    for id, each in sorted(stored.items()):
        store = stores.get(each.features)
        if store is None:
            continue
        if each.key not in store:
            findings.add("utterances are not in their feature store", id)
        elif each.num_codes not in (None, store.num_codes(each.key)):
            found = f"{id}: {each.num_codes}, the store has {store.num_codes(each.key)}"
            findings.add("numbers of codes are not those of the feature store", found)
