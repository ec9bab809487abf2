"""Whether what a manifest or pairs say of their feature store is true."""

from collections.abc import Mapping
from pathlib import Path

from indextts.data.feature_store import FeatureStore
from indextts.data.findings import Findings
from indextts.errors import UserError


def check_features(
    codes: Mapping[str, tuple[Path, int]], prompts: Mapping[str, Path], findings: Findings
) -> None:
    """Check utterances against their feature stores, which are read whole.

    Args:
        codes: id -> store and number of codes.
        prompts: id -> store.
        findings: gets what is wrong.
    """
    folder_of = dict(prompts) | {id: folder for id, (folder, _) in codes.items()}
    stores = {}
    for folder in sorted(set(folder_of.values())):
        try:
            stores[folder] = FeatureStore.open(folder)
        except UserError as error:
            findings.add("feature stores cannot be read", str(error))
            continue
        for file in stores[folder].damaged_files():
            findings.add("files of the feature store are damaged", str(file))
    for id in sorted(folder_of):
        store = stores.get(folder_of[id])
        if store is None:
            continue
        if id not in store:
            findings.add("utterances are not in their feature store", id)
        elif id in codes and store.num_codes(id) != codes[id][1]:
            found = f"{id}: {codes[id][1]}, the store has {store.num_codes(id)}"
            findings.add("numbers of codes are not those of the feature store", found)
