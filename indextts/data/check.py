"""Data check: reports on a manifest and on pairs files."""

from pathlib import Path

from indextts.commands.data import CheckData
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.check_pairs import check_features, check_pairs, check_split
from indextts.data.manifest import read_utterances
from indextts.data.on_ray.cluster import running_on
from indextts.data.quality import summary
from indextts.data.quality.clips import MapTasks, measure_clips
from indextts.data.quality.files import REPORT_NAME, write_files
from indextts.data.quality.heard import hear_clips, load_chosen
from indextts.data.quality.ratings import rate_clips
from indextts.data.quality.text_fit import length_fit, text_fit
from indextts.data.quality.verdicts import judge
from indextts.data.quality.voices import hear_voices
from indextts.data.report import Findings, Report
from indextts.data.review import check_folder, edited, read_decisions
from indextts.data.text_report import report_texts, text_notices
from indextts.errors import disk_errors
from indextts.system.amounts import counted
from indextts.system.files import write_bytes
from indextts.text.readings import options_of


def check(command: CheckData) -> list[Report]:
    """Return the reports on all files of the command; a UserError for an invalid line or a failed write."""
    options = options_of(command)
    reports = []
    with running_on(command.engine, command.ray_address):
        if command.train_manifest is not None:
            reports.append(_check_manifest(command.train_manifest, command, options))
        if command.train_pairs is not None:
            reports.append(check_pairs(command.train_pairs, command.train_manifest))
        if command.val_pairs is not None:
            reports.append(check_pairs(command.val_pairs))
        if command.train_pairs is not None and command.val_pairs is not None:
            reports.append(check_split(command.train_pairs, command.val_pairs))
    if command.report_dir is not None:
        with disk_errors(f"--report-dir {command.report_dir}"):
            command.report_dir.mkdir(parents=True, exist_ok=True)
            write_bytes(command.report_dir / REPORT_NAME, ("\n\n".join(map(str, reports)) + "\n").encode())
    return reports


def _check_manifest(path: Path, command: CheckData, options: NormalizerOptions) -> Report:
    """Return the report on a manifest of utterances, raw or preprocessed, after measuring every recording.

    Corrected texts of the review replace those of the manifest.
    """
    report_dir = command.report_dir
    decisions = read_decisions(path)
    utterances = [edited(utterance, decisions) for utterance in read_utterances(path)]
    # Loaded first, so that an unusable recognizer does not cost the time of the measures.
    recognizer = load_chosen(command) if command.asr else None
    map_tasks: MapTasks | None = None
    if command.engine == "ray":
        from indextts.data.on_ray.checking import measure_on_ray as map_tasks  # Ray is optional
    clips = measure_clips(utterances, report_dir, command.num_workers, options, map_tasks)
    if recognizer is not None:
        hear_clips(clips, recognizer, report_dir, options)
    if command.quality == "full":
        rate_clips(clips, report_dir, command.num_workers)
        if command.voice_encoder is not None:
            hear_voices(clips, command.voice_encoder, report_dir)
    fit = text_fit([(clip.utterance.speaker, clip.heard) for clip in clips if clip.heard])
    lengths = length_fit(
        [clip.utterance.speaker for clip in clips],
        [clip.text.num_syllables if clip.text.is_mostly_own else 0.0 for clip in clips],
        [clip.speech_s for clip in clips],
    )
    for place, clip in enumerate(clips):
        clip.measures.update(lengths.measures(place))
    judge(clips, command, fit)
    findings = Findings()
    summary.add_problems(clips, command, lengths, findings)
    check_features(
        {
            u.id: (u.features, u.features_key, u.num_codes)
            for u in utterances
            if u.features and u.features_key
        },
        findings,
    )
    overview = summary.summarise(clips, command, lengths, findings)
    texts = report_texts(utterances, options, [clip.heard.text if clip.heard else None for clip in clips])
    notices = [*(notice.text for notice in overview.notices), *text_notices(texts, options)]
    if report_dir is not None:
        with disk_errors(f"--report-dir {report_dir}"):
            write_files(report_dir, clips, command, options, overview, texts)
    is_beside = report_dir is not None and report_dir.resolve() == check_folder(path).resolve()
    if overview.num_rejected and not is_beside:
        notices.append(
            f"later stages still use {counted(overview.num_rejected, 'rejected utterance')}; check with "
            f"--report-dir {check_folder(path)} to skip them"
        )
    facts = [
        *summary.facts(clips, overview, fit, command, options.language),
        f"normaliser: {options.summary} ({options.fingerprint})",
    ]
    return Report(f"{path}: utterances", facts, notices, findings.lines())
