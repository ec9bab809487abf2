"""Connection of handlers to components.

A handler is a short plain function: it reads the disk, or starts a job and returns. It is not a public API
endpoint, shows no spinner, answers in the language of the browser, and shows a UserError as a message on the
page.
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
    """Call `handler` whenever one of `triggers` fires; its result fills `outputs`.

    No component shows the progress: Gradio would search the whole page for each one that ever did, several
    times a request.

    Args:
        latest: handle a trigger that fires while the handler is busy afterwards, so that the last typed value
            counts; otherwise drop it, so that ticks and clicks do not pile up.
        each: handle a trigger that fires meanwhile concurrently. For clicks on rows: with `latest`, Gradio
            would send the row of the previous click again.
        queue: False uses one request instead of two, for fast and frequent events.
        waits_for_programs: the handler starts a program and waits for it; at most two such handlers run at a
            time, so that repeated clicks do not fill the memory.
    """
    return gr.on(
        list(triggers),
        answering(handler, inputs, outputs),
        list(inputs),
        list(outputs),
        api_visibility="private",
        show_progress="hidden",
        show_progress_on=[],
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
    """Call `handler` as `on` does, after each answer to `event`, an earlier `on`."""
    return event.then(
        answering(handler, inputs, outputs),
        list(inputs),
        list(outputs),
        api_visibility="private",
        show_progress="hidden",
        show_progress_on=[],
        concurrency_limit=None,
        trigger_mode="always_last",
    )


def answering(
    handler: Callable[..., Any], inputs: Sequence[Component], outputs: Sequence[Component]
) -> Callable[..., Any]:
    """Return `handler` wrapped: it answers in the browser's language and shows UserErrors as messages."""
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
    """Yield the values of the inputs; a missing text or list of choices becomes an empty one."""
    components = iter(inputs)
    for value in values:
        # event data, such as the clicked row, are among the values without a component
        component = None if isinstance(value, gr.EventData) else next(components, None)
        if isinstance(component, gr.Dropdown) and component.multiselect:
            yield value if isinstance(value, list) else []
        else:
            yield "" if value is None and isinstance(component, gr.Textbox) else value


def _with_headers(value: Any, headers: Sequence[str] | None) -> Any:
    """Return the rows of a table with headers in the current language; other values unchanged."""
    if not headers or not isinstance(value, list):
        return value
    return {"headers": [translated(name) for name in headers], "data": value}
