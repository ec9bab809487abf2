"""The page's blocks: what does not fit a component is one sentence, not a traceback in the log."""

from typing import Any

import gradio as gr

from indextts.webui.language import t

DOES_NOT_FIT = "a value was sent that does not fit its field; reload the page"


class CheckedBlocks(gr.Blocks):
    """Blocks that anybody may send anything: components raise whatever comes to them over a wrong type."""

    async def preprocess_data(self, *args: Any, **kwargs: Any) -> Any:
        """Return the inputs as the handler gets them.

        Raises:
            gr.Error: one of them is nothing that its component can have.
        """
        try:
            return await super().preprocess_data(*args, **kwargs)
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception:  # noqa: BLE001 - no promise says which ones
            raise gr.Error(t(DOES_NOT_FIT), print_exception=False) from None
