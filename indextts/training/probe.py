"""What the model gives on a few fixed validation samples: kept with a checkpoint, compared after a resume.

Weights, data, arithmetic and code all enter into it. So a resume that restored anything wrongly is seen
before its first step, and one that restored all says so.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from indextts.models.gpt.model import UnifiedVoice
from indextts.training.batches import Sample
from indextts.training.run import Inputs
from indextts.training.validate import validate

logger = logging.getLogger(__name__)

NUM_SAMPLES = 2  # the shortest: at the published size a CPU takes some seconds for them
# Relative. What other kernels round otherwise stays below; a text row that moved or a lost layer does not.
TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2, "float16": 1e-2}


class Probe:
    """The fixed samples of a validation set: its shortest that can be read."""

    def __init__(self, inputs: Inputs) -> None:
        val_set = inputs.val_set

        def length(index: int) -> tuple[int, str]:
            pair = val_set.pairs[index]
            return val_set.stores[pair.features].num_codes(pair.target_key), pair.id

        shortest = sorted(range(len(val_set)), key=length)
        readable = (index for index in shortest if isinstance(val_set[index], Sample))
        self._inputs = inputs
        self._samples = val_set.subset(list(islice(readable, NUM_SAMPLES)))

    def losses(self, model: UnifiedVoice) -> dict[str, float | str] | None:
        """Return the losses of `model`, and digests of what they were made from.

        None where one of the samples cannot be read: that shall stop neither a save nor a resume.
        """
        samples = [self._samples[index] for index in range(len(self._samples))]
        readable = [sample for sample in samples if isinstance(sample, Sample)]
        if not readable or len(readable) < len(samples):
            return None
        validation = validate(
            model,
            self._samples,
            collate=self._inputs.collate,
            backend=self._inputs.attention,
            batch_size=NUM_SAMPLES,
            max_batches=0,
            first_new_token=0,
            dtype=self._inputs.dtype,
            should_stop=lambda: False,
        )
        assert validation is not None
        means = validation.means
        return {"text_loss": means.text_loss, "mel_loss": means.mel_loss, **_digests(readable)}


def compare(
    before: Mapping[str, Any],
    now: Mapping[str, float | str] | None,
    before_environment: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> None:
    """Log whether the losses are those that the checkpoint was saved with, and if not, what differs.

    Args:
        before, now: what `Probe.losses` gave.
        before_environment, environment: versions, device and arithmetic, as in `CheckpointMeta`.
    """
    if now is None:
        logger.warning("The losses on the fixed samples could not be compared: one cannot be read now")
        return
    tolerance = max(
        TOLERANCE.get(str(each.get("arithmetic")), TOLERANCE["float32"])
        for each in (before_environment, environment)
    )
    numbers = [(float(before[name]), float(now[name])) for name in ("text_loss", "mel_loss")]
    said = "text_loss {:.5f} -> {:.5f}, mel_loss {:.5f} -> {:.5f}".format(*numbers[0], *numbers[1])
    if all(abs(new - old) <= tolerance * abs(old) for old, new in numbers):
        logger.info("The losses on the fixed samples are those at the save: %s", said)
        return
    reasons = []
    if before["texts"] != now["texts"]:
        reasons.append("the fixed samples' texts, or how the tokenizer cuts them")
    if before["features"] != now["features"]:
        reasons.append("the fixed samples' features")
    reasons += [
        f"{name} ({before_environment.get(name)} -> {value})"
        for name, value in environment.items()
        if ({"processes": 1} | dict(before_environment)).get(name) != value
    ]
    logger.warning(
        "The losses on the fixed samples are not those at the save: %s. What differs: %s",
        said,
        "; ".join(reasons) or "nothing that the checkpoint knows of; did the code or a library change?",
    )


def _digests(samples: Sequence[Sample]) -> dict[str, str]:
    texts, features = hashlib.sha256(), hashlib.sha256()
    for sample in samples:
        texts.update(sample.text_ids.numpy().tobytes())
        for array in (sample.codes, sample.condition, sample.emo_vec):
            features.update(array.numpy().tobytes())
    return {"texts": texts.hexdigest(), "features": features.hexdigest()}
