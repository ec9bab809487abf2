"""Tests of indextts/webui/events.py: conversion of the values that a browser sends."""

import subprocess
import sys

from tests.conftest import REPOSITORY

# In a process of its own: Gradio's components leave event loops behind.
PROGRAM = """
import gradio as gr
from indextts.errors import UserError
from indextts.webui.events import answering, unpacked
from indextts.webui.language import t

def handler(*values):
    return list(values)

with gr.Blocks(analytics_enabled=False):
    text, number, table = gr.Textbox(), gr.Number(), gr.Dataframe(headers=["size"])
    click = gr.SelectData(None, {"index": [0, 0], "value": 1})
    answer = answering(handler, [text, number], [text, number])
    assert answer(None, None) == ["", None]
    assert answer("a", 1) == ["a", 1]
    assert answer(click, None, None) == [click, "", None]
    assert answer(None, click, None) == ["", click, None]
    many = gr.Dropdown(["a"], multiselect=True)
    for sent, got in ((None, []), (0.5, []), (["a"], ["a"]), ("a", [])):
        assert answering(handler, [many], [many])(sent) == [got]
    shown = answering(lambda _: [["1 kB"]], [text], [table])("x")
    assert shown == {"headers": ["size"], "data": [["1 kB"]]}

    def refuse(_):
        raise UserError("no such thing")

    try:
        answering(refuse, [text], [text])("x")
    except gr.Error as error:
        assert (error.message, error.print_exception) == ("no such thing", False)
    else:
        raise SystemExit("not refused")

assert unpacked('["a", null, 1.5, ["b", 2]]') == ["a", None, 1.5, ["b", 2]]
for sent in ("", "1", '"a"', "{}", '[{"path": "http://x"}]', '[["a", {}]]', '[[["a"]]]', '["\\ud800"]'):
    try:
        unpacked(sent)
    except (ValueError, TypeError):
        continue
    raise SystemExit(f"taken: {sent}")
print("all well")
"""


def test_a_missing_text_becomes_an_empty_text_and_other_values_pass_unchanged():
    answer = subprocess.run([sys.executable, "-c", PROGRAM], cwd=REPOSITORY, capture_output=True, text=True)
    assert answer.stdout.endswith("all well\n"), answer.stderr
