"""Tests of tab 3: the options of the normaliser, and the coloured pieces of a sentence."""

import re
from pathlib import Path

import pytest

from indextts.projects.project import Project, make_settings, read_project, write_project
from indextts.projects.stages import plan_check
from indextts.text.tokenizer import Tokenizer
from indextts.webui.tokenizer.tab import (
    OPTIONS,
    legend_html,
    pieces_html,
    prepare,
    project_values,
    store_settings,
)
from tests.tokenizers import AMHARIC, extend, write_base


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    write_project(project, make_settings(name="voice", base=tmp_path, normalizer={"fifty": "አምሳ"}))
    return project


def test_the_chosen_options_are_shown_again_and_reach_the_check(project: Project):
    size, *values = project_values(project)
    chosen = dict(zip(OPTIONS, values, strict=True))
    assert (size, chosen["fifty"], chosen["acronyms"]) == (None, "አምሳ", "keep")
    typed = [3000, *({**chosen, "acronyms": "letters"}).values()]
    store_settings(project, prepare(project, read_project(project), *typed).commands)
    assert project_values(project) == typed
    check = plan_check(project, read_project(project))
    assert (check.fifty, check.acronyms) == ("አምሳ", "letters")


def shown(html: str) -> list[tuple[str, str, str]]:
    """Return kind, piece and id of each piece."""
    return re.findall(r'<span class="piece (\w+)"><span>(.*?)</span><small>(\d+)</small></span>', html)


def test_pieces_are_coloured_by_where_they_come_from_with_their_ids(tmp_path: Path):
    base = Tokenizer.load(write_base(tmp_path))
    extended = Tokenizer(extend(base.path, AMHARIC, 24_000), base.path)
    sentence = "the ሰላም 日"
    after = shown(pieces_html("After", extended, sentence, base.size))
    assert [int(token) for _, _, token in after] == extended.encode(sentence)
    assert [piece for _, piece, _ in after] == extended.encode_pieces(sentence)
    kinds = {piece: kind for kind, piece, _ in after}
    assert (kinds["▁ሰላም"], kinds["日"]) == ("appended", "unknown")
    assert kinds[extended.encode_pieces("the")[0]] == "base"
    before = pieces_html("Before", base, sentence, base.size)
    assert "unknown" in before
    assert ("unknown", "ሰላም", str(base.unknown_id)) in shown(before)


def test_pieces_show_how_often_they_are_trained_and_those_never_in_text_and_by_a_class(tmp_path: Path):
    base = Tokenizer.load(write_base(tmp_path))
    extended = Tokenizer(extend(base.path, AMHARIC, 24_000), base.path)
    sentence = "the ሰላም"
    counts = [0] * extended.encode(sentence)[-1]  # the last piece is beyond the end
    counts[(known := extended.encode(sentence)[0])] = 1234
    html = pieces_html("After", extended, sentence, base.size, counts)
    found = re.findall(
        r'<span class="piece ([\w ]+)"><span>.*?<small>(\d+)</small><small>(.*?)</small>', html
    )
    assert [int(token) for _, token, _ in found] == extended.encode(sentence)
    assert [times for _, token, times in found if int(token) == known] == ["1,234\u00d7"]
    assert all(("untrained" in css) == ("\u00d7" not in times) for css, _, times in found)
    assert f", {len(found) - 1} " in html
    assert "untrained" in legend_html(counts)
    assert "untrained" not in legend_html(None)


def test_typed_text_is_escaped(tmp_path: Path):
    tokenizer = Tokenizer.load(write_base(tmp_path))
    html = pieces_html("<b>", tokenizer, "<script>alert(1)</script><img src=x onerror=y> &lt;i&gt; \"'", 90)
    rest = re.sub(r"</?(p|div|span|small|b)\b[^<>]*>", "", html)
    assert "<" not in rest
    assert ">" not in rest
