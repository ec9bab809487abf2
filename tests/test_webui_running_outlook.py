"""Tests of indextts/webui/running/outlook.py: blockers, losses and notes."""

from indextts.webui.language import t
from indextts.webui.running.outlook import READY, Notice, Outlook, outlook_html

NOTE, LOSS, BLOCKER = Notice("a <b>note</b>"), Notice("a loss"), Notice("a blocker", "#training/x", "Epochs")


def test_only_a_start_without_blockers_and_losses_is_shown_as_ready():
    assert t(READY) in outlook_html(Outlook())
    assert t(READY) in outlook_html(Outlook(notes=[NOTE]))
    assert t(READY) not in outlook_html(Outlook(), is_ready=False)
    assert t(READY) not in outlook_html(Outlook(losses=[LOSS]))
    assert t(READY) not in outlook_html(Outlook(blockers=[BLOCKER]))


def test_notices_are_escaped_and_link_to_what_changes_them():
    html = outlook_html(Outlook(blockers=[BLOCKER], losses=[LOSS], notes=[NOTE]))
    assert 'href="#training/x"' in html
    assert "a &lt;b&gt;note" in html
    assert [html.index(f'class="{level}"') for level in ("bad", "warn", "note")] == sorted(
        html.index(f'class="{level}"') for level in ("bad", "warn", "note")
    )


def test_a_confirmation_holds_for_the_same_losses_only():
    assert Outlook(notes=[NOTE]).loss_key == ""
    assert Outlook(losses=[LOSS]).loss_key == Outlook(losses=[LOSS], notes=[NOTE]).loss_key != ""
    assert Outlook(losses=[LOSS]).loss_key != Outlook(losses=[LOSS, BLOCKER]).loss_key
