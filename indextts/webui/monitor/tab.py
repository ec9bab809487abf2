"""Tab 7: a run while it goes, or the last one: its health, how far it is, its curves, its checkpoints."""

from indextts.webui.monitor import (
    checkpoint_list,
    curves_view,
    health_cards,
    sample_players,
    standing,
    tensorboard_view,
)
from indextts.webui.page import Page

SECTIONS = (health_cards, standing, curves_view, checkpoint_list, sample_players, tensorboard_view)


def lay_out(page: Page) -> None:
    for section in SECTIONS:
        section.lay_out(page)
