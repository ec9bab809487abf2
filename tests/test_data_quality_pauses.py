"""Tests of indextts/data/quality/pauses.py; test_data_quality.py plants music in the pauses."""

from indextts.commands.quality_limits import QualityLimits
from indextts.data.manifest import Utterance
from indextts.data.quality.clips import Clip, Sound
from indextts.data.quality.measures import measure_text
from indextts.data.quality.text_fit import text_fit
from indextts.data.quality.verdicts import judge


def test_a_clip_is_compared_with_what_the_speaker_always_has():
    """A hum in all clips of a speaker rejects none of them; music above it does."""
    hum, music = [-30.0] * 24, [-14.0]
    utterance, text = Utterance("u", None, "ሰላም", "almaz", 3.0), measure_text("ሰላም ነው ዛሬ")
    measured = [{"duration_s": 3.0, "tones_db": tones} for tones in (*hum, *music)]
    clips = [Clip(utterance, Sound(measures), text, measures) for measures in measured]
    judge(clips, QualityLimits(), text_fit([]))
    assert ["music" in {flag.reason for flag in each.flags} for each in clips] == [False] * 24 + [True]
    judge(clips[:3], QualityLimits(), text_fit([]))
    assert all("music" in {flag.reason for flag in each.flags} for each in clips[:3])
