"""The codebook of a run: semantic codes of different codebooks are numbers without a common meaning.

feature stores --common_codebook--> Codebook --plan_restore--> the same as that of the checkpoint?
"""

from collections.abc import Mapping
from pathlib import Path

from indextts.data.feature_store import StoreInfo
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.restore_facts import Codebook, codebook_identity


def common_codebook(stores: Mapping[Path, StoreInfo]) -> Codebook | None:
    """Return the codebook of all feature stores; None if another program computed all of them.

    Raises:
        UserError: with status 3 if the codes of two stores are of different codebooks.
    """
    found: Codebook | None = None
    for path, info in stores.items():
        if info.is_imported:
            continue  # its codec is unknown; the trainer warns
        codebook = Codebook(codebook_identity(info.backend_identity), path)
        if found is not None and codebook.identity != found.identity:
            raise UserError(
                f"{path} and {found.store} have codes of different codebooks ({codebook.identity[:16]} and "
                f"{found.identity[:16]}); preprocess all recordings of a run with the same backend and "
                "codec, and build the pairs again",
                RESUME_REFUSED,
            )
        found = codebook
    return found
