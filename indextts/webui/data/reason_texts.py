"""Names of the check's measures, reasons, problems and notices, as ids of texts. No Gradio here."""

from indextts.data.quality.reasons import REASON_OF, Flag
from indextts.data.quality.summary import Notice, Overview, Problem
from indextts.system.messages import Message
from indextts.webui.language import t_or, text_of


def measure_name(measure: str) -> str:
    """Return the name of a measure with its unit; an unknown measure unchanged."""
    return t_or(f"data.measures.{measure}", measure)


def reason_name(reason: str) -> str:
    """Return the name of a reason; an unknown reason unchanged."""
    return t_or(f"data.reasons.{reason}", reason)


def flag_text(flag: Flag) -> str:
    """Return the name of a flag's reason with the number or the name in its description."""
    known = REASON_OF.get(flag.reason)
    what = known.what if known else flag.reason
    detail = flag.description.removeprefix(what).removeprefix(": ")
    return f"{reason_name(flag.reason)}: {detail}" if detail else reason_name(flag.reason)


def problem_text(problem: Problem, overview: Overview) -> str:
    """Return a problem as a sentence; one without a code as the report has it."""
    values = {"count": problem.count, "total": overview.num_utterances}
    return _text(f"data.problems.{problem.code}", values, problem.text)


def notice_text(notice: Notice) -> str:
    """Return a notice as a sentence; one without a code as the report has it."""
    return _text(f"data.notices.{notice.code}", notice.values, notice.text)


def _text(id: str, values: dict[str, float | str] | dict[str, int], otherwise: str) -> str:
    try:
        return text_of(Message(id, values))
    except (KeyError, ValueError):  # a file of another version
        return otherwise
