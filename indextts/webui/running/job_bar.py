"""Progress bar of a running job, from the last line of its log that indextts/data/progress.py wrote."""

import re
from collections.abc import Mapping

from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project
from indextts.webui.language import t
from indextts.webui.markup import meter_html

LINE = re.compile(r"([A-Z][a-z ]+): (\d+)/(\d+) \w+, (.*)")  # Encoding: 120/900 clips, 31.5 clips/s, ...


def job_bar(project: Project, stage: str, texts: Mapping[str, str]) -> str:
    """Return the progress of the newest job of a stage as HTML; "" before its first line.

    Args:
        texts: the id of the text for each activity that the program logs.
    """
    job = newest_job(project, stage)
    return bar_of(tail(job.log), texts) if job is not None else ""


def bar_of(log: str, texts: Mapping[str, str]) -> str:
    """Return the progress at the end of a log as HTML; "" without a line of one of the activities."""
    found = [line.groups() for line in LINE.finditer(log) if line[1] in texts]
    if not found:
        return ""
    doing, done, total, pace = found[-1]
    return meter_html(int(done) / max(1, int(total)), t(texts[doing], done=done, total=total, pace=pace))
