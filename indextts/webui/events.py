"""How the page's handlers are tied to components.

A handler is a plain, short function: it reads the disk, or starts a job and returns. It is no public endpoint
of an API, shows no spinner for what ticks every second, answers in the language that its browser chose, and
turns a UserError into a message on the page.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.context import LocalContext

from indextts.errors import UserError
from indextts.webui.language import language_of, t, translated, use_language

PROGRAMS_AT_A_TIME = 2


def on(
    triggers: Sequence[Any],
    handler: Callable[..., Any],
    inputs: Sequence[Component] = (),
    outputs: Sequence[Component] = (),
    *,
    latest: bool = False,
    each: bool = False,
    queue: bool = True,
    waits_for_programs: bool = False,
) -> Any:
    """Call `handler` whenever one of `triggers` fires; what it returns fills `outputs`.

    Args:
        latest: a trigger that fires while the handler is busy is answered after it, so that what was typed
            last counts; else it is dropped, so that ticks and clicks do not pile up.
        each: a trigger that fires meanwhile is answered beside it. For what says which row was clicked: with
            `latest` Gradio's page would ask again for the row of the click before.
        queue: False makes it one request instead of two, for what is quick and often.
        waits_for_programs: it starts a program and waits for it; of all such ones two run at a time, so that
            nobody fills the memory with a hundred clicks.
    """
    return gr.on(
        list(triggers),
        answering(handler, inputs, outputs),
        list(inputs),
        list(outputs),
        api_visibility="private",
        show_progress="hidden",
        concurrency_limit=PROGRAMS_AT_A_TIME if waits_for_programs else None,
        concurrency_id="programs" if waits_for_programs else None,
        queue=queue,
        trigger_mode="multiple" if each else "always_last" if latest else "once",
    )


def then(
    event: Any,
    handler: Callable[..., Any],
    inputs: Sequence[Component] = (),
    outputs: Sequence[Component] = (),
) -> Any:
    """Call `handler` as `on` does, each time that `event`, an earlier `on`, was answered."""
    return event.then(
        answering(handler, inputs, outputs),
        list(inputs),
        list(outputs),
        api_visibility="private",
        show_progress="hidden",
        concurrency_limit=None,
        trigger_mode="always_last",
    )


def answering(
    handler: Callable[..., Any], inputs: Sequence[Component], outputs: Sequence[Component]
) -> Callable[..., Any]:
    """Return `handler` in the language of whoever asks, with its UserErrors as messages on the page."""
    headers = [output.headers if isinstance(output, gr.Dataframe) else None for output in outputs]

    @functools.wraps(handler)
    def answer(*values: Any) -> Any:
        request = LocalContext.request.get(None)
        with use_language(language_of(request.headers.get("cookie") if request else None)):
            try:
                found = handler(*_as_typed(values, inputs))
            except UserError as error:
                raise gr.Error(str(error), title=t("app.not_possible"), print_exception=False) from None
            if not any(headers):
                return found
            answers = [found] if len(headers) == 1 else found
            shown = [_with_headers(one, names) for one, names in zip(answers, headers, strict=True)]
            return shown[0] if len(headers) == 1 else shown

    return answer


def _as_typed(values: Iterable[Any], inputs: Sequence[Component]) -> Iterator[Any]:
    """Yield the values of the inputs; what is no text or no list of choices is an empty one."""
    components = iter(inputs)
    for value in values:
        # what happened, such as the click on a row, stands among the values and is of no component
        component = None if isinstance(value, gr.EventData) else next(components, None)
        if isinstance(component, gr.Dropdown) and component.multiselect:
            yield value if isinstance(value, list) else []
        else:
            yield "" if value is None and isinstance(component, gr.Textbox) else value


def _with_headers(value: Any, headers: Sequence[str] | None) -> Any:
    """Return the rows of a table under headers in the language spoken; other values as they are."""
    if not headers or not isinstance(value, list):
        return value
    return {"headers": [translated(name) for name in headers], "data": value}
