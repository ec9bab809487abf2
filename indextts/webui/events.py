"""How the page's handlers are tied to components.

A handler is a plain, short function: it reads the disk, or starts a job and returns. It is no public endpoint
of an API, shows no spinner for what ticks every second, and turns a UserError into a message on the page.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.errors import UserError


def on(
    triggers: Sequence[Any],
    handler: Callable[..., Any],
    inputs: Sequence[Component] = (),
    outputs: Sequence[Component] = (),
    *,
    latest: bool = False,
    queue: bool = True,
) -> Any:
    """Call `handler` whenever one of `triggers` fires; what it returns fills `outputs`.

    Args:
        latest: a trigger that fires while the handler is busy is answered after it, so that what was typed
            last counts; else it is dropped, so that ticks and clicks do not pile up.
        queue: False makes it one request instead of two, for what is quick and often.
    """
    return gr.on(
        list(triggers),
        said_on_the_page(handler),
        list(inputs),
        list(outputs),
        api_visibility="private",
        show_progress="hidden",
        concurrency_limit=None,
        queue=queue,
        trigger_mode="always_last" if latest else "once",
    )


def said_on_the_page(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return `handler` with its UserErrors as messages on the page."""

    @functools.wraps(handler)
    def answering(*values: Any) -> Any:
        try:
            return handler(*values)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from None

    return answering
