"""Names of the check's measures, reasons, problems and notices, as ids of texts. No Gradio here."""

from indextts.data.quality.overview import Notice, Overview, Problem
from indextts.data.quality.reasons import REASON_OF, Flag
from indextts.system.messages import Message
from indextts.webui.language import t, text_of

MEASURES = {
    "duration_s": "data.measures.duration_s",
    "syllables_per_s": "data.measures.syllables_per_s",
    "snr_db": "data.measures.snr_db",
    "silence_percent": "data.measures.silence_percent",
    "rms_dbfs": "data.measures.rms_dbfs",
    "loudness_lufs": "data.measures.loudness_lufs",
    "bandwidth_hz": "data.measures.bandwidth_hz",
    "clipped_percent": "data.measures.clipped_percent",
    "end_db": "data.measures.end_db",
    "sig": "data.measures.sig",
    "bak": "data.measures.bak",
    "ovrl": "data.measures.ovrl",
    "bak_below": "data.measures.bak_below",
    "sig_below": "data.measures.sig_below",
    "music_db": "data.measures.music_db",
    "voice_deviation": "data.measures.voice_deviation",
    "halves_deviation": "data.measures.halves_deviation",
    "script_percent": "data.measures.script_percent",
    "error_percent": "data.measures.error_percent",
    "alignment": "data.measures.alignment",
}
REASONS = {
    "unreadable": "data.reasons.unreadable",
    "too_short": "data.reasons.too_short",
    "too_long": "data.reasons.too_long",
    "noisy": "data.reasons.noisy",
    "silent": "data.reasons.silent",
    "clipped": "data.reasons.clipped",
    "flat_tops": "data.reasons.flat_tops",
    "dropouts": "data.reasons.dropouts",
    "clicks": "data.reasons.clicks",
    "cut_end": "data.reasons.cut_end",
    "background": "data.reasons.background",
    "distorted": "data.reasons.distorted",
    "music": "data.reasons.music",
    "quiet": "data.reasons.quiet",
    "too_slow": "data.reasons.too_slow",
    "too_fast": "data.reasons.too_fast",
    "foreign": "data.reasons.foreign",
    "tigrinya": "data.reasons.tigrinya",
    "wrong_text": "data.reasons.wrong_text",
    "unheard_words": "data.reasons.unheard_words",
    "extra_words": "data.reasons.extra_words",
    "doubtful_text": "data.reasons.doubtful_text",
    "same_audio": "data.reasons.same_audio",
    "same_text": "data.reasons.same_text",
    "short": "data.reasons.short",
    "long": "data.reasons.long",
    "some_noise": "data.reasons.some_noise",
    "pauses": "data.reasons.pauses",
    "edges": "data.reasons.edges",
    "peaks": "data.reasons.peaks",
    "some_background": "data.reasons.some_background",
    "some_music": "data.reasons.some_music",
    "some_distortion": "data.reasons.some_distortion",
    "other_voice": "data.reasons.other_voice",
    "voice_change": "data.reasons.voice_change",
    "limited": "data.reasons.limited",
    "some_clicks": "data.reasons.some_clicks",
    "cut_start": "data.reasons.cut_start",
    "offset": "data.reasons.offset",
    "low_level": "data.reasons.low_level",
    "high_level": "data.reasons.high_level",
    "narrow_band": "data.reasons.narrow_band",
    "slow": "data.reasons.slow",
    "fast": "data.reasons.fast",
    "odd_rate": "data.reasons.odd_rate",
    "tigrinya_letter": "data.reasons.tigrinya_letter",
    "latin_left": "data.reasons.latin_left",
    "digits_left": "data.reasons.digits_left",
    "others_left": "data.reasons.others_left",
    "duration_off": "data.reasons.duration_off",
    "common_text": "data.reasons.common_text",
}
PROBLEMS = {
    "other_script": "data.problems.other_script",
    "too_many_rejected": "data.problems.too_many_rejected",
    "no_voice": "data.problems.no_voice",
}
NOTICES = {
    "few_speakers": "data.notices.few_speakers",
    "some_speakers": "data.notices.some_speakers",
    "dominant_speaker": "data.notices.dominant_speaker",
    "short_speakers": "data.notices.short_speakers",
}


def measure_name(measure: str) -> str:
    """Return the name of a measure with its unit; an unknown measure unchanged."""
    return t(MEASURES[measure]) if measure in MEASURES else measure


def reason_name(reason: str) -> str:
    """Return the name of a reason; an unknown reason unchanged."""
    return t(REASONS[reason]) if reason in REASONS else reason


def flag_text(flag: Flag) -> str:
    """Return the name of a flag's reason with the number or the name in its description."""
    known = REASON_OF.get(flag.reason)
    what = known.what if known else flag.reason
    detail = flag.description.removeprefix(what).removeprefix(": ")
    return f"{reason_name(flag.reason)}: {detail}" if detail else reason_name(flag.reason)


def problem_text(problem: Problem, overview: Overview) -> str:
    """Return a problem as a sentence; one without a code as the report has it."""
    if problem.code not in PROBLEMS:
        return problem.text
    values = {"count": problem.count, "total": overview.num_utterances}
    return _text(PROBLEMS[problem.code], values, problem.text)


def notice_text(notice: Notice) -> str:
    """Return a notice as a sentence; one without a code as the report has it."""
    return _text(NOTICES[notice.code], notice.values, notice.text) if notice.code in NOTICES else notice.text


def _text(id: str, values: dict[str, float | str] | dict[str, int], otherwise: str) -> str:
    try:
        return text_of(Message(id, values))
    except (KeyError, ValueError):  # a file of another version
        return otherwise
