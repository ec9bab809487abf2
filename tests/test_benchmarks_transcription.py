"""Test of benchmarks/transcription.py: half a minute is transcribed, killed and judged."""

import pytest

from benchmarks.transcription import main
from tests.recognizers import write_recognizer

pytestmark = pytest.mark.long

LETTERS = ["<pad>", "<unk>", "|", *"ሰላምለዓበነገረወደቤትአየ"]
WORDS = ("ሰላም", "ለዓለም", "ወደቤት", "ነገረ", "አየ", "ደረሰ", "በላ", "ገባ")


@pytest.mark.slow
def test_precision_yield_and_kills_of_half_a_minute_are_reported(tmp_path):
    letters = [*LETTERS, "ገ", "ባ", "በ", "ረ", "ደ", "ሰ"]
    asr = [
        write_recognizer(tmp_path / name, letter, letters=list(dict.fromkeys(letters)))
        for name, letter in (("one", "ላ"), ("two", ""))
    ]
    sentences = [" ".join((a, b, c)) for a in WORDS for b in WORDS for c in WORDS[:3] if a != b]
    (tmp_path / "texts.txt").write_text("።\n".join(sentences), encoding="utf-8")
    output = tmp_path / "report.md"
    flags = [f"--texts={tmp_path / 'texts.txt'}", *(f"--asr={folder}" for folder in asr)]
    flags += ["--minutes=0.5", "--kills=1", f"--folder={tmp_path / 'set'}", f"--output={output}"]
    assert main(flags) == 0

    rows = [line.split("|")[1:-1] for line in output.read_text(encoding="utf-8").splitlines() if "|" in line]
    found = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows}
    assert found["kills"] == ["1"]
    assert found["problems"] == ["0"]
    assert float(found["character error rate of one"][0].removesuffix(" %")) > 50  # it hears one letter
    share, num_clips, right, exact = found["the first alone, everything"]
    assert (share, exact) == ("100 %", "0.0 %")
    assert int(num_clips) >= 6
    assert float(right.removesuffix(" %")) < 50
