"""Tests of indextts/webui/app.py: rules for the complete page."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from indextts.webui.app import TABS
from indextts.webui.layout import DOC_OF_TAB, DOCS
from tests.conftest import REPOSITORY
from tests.test_webui_language import SAME

BUILD = """
import json, pathlib, sys
from indextts.commands.app import WebUI
from indextts.projects.project import Project, read_project, write_project
from indextts.webui.app import build_app
from indextts.webui.language import use_language
demo = build_app(WebUI(workspace=pathlib.Path(sys.argv[1])))
config = demo.get_config_file()
project = Project(pathlib.Path(sys.argv[1]) / "demo")
settings = read_project(project).with_fields("pairs", seed=7, min_code_len=3)
write_project(project, settings.with_fields("export", dtype="float16"))
with use_language("am"):
    amharic = demo.config
def texts(component):
    props, value = component["props"], str(component["props"].get("value"))
    is_text = component["type"] in ("button", "markdown") or value.startswith("<h2>")
    return [props.get(name) for name in ("label", "info", "placeholder")] + [value] * is_text
by_id = {c["id"]: c["props"] for c in config["components"]}
print(json.dumps({
    "heartbeat": config["connect_heartbeat"],
    "visible": sorted({d["api_visibility"] for d in config["dependencies"]}),
    "kinds": sorted({c["type"] for c in config["components"]}),
    "ticking": [d for d in config["dependencies"] if d["backend_fn"]
                and any("tick" in target for target in d["targets"])],
    "handlers": sorted({f.fn.__code__.co_qualname for f in demo.fns.values() if f.fn}),
    "filled": [
        [by_id[output].get("elem_id"), value]
        for d in config["dependencies"]
        if "BuildPairs-pairs_per_target" in [by_id[output].get("elem_id") for output in d["outputs"]]
        and (packed := demo.packed.get(d["inputs"][0]))
        for output, value in zip(d["outputs"], demo.fns[d["id"]].fn("demo", *[""] * (len(packed) - 1)))
    ],
    "packed": len(demo.packed),
    "inputs": max(len(d["inputs"]) for d in config["dependencies"] if d["backend_fn"]),
    "modes": [[target[1], by_id.get(target[0], {}).get("elem_id"), d["trigger_mode"]]
              for d in config["dependencies"] if d["backend_fn"] for target in d["targets"]],
    "nameless": [[c["type"], c["props"].get("label")] for c in config["components"]
                 if not c["props"].get("elem_id") and c["props"].get("visible") != "hidden"
                 and c["type"] not in ("row", "column", "markdown", "timer", "form", "tabs")],
    "tabs": [c["props"]["label"] for c in config["components"]
             if c["type"] == "tabitem" and c["props"]["elem_id"].startswith("tab-")],
    "texts": [[texts(c) for c in page["components"]] for page in (demo.config, amharic)],
    "torch": sorted(name for name in sys.modules if name in ("torch", "transformers", "trainers")),
}))
"""


# what the handlers receive of the values that a browser sends
HANDLERS = """
import gradio as gr
from indextts.errors import UserError
from indextts.webui.events import CheckedBlocks, answering, unpacked
from indextts.webui.language import t

def handler(*values):
    return list(values)

with CheckedBlocks(analytics_enabled=False) as page:
    page.chosen = project = gr.Dropdown(["voice"])
    page.find_project = lambda name: {"voice": "the project"}[name]
    assert answering(handler, [project])("voice") == ["the project"]
    text, number = gr.Textbox(), gr.Number()
    click = gr.SelectData(None, {"index": [0, 0], "value": 1})
    answer = answering(handler, [text, number])
    assert answer(None, None) == ["", None]
    assert answer("a", 1) == ["a", 1]
    assert answer(click, None, None) == [click, "", None]
    assert answer(None, click, None) == ["", click, None]
    many = gr.Dropdown(["a"], multiselect=True)
    for sent, got in ((None, []), (0.5, []), (["a"], ["a"]), ("a", [])):
        assert answering(handler, [many])(sent) == [got]

    def refuse(_):
        raise UserError("no such thing")

    try:
        answering(refuse, [text])("x")
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
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Return what a process that checks HANDLERS and builds the page says of it and of itself."""
    workspace = tmp_path_factory.mktemp("app") / "workspace"
    answer = subprocess.run(
        [sys.executable, "-c", HANDLERS + BUILD, str(workspace)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    assert (workspace / "demo/project.json").is_file()
    return json.loads(answer.stdout.splitlines()[-1].replace(str(workspace.resolve()), "{folder}"))


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        ("torch", []),  # not even transformers
        (
            "heartbeat",
            False,
        ),  # for a state or an unload event; it would hold a connection of each browser tab
        ("handlers", ["answering.<locals>.answer"]),  # has the language, and shows a UserError as a message
        ("nameless", []),  # visible components without an id
    ],
)
def test_the_page_is_built_as_its_modules_say(built: dict, fact: str, expected: object):
    assert built[fact] == expected


def test_each_tab_has_a_page_of_the_documentation():
    assert [tab for tab in TABS if not (DOCS / f"{DOC_OF_TAB.get(tab, tab)}.md").is_file()] == []


def test_there_are_eight_tabs_without_state_and_public_endpoints(built: dict):
    assert [label[:1] for label in built["tabs"]] == list("12345678")
    assert "state" not in built["kinds"]
    assert "public" not in built["visible"]


def test_a_tick_is_one_request_with_one_answer(built: dict):
    # An open page ticks for days: each answered component costs the server some milliseconds.
    [ticking] = built["ticking"]
    assert ticking["queue"] is False
    assert len(ticking["outputs"]) == 1


def test_all_forms_are_filled_with_the_projects_settings_at_once(built: dict):
    names = [name for name, _ in built["filled"]]
    for first, expected in (
        ("BuildPairs-pairs_per_target", ["demo", 2, "all", 0, 0, None, 1, 3, 7]),
        ("ExportModel-dtype", ["demo", "float16", "pth", 1, False, "", "published"]),
    ):
        before = names.index(first) - 1  # the name of the project
        assert [value for _, value in built["filled"]][before : before + len(expected)] == expected


def test_a_form_is_sent_in_one_hidden_field(built: dict):
    # the browser searches the page for each component that was ever an input, at each status of a request
    assert built["packed"] > 20
    assert built["inputs"] <= 7  # of a click on a row


def test_a_choice_made_during_another_request_is_not_dropped(built: dict):
    clicked = {name: mode for event, name, mode in built["modes"] if event == "select"}
    clicks = ("jobs", "check-overview", "check-texts", "import-columns", "review-list", "readings-table")
    clicks += ("checkpoint-table", "monitor-health")
    assert clicked == dict.fromkeys(clicks, "multiple")
    assert ["change", "pairs-split", "always_last"] in built["modes"]


def test_all_texts_of_the_page_are_translated(built: dict):
    english, amharic = ([text for texts in page for text in texts if text] for page in built["texts"])
    assert len(english) == len(amharic) > 300
    same = {text for text, other in zip(english, amharic, strict=True) if text == other}
    assert {text for text in same if re.search("[a-z]{3}", text)} <= SAME


def test_an_unwritable_workspace_is_a_one_line_error(tmp_path: Path):
    (tmp_path / "file").touch()
    argv = [sys.executable, str(REPOSITORY / "webui_amharic.py"), f"--workspace={tmp_path}/file/w"]
    answer = subprocess.run(argv, capture_output=True, text=True)
    assert answer.returncode == 2
    assert f"--workspace: {tmp_path}/file/w" in answer.stderr
    assert "Traceback" not in answer.stderr
