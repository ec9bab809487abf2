"""The data report: each clip judged, what that says of the set, and all that is wrong with the manifest."""

from collections.abc import Sequence
from pathlib import Path

from indextts.commands.data import CheckData, Engine
from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions, chosen_options
from indextts.commands.quality_limits import QualityLimits
from indextts.data.check_pairs import Stored, check_features, check_pairs, check_split
from indextts.data.manifest import Utterance, read_numbered_utterances
from indextts.data.on_ray.cluster import running_on
from indextts.data.quality import summary
from indextts.data.quality.clips import measure_clips
from indextts.data.quality.files import REPORT_NAME, read_known, write_files
from indextts.data.quality.verdicts import judge
from indextts.data.report import Findings, Report
from indextts.data.review import check_folder, edited, read_decisions
from indextts.errors import UserError

CODES_PER_SECOND = 50
MAX_CODES_OFF = 0.2 * CODES_PER_SECOND  # codes of a padded batch (its longest clip's) are off by more


def check(command: CheckData) -> list[Report]:
    """Return the reports on all files that the command names.

    Raises:
        UserError: a line is no utterance or no pair, or the report cannot be
            written.
    """
    with running_on(command.engine, command.ray_address):
        return _check(command)


def _check(command: CheckData) -> list[Report]:
    options = chosen_options(command)
    reports = []
    if command.train_manifest is not None:
        reports.append(
            check_manifest(
                command.train_manifest,
                command,
                command.report_dir,
                command.num_workers,
                options,
                command.engine,
            )
        )
    if command.train_pairs is not None:
        reports.append(check_pairs(command.train_pairs, command.train_manifest, options))
    if command.val_pairs is not None:
        reports.append(check_pairs(command.val_pairs, options=options))
    if command.train_pairs is not None and command.val_pairs is not None:
        reports.append(check_split(command.train_pairs, command.val_pairs))
    if command.report_dir is not None:
        _write_text(command.report_dir / REPORT_NAME, "\n\n".join(map(str, reports)) + "\n")
    return reports


def check_manifest(
    path: Path,
    limits: QualityLimits | None = None,
    report_dir: Path | None = None,
    num_workers: int = 1,
    options: NormalizerOptions = DEFAULT_OPTIONS,
    engine: Engine = "local",
) -> Report:
    """Return the report on a manifest of utterances, raw or preprocessed; every recording is listened to.

    Texts are those of the review, where there is one.

    Args:
        report_dir: gets the files of indextts/data/quality/files.py.
        num_workers: processes; 0 for as many as are worth it.
        options: how the texts are read.

    Raises:
        UserError: a line is no utterance, or the report cannot be written.
    """
    limits = limits or QualityLimits()
    decisions = read_decisions(path).of
    numbered = [(number, edited(u, decisions)) for number, u in read_numbered_utterances(path)]
    utterances = [utterance for _, utterance in numbered]
    clips = measure_clips(utterances, read_known(report_dir), num_workers, options, engine)
    verdicts = judge(utterances, clips, limits)
    findings = Findings()
    summary.add_problems(utterances, clips, verdicts, limits, findings)
    _check_codes(path, numbered, findings)
    stored = {
        u.id: Stored(u.features, u.features_key, u.num_codes)
        for u in utterances
        if u.features and u.features_key
    }
    check_features(stored, findings)
    notices = summary.notices(utterances, verdicts, limits)
    if report_dir is not None:
        write_files(report_dir, utterances, clips, verdicts, limits, options)
    num_rejected = sum(verdict.is_rejected for verdict in verdicts)
    if num_rejected and (report_dir is None or report_dir.resolve() != check_folder(path).resolve()):
        notices.append(
            f"the {num_rejected} rejected utterances are still used: with --report-dir {check_folder(path)} "
            "they are left out"
        )
    facts = [
        *summary.facts(utterances, clips, verdicts, limits),
        f"texts are read with: {options.summary} ({options.fingerprint})",
    ]
    return Report(f"{path}: utterances", facts, notices, findings.lines())


def _check_codes(path: Path, numbered: Sequence[tuple[int, Utterance]], findings: Findings) -> None:
    """Check that a preprocessed manifest's numbers of codes are those of its durations."""
    for number, utterance in numbered:
        if utterance.num_codes is None:
            continue
        if abs(utterance.num_codes - utterance.duration_s * CODES_PER_SECOND) > MAX_CODES_OFF:
            codes = f"{path}:{number} ({utterance.num_codes} codes in {utterance.duration_s:.2f} s)"
            findings.add(f"utterances do not have {CODES_PER_SECOND} codes per second", codes)


def _write_text(path: Path, text: str) -> None:
    aside = path.with_name(f".tmp-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise UserError(f"--report-dir {path.parent}: cannot be written ({error.strerror})") from None
