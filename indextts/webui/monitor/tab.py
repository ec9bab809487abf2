"""Tab 7: health, progress, charts and checkpoints of the current or last run."""

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
