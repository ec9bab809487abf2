"""Tests of the log box."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from indextts.system.messages import Message
from indextts.webui.running.log_box import line_class, show_log
from indextts.webui.serving.launch import PAGE_FILES

CSS = (PAGE_FILES / "page.css").read_text(encoding="utf-8")

HOSTILE = (
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "</pre></span><iframe src=//example.org>",
    "[Error] <svg/onload=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "<!-- <style>body{display:none}</style>",
    "&lt;b&gt; &#60;script&#62;",
    "[Train] \x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07",
    "<\x00script>",
    "\ufeff<a href=javascript:alert(1)>\u202e",
)


class Parsed(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def log_of(folder: Path, *lines: str) -> Path:
    path = folder / "output.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_text_in_a_log_is_escaped(tmp_path: Path):
    page = Parsed(show_log(log_of(tmp_path, *HOSTILE))[0])
    assert {tag for tag, _ in page.tags} <= {"pre", "span"}
    assert page.tags[0] == ("pre", {"class": "log-view", "tabindex": "0"})
    for tag, attributes in page.tags[1:]:
        assert (tag, set(attributes)) == ("span", {"class"})
    shown = page.text.split("\n")
    assert len(shown) == len(HOSTILE)
    assert shown[:3] == list(HOSTILE[:3])
    assert shown[6] == HOSTILE[6]
    assert shown[7] == "[Train] click"
    assert shown[8] == "<script>"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("[Error] --manifest: no such file", "error"),
        ("Traceback (most recent call last):", "error"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory", "error"),
        ("ValueError", "error"),
        ("[Warn] 3 clips were left out", "warning"),
        ("WARNING: the tokenizer is another", "warning"),
        ("/lib/x.py:3: UserWarning: this is old", "warning"),
        ("[Train] step 10 loss 3.1 lr=1.00e-05", "train"),
        ("[Val] step 10 loss 3.1", "val"),
        ("$ python trainers/train_gpt_v2.py --epochs=1", "command"),
        ("[Info] 0 errors, no warning", ""),
        ("ErrorBudget 3", ""),
        ("ሰላም", ""),
    ],
)
def test_a_line_has_the_class_of_its_level(line: str, name: str):
    assert line_class(line) == name
    assert not name or f".log-view .log-{name} {{" in CSS
    assert not name or f".dark .log-view .log-{name} {{" in CSS


def test_the_last_lines_are_shown_with_the_size_of_the_log(tmp_path: Path):
    path = log_of(tmp_path, *(f"[Train] step {number}" for number in range(100_000)))
    html, note = show_log(path)
    assert Parsed(html).text.split("\n")[-1] == "[Train] step 99999"
    assert len(html.splitlines()) == 200
    assert str(note) == str(Message("jobs.earlier_lines", {"lines": 200, "megabytes": "1.9"}))
    html, note = show_log(path, "STEP 9999")
    assert len(html.splitlines()) == 11
    assert str(note) == str(Message("jobs.found_lines", {"lines": 11, "megabytes": "1.9"}))
    assert show_log(log_of(tmp_path, "one", "two"))[1] is None
