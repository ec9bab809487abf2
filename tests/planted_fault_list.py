"""The faults that `tests.planted_faults` plants: each a small change such as a person makes by mistake."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault: `old` occurs once in the file at `path`, and `new` replaces it."""

    area: str
    name: str
    path: str
    old: str
    new: str


TRAINING = "training and resume"
DATA = "data and text"
PAGE = "page, jobs and speech"

FAULTS = (
    # ---- restore, saving, frozen rows, order of samples, the optimizer's matched set
    Fault(
        TRAINING,
        "rows are compared with pieces",
        "indextts/runs/restore.py",
        "return checkpoint.text_rows - 1 == run.vocabulary.size",
        "return checkpoint.text_rows == run.vocabulary.size",
    ),
    Fault(
        TRAINING,
        "the pieces of the base may differ",
        "indextts/runs/restore.py",
        "        if now != piece:\n",
        "        if now == 'absent':\n",
    ),
    Fault(
        TRAINING,
        "the optimizer restarts and the step does not",
        "indextts/training/start.py",
        '        logger.info("Restoring optimizer state...")\n        load_optimizer(',
        '        logger.info("Restoring optimizer state...")\n        (lambda *_: None)(',
    ),
    Fault(
        TRAINING,
        "the optimizer trains a copy of the new rows",
        "indextts/training/optim.py",
        "nn.Parameter(parameter.data[base_size:])",
        "nn.Parameter(parameter.data[base_size:].clone())",
    ),
    Fault(
        TRAINING,
        "one base row is trained",
        "indextts/training/optim.py",
        "nn.Parameter(parameter.data[base_size:]), base_size)",
        "nn.Parameter(parameter.data[base_size - 1 :]), base_size - 1)",
    ),
    Fault(
        TRAINING,
        "every epoch has the same order",
        "indextts/training/order.py",
        'derive_seed(seed, "order", epoch)',
        'derive_seed(seed, "order", 0)',
    ),
    Fault(
        TRAINING,
        "the next epoch starts where the last resume did",
        "indextts/training/order.py",
        "epoch, samples_done = epoch + 1, 0",
        "epoch, samples_done = epoch + 1, self.samples_done",
    ),
    Fault(
        TRAINING,
        "the meta file is renamed before its weights",
        "indextts/runs/owner.py",
        '    aside.replace(path)\n    meta_aside.replace(path.with_suffix(".json"))\n',
        '    meta_aside.replace(path.with_suffix(".json"))\n    aside.replace(path)\n',
    ),
    Fault(
        TRAINING,
        "a save shares its tensors with the training",
        "indextts/training/saving.py",
        "return value if value.data_ptr() in frozen_pointers else for_tensor(value, path)",
        "return value",
    ),
    Fault(
        TRAINING,
        "pruning deletes the best checkpoint",
        "indextts/runs/owner.py",
        "spare = [path for path in own[keep:] if path not in needed]",
        "spare = own[keep:]",
    ),
    # ---- import, check, normaliser, pairs
    Fault(
        DATA,
        "a prompt may say the target's sentence",
        "indextts/data/pairs.py",
        "if clip.features_key == target.features_key or self._texts[clip.id] == text:",
        "if clip.features_key == target.features_key:",
    ),
    Fault(
        DATA,
        "the limit of pairs of a speaker loses the remainder",
        "indextts/data/pairs.py",
        "return {target.id: each + (position < more)",
        "return {target.id: each",
    ),
    Fault(
        DATA,
        "a sentence is in training and in validation",
        "indextts/data/split.py",
        "val = [u for u in held_out if (u.speaker, text_key(u.text)) not in in_training]",
        "val = held_out",
    ),
    Fault(
        DATA,
        "a clip of a recording is split from the others",
        "indextts/data/split.py",
        'else ("recording", utterance.recording)',
        'else ("recording", utterance.id)',
    ),
    Fault(
        DATA,
        "digital silence counts as the noise of a recording",
        "indextts/data/quality/measures.py",
        "quantiles = np.quantile(power[is_sound], NOISE_QUANTILE, axis=0)",
        "quantiles = np.quantile(power, NOISE_QUANTILE, axis=0)",
    ),
    Fault(
        DATA,
        "clipping is looked for in the mean of the channels",
        "indextts/data/quality/measures.py",
        "np.any(np.abs(channels) >= FULL_SCALE, axis=1)",
        "np.abs(mono) >= FULL_SCALE",
    ),
    Fault(
        DATA,
        "half past is read as a quarter past",
        "indextts/text/number_rules.py",
        "    if minutes == 15:\n",
        "    if minutes in (15, 30):\n",
    ),
    Fault(
        DATA,
        "a date loses the last digit of its year",
        "indextts/text/number_rules.py",
        'text = pattern.sub(lambda match: " ".join(str(int(part)) for part in match.groups()), text)',
        'text = pattern.sub(lambda match: " ".join(str(int(part[:3])) for part in match.groups()), text)',
    ),
    Fault(
        DATA,
        "a Kaldi segment may end before it starts",
        "indextts/data/importing/kaldi.py",
        "is_span = math.isfinite(end_s) and 0 <= start_s < end_s",
        "is_span = True",
    ),
    Fault(
        DATA,
        "the fraction 0.5 of a subtitle is read as 5 ms",
        "indextts/data/importing/subtitles.py",
        'int(fraction.ljust(3, "0")) / 1000',
        "int(fraction) / 1000",
    ),
    # ---- page handlers, the door, jobs, speech, export
    Fault(
        PAGE,
        "a path outside the workspace is allowed",
        "indextts/webui/serving/security.py",
        "if not any(path.is_relative_to(root) for root in (self.workspace, *self.others)):",
        'if ".." in text:',
    ),
    Fault(
        PAGE,
        "a page on a share link has no password",
        "indextts/webui/serving/security.py",
        "if command.share or not is_loopback(command.host):",
        "if not is_loopback(command.host):",
    ),
    Fault(
        PAGE,
        "the record of a job keeps the passwords of the form",
        "indextts/projects/jobs/starting.py",
        "if not SECRET_NAME.search(name)}",
        "if name}",
    ),
    Fault(
        PAGE,
        "two jobs of a stage may run",
        "indextts/projects/jobs/starting.py",
        "        if job.folder.resolve() not in ended_by_then:\n",
        "        if job.folder.resolve() in ended_by_then:\n",
    ),
    Fault(
        PAGE,
        "a second stop is sent to the trainer",
        "indextts/projects/jobs/stopping.py",
        "if processes and not asked.exists():",
        "if processes:",
    ),
    Fault(
        PAGE,
        "a project keeps the codebook of another base",
        "indextts/projects/pipeline.py",
        "        codebook.unlink(missing_ok=True)  # one base may have it and the next not\n",
        "",
    ),
    Fault(
        PAGE,
        "repeated codes become likelier",
        "indextts/models/gpt/sampling.py",
        "torch.where(scores < 0, scores * penalty, scores / penalty)",
        "scores / penalty",
    ),
    Fault(
        PAGE,
        "top-p removes the best code",
        "indextts/models/gpt/sampling.py",
        "        is_excluded[..., :min_kept] = False\n",
        "",
    ),
    Fault(
        PAGE,
        "the stop code is played",
        "indextts/speech/synthesis/segments.py",
        "is_valid = (codes >= 0) & (codes < num_codes)",
        "is_valid = codes >= 0",
    ),
    Fault(
        PAGE,
        "an export writes the rows in the order of training",
        "indextts/speech/export/model_folder.py",
        "source = replace(source, weights=in_official_order(source.weights, order))",
        "source = replace(source, weights=dict(source.weights))",
    ),
)
