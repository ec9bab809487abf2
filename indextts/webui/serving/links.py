"""Links to files of the workspace, which the page serves from where they are. No Gradio here."""

import html
from pathlib import Path
from urllib.parse import quote


def file_address(path: Path) -> str:
    """Return the address of a file, to be put into an attribute; its time makes a browser load a new one."""
    return html.escape(f"/gradio_api/file={quote(str(path.resolve()))}?{path.stat().st_mtime_ns}", quote=True)


def download_link(path: Path, name: str, text: str = "") -> str:
    """Return a link that downloads a file under a name; nothing if it is not there."""
    if not path.is_file() or path.is_symlink():
        return ""
    shown = html.escape(text or name)
    return f'<a href="{file_address(path)}" download="{html.escape(name, quote=True)}">{shown}</a>'
