"""Connection of handlers to components.

A handler is a short plain function: it reads the disk, or starts a job and returns. It is not a public API
endpoint, shows no spinner, answers in the language of the browser, and shows a UserError as a message on the
page. It receives the chosen project, not its name.

The values of a form travel in one hidden text field:

    change of a form -> the browser packs its values, [1, "a", ...] -> hidden field -> the handler

So Gradio updates one component and not 60 at each status of a request, also with its own scripts (see
serving/front_end.py).
"""

import copy
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.components import Component
from gradio.context import Context, LocalContext
from gradio.data_classes import BlocksConfigDict

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.system.messages import ENGLISH
from indextts.webui.language import current_language, language_of, t, use_language

PROGRAMS_AT_A_TIME = 2
MOST_INPUTS = 4  # that are sent as they are
PACK = "(...values) => JSON.stringify(values)"


class CheckedBlocks(gr.Blocks):
    """Blocks that accept untrusted requests: components raise arbitrary exceptions for a wrong type.

    Attributes:
        signals: a hidden column outside of the tabs, for components that carry values; built first.
        packed: the components whose values a hidden text field carries, by the id of this field.
        chosen: the project selector, whose value arrives as the project.
        find_project: returns the project of a name; a UserError if there is none.
        texts: returns the properties of all components in a language, in the order of the components.
    """

    signals: gr.Column

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.packed: dict[int, Sequence[Component]] = {}
        self.chosen: Component | None = None
        self.find_project: Callable[[str | None], Project]
        self.texts: Callable[[str], list[dict[str, Any]]] | None = None

    @property
    def config(self) -> BlocksConfigDict:
        """What a browser receives of the page, in the current language."""
        config = self._config.copy()
        if self.texts and current_language() != ENGLISH:
            pairs = zip(config["components"], self.texts(current_language()), strict=True)
            config["components"] = [{**component, "props": props} for component, props in pairs]
        return config

    @config.setter
    def config(self, config: BlocksConfigDict) -> None:
        self._config = config

    def pack(self, components: Sequence[Component]) -> gr.Textbox:
        """Build a hidden text field that carries the values of components."""
        with self.signals:
            field = gr.Textbox(max_lines=1, visible="hidden", container=False, show_label=False)
        self.packed[field._id] = components
        return field

    async def preprocess_data(
        self, block_fn: BlockFunction, inputs: list[Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Return the inputs as the handler receives them; a gr.Error for a value of a wrong type."""
        try:
            if len(block_fn.inputs) == 1 and (form := self.packed.get(block_fn.inputs[0]._id)):
                block_fn = copy.copy(block_fn)
                block_fn.inputs = list(form)
                inputs = unpacked(inputs[0])
            return await super().preprocess_data(block_fn, inputs, *args, **kwargs)
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception:  # noqa: BLE001 - Gradio does not document which
            raise gr.Error(t("app.does_not_fit"), print_exception=False) from None


def unpacked(text: str) -> list[Any]:
    """Return the values that a browser packed; a ValueError for objects, which Gradio takes for files."""
    values = json.loads(text)
    json.dumps(values, ensure_ascii=False).encode()  # raises for a lone surrogate: no answer could contain it
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    if not isinstance(values, list) or any(isinstance(item, dict | list) for item in flat):
        raise ValueError("not the values of a form")
    return values


def on(
    triggers: Sequence[Any],
    handler: Callable[..., Any],
    inputs: Sequence[Component] = (),
    outputs: Sequence[Component] = (),
    *,
    after: Any = None,
    latest: bool = False,
    each: bool = False,
    queue: bool = True,
    waits_for_programs: bool = False,
    is_raw: bool = False,
) -> Any:
    """Call `handler` whenever one of `triggers` fires; its result fills `outputs`.

    No component shows the progress: Gradio would search the whole page for each one that ever did, several
    times a request.

    Args:
        after: an earlier event, each answer to which is the trigger, in place of `triggers`.
        latest: handle a trigger that fires while the handler is busy afterwards, so that the last typed value
            counts; otherwise drop it, so that ticks and clicks do not pile up.
        each: handle a trigger that fires meanwhile concurrently. For clicks on rows: with `latest`, Gradio
            would send the row of the previous click again.
        queue: False uses one request instead of two, for fast and frequent events.
        waits_for_programs: the handler starts a program and waits for it; at most two such handlers run at a
            time, so that repeated clicks do not fill the memory.
        is_raw: the handler receives the values as they are sent.
    """
    connect = functools.partial(gr.on, list(triggers)) if after is None else after.then
    answer, sent = answering(handler, () if is_raw else inputs), list(inputs)
    page = Context.root_block
    if isinstance(page, CheckedBlocks) and len(inputs) > MOST_INPUTS and not each:
        field = page.pack(inputs)
        connect = connect(None, sent, [field], js=PACK, show_progress_on=[]).then
        del answer.__wrapped__  # type: ignore[attr-defined]  # Gradio would count its parameters
        sent = [field]
    return connect(
        answer,
        sent,
        list(outputs),
        api_visibility="private",
        show_progress="hidden",
        show_progress_on=[],
        concurrency_limit=PROGRAMS_AT_A_TIME if waits_for_programs else None,
        concurrency_id="programs" if waits_for_programs else None,
        queue=queue,
        trigger_mode="multiple" if each else "always_last" if latest else "once",
    )


def answering(handler: Callable[..., Any], inputs: Sequence[Component]) -> Callable[..., Any]:
    """Return `handler` wrapped: it answers in the browser's language and shows UserErrors as messages."""
    page = Context.root_block

    @functools.wraps(handler)
    def answer(*values: Any) -> Any:
        request = LocalContext.request.get(None)
        with use_language(language_of(request.headers.get("cookie") if request else None)):
            try:
                return handler(*_as_typed(values, inputs, page))
            except UserError as error:
                raise gr.Error(str(error), title=t("app.not_possible"), print_exception=False) from None

    return answer


def _as_typed(values: Iterable[Any], inputs: Sequence[Component], page: object) -> Iterator[Any]:
    """Yield the values of the inputs: the project by its name, empty texts and lists for missing ones."""
    components = iter(inputs)
    for value in values:
        # event data, such as the clicked row, are among the values without a component
        component = None if isinstance(value, gr.EventData) else next(components, None)
        if isinstance(page, CheckedBlocks) and component is not None and component is page.chosen:
            yield page.find_project(value)
        elif isinstance(component, gr.Dropdown) and component.multiselect:
            yield value if isinstance(value, list) else []
        else:
            yield "" if value is None and isinstance(component, gr.Textbox) else value
