import logging

from indextts.data import progress as progress_module
from indextts.data.progress import Progress
from indextts.webui.run_progress import LINE


def test_a_line_has_clips_and_audio_and_time_left(monkeypatch, caplog):
    now = 100.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    caplog.set_level(logging.INFO)
    progress = Progress("Encoding", 30, total_s=190.0)
    now += 100  # the start of the processes, which is no speed
    progress.advance(10.0)
    now += 4
    progress.advance(30.0)
    assert not caplog.messages  # only every few seconds
    now += 4
    progress.advance(60.0)
    (line,) = caplog.messages
    # half of the other audio in 8 s, but only a tenth of the clips
    assert line == "Encoding: 3/30 clips, 0.2 clips/s, 11.2 h of audio per hour, 8 s left"
    (found,) = LINE.finditer(line)  # the page parses it
    assert found.groups()[:3] == ("Encoding", "3", "30")
