"""Serve the web UI: eight tabs over the same commands, with jobs in the background. Ctrl-C stops it."""

from collections.abc import Sequence

from indextts.commands.app import WebUI
from indextts.commands.terminal import parse, run
from indextts.webui.serving.received import received_folder


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(WebUI, argv)
    received_folder(command.workspace)
    # imports Gradio, which reads there where to store files
    from indextts.webui.app import build_app
    from indextts.webui.serving.launch import launch

    launch(build_app(command), command)
    return 0


def run_page() -> None:
    """Run the program as the console script of the installed package."""
    run(main)


if __name__ == "__main__":
    run_page()
