"""Data check: reports on a manifest and on pairs files, and its output files.

    REPORT_DIR/                later stages use the verdicts in FOLDER_OF_THE_MANIFEST/check (data/review.py)
      report.txt               the printed reports
      overview.json            totals, reasons and histograms (summary.py)
      texts.json               forms that need a reading, texts with two readings (data/text_report.py)
      normalizer.json          version and options of the normaliser
      limits.json              the limits of the check, by the names of QualityLimits
      rejected.jsonl           {"id", "speaker", "audio", "text", "reasons": ["noisy", ...],
                                "said": the descriptions, ["low signal-to-noise ratio: 8.1 dB", ...]}
      clips.jsonl              {"id", "verdict": "good" | "warned" | "rejected",
                                "flags": [{"reason", "severity", "said"}, ...],
                                "measures": {...}: null if undefined,
                                "heard": the transcript of the recognizer, or null}
      measured/                measures of each recording (clips.py), and what models heard

The next check reuses measured/ for files with the same bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from indextts.commands.data import CheckData
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.quality_limits import QualityLimits
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import Pair, Utterance, read_pairs, read_utterances
from indextts.data.on_ray.cluster import running_on
from indextts.data.quality import summary
from indextts.data.quality.clips import Clip, MapTasks, measure_clips
from indextts.data.quality.heard import hear_clips, load_chosen
from indextts.data.quality.ratings import rate_clips
from indextts.data.quality.text_fit import length_fit, text_fit
from indextts.data.quality.verdicts import judge
from indextts.data.quality.voices import hear_voices
from indextts.data.report import Findings, Report, speaker_lines, spread
from indextts.data.review import REJECTED_NAME, check_folder, edited, read_decisions
from indextts.data.review_table import CLIPS_NAME
from indextts.data.text_report import TEXTS_NAME, TextReport, report_texts, text_notices
from indextts.errors import UserError, disk_errors
from indextts.system.amounts import counted
from indextts.system.files import write_bytes, write_json
from indextts.system.json_lines import write_json_lines
from indextts.text.readings import options_of

REPORT_NAME = "report.txt"


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
    recognizer = load_chosen(command, command.language) if command.asr else None
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
            _write_files(report_dir, clips, command, options, overview, texts)
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


def _write_files(
    folder: Path,
    clips: Sequence[Clip],
    limits: QualityLimits,
    options: NormalizerOptions,
    overview: summary.Overview,
    texts: TextReport,
) -> None:
    """Write all files but the printed reports; rejected.jsonl, which other stages read, is last."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / TEXTS_NAME, texts.model_dump())
    write_json(folder / summary.OVERVIEW_NAME, overview.model_dump())
    write_json_lines(folder / CLIPS_NAME, map(_clip_record, clips))
    write_json(folder / "normalizer.json", options.record)
    write_json(folder / "limits.json", {name: getattr(limits, name) for name in QualityLimits.model_fields})
    write_json_lines(folder / REJECTED_NAME, (_rejected_record(clip) for clip in clips if clip.is_rejected))


def _clip_record(clip: Clip) -> dict[str, object]:
    return {
        "id": clip.utterance.id,
        "verdict": clip.verdict,
        "flags": [
            {"reason": flag.reason, "severity": flag.severity, "said": flag.description}
            for flag in clip.flags
        ],
        "measures": {
            name: None if value is None else round(value, 3) for name, value in clip.measures.items()
        },
        "heard": clip.heard.text if clip.heard else None,
    }


def _rejected_record(clip: Clip) -> dict[str, object]:
    return {
        "id": clip.utterance.id,
        "speaker": clip.utterance.speaker,
        "audio": str(clip.utterance.audio),
        "text": clip.utterance.text,
        "reasons": [flag.reason for flag in clip.flags],
        "said": [flag.description for flag in clip.flags],
    }


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
    """Check utterances (store, key, number of codes if any, by id) against their stores, with every file."""
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
