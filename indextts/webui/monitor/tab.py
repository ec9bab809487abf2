"""Tab 7: a run while it goes, or the last one: its health, how far it is, its curves, its checkpoints."""

from indextts.webui.monitor import (
    checkpoint_list,
    curves_view,
    health_cards,
    sample_players,
    status,
    tensorboard_view,
)
from indextts.webui.page import Page

SECTIONS = (health_cards, status, curves_view, checkpoint_list, sample_players, tensorboard_view)


def build(page: Page) -> None:
    for section in SECTIONS:
        section.build(page)
