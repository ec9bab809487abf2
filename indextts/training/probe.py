"""Resume check: losses on a few fixed validation samples, saved with a checkpoint, compared after a resume.

Weights, data, precision and code all affect these losses. So a faulty restore is reported before the first
step, and a correct one is confirmed.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from indextts.models.gpt.model import UnifiedVoice
from indextts.training.batches import Sample
from indextts.training.run import Inputs
from indextts.training.validate import ValidationSettings, validate

logger = logging.getLogger(__name__)

NUM_SAMPLES = 2  # the shortest: at the published size a CPU takes a few seconds for them
# Relative, where versions, device or precision changed. Rounding of other kernels stays below; a moved text
# row or a lost layer does not.
TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2, "float16": 1e-2}
SAME_GPU = 0.1  # of it, since a GPU may choose other kernels; on the same CPU the losses are equal


class Probe:
    """Fixed samples of a validation set: the shortest readable ones."""

    def __init__(self, inputs: Inputs) -> None:
        val_set = inputs.val_set

        num_codes = val_set.num_codes.tolist()
        shortest = sorted(
            range(len(val_set)), key=lambda index: (num_codes[index], val_set.pairs.id_of(index))
        )
        readable = (index for index in shortest if isinstance(val_set[index], Sample))
        self._inputs = inputs
        self._samples = val_set.subset(list(islice(readable, NUM_SAMPLES)))

    def losses(self, model: UnifiedVoice) -> dict[str, float | str] | None:
        """Return the losses of `model`, and digests of the samples' texts and features.

        None if a sample is unreadable: that must not prevent a save or a resume.
        """
        samples = [self._samples[index] for index in range(len(self._samples))]
        readable = [sample for sample in samples if isinstance(sample, Sample)]
        if not readable or len(readable) < len(samples):
            return None
        settings = ValidationSettings(self._inputs, batch_size=NUM_SAMPLES)
        validation = validate(model, self._samples, settings, should_stop=lambda: False)
        assert validation is not None
        means = validation.means
        return {"text_loss": means.text_loss, "mel_loss": means.mel_loss, **_digests(readable)}


def compare(
    before: Mapping[str, Any],
    now: Mapping[str, float | str] | None,
    before_environment: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> None:
    """Log whether the losses equal those saved with the checkpoint, and if not, what differs.

    Args:
        before, now: results of `Probe.losses`.
        before_environment, environment: versions, device and precision, as in `CheckpointMeta`.
    """
    if now is None:
        logger.warning("Cannot compare the losses on the fixed samples: one of the samples is unreadable")
        return
    tolerance = _tolerance(before_environment, environment)
    numbers = [(float(before[name]), float(now[name])) for name in ("text_loss", "mel_loss")]
    losses = "text_loss {:.5f} -> {:.5f}, mel_loss {:.5f} -> {:.5f}".format(*numbers[0], *numbers[1])
    if all(abs(new - old) <= tolerance * abs(old) for old, new in numbers):
        logger.info("The losses on the fixed samples match those at the save: %s", losses)
        return
    reasons = []
    if before["texts"] != now["texts"]:
        reasons.append("the texts of the fixed samples, or their tokenization")
    if before["features"] != now["features"]:
        reasons.append("the features of the fixed samples")
    reasons += [
        f"{name} ({before_environment.get(name)} -> {value})"
        for name, value in environment.items()
        if ({"processes": 1} | dict(before_environment)).get(name) != value
    ]
    logger.warning(
        "The losses on the fixed samples changed since the save: %s. Differences: %s",
        losses,
        "; ".join(reasons) or "none that the checkpoint records; check whether code or a library changed",
    )


def _tolerance(before: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    """Return the relative difference that rounding explains between two environments."""
    of_precision = max(
        TOLERANCE.get(str(each.get("arithmetic")), TOLERANCE["float32"]) for each in (before, now)
    )
    if before != now:
        return of_precision
    return 0.0 if now.get("device") == "cpu" else SAME_GPU * of_precision


def _digests(samples: Sequence[Sample]) -> dict[str, str]:
    texts, features = hashlib.sha256(), hashlib.sha256()
    for sample in samples:
        texts.update(sample.text_ids.numpy().tobytes())
        for array in (sample.codes, sample.condition, sample.emo_vec):
            features.update(array.numpy().tobytes())
    return {"texts": texts.hexdigest(), "features": features.hexdigest()}
