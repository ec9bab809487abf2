"""Webhook notification at the end of a job. Standard library only: see runner.py.

The environment variable INDEXTTS_WEBHOOK holds the URL. It usually contains a secret, so it never appears in
a command line, a file or a log, and the programs of the job do not receive it. Slack and Mattermost show the
field "text", Discord shows "content".
"""

import json
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from indextts.system.addresses import is_loopback

TIMEOUT_S = 10.0


def send(address: str, project: str, stage: str, state: str, seconds: float) -> str | None:
    """POST the notification; return an error text without any part of the URL, or None on success."""
    if not _is_allowed(address):
        return "the URL must start with https://, or with http:// and this machine's address"
    text = f"{project}: {stage} {state.replace('_', ' ')} after {seconds:.0f} s"
    notice = {
        "project": project,
        "stage": stage,
        "state": state,
        "seconds": round(seconds, 1),
        "text": text,
        "content": text,
    }
    problems: list[str | None] = [f"no response within {TIMEOUT_S:.0f} s"]
    # urllib applies its timeout to each read; the thread limits the whole call, including name resolution
    thread = threading.Thread(target=lambda: problems.append(_post(address, notice)), daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return problems[-1]


def _post(address: str, notice: dict[str, Any]) -> str | None:
    try:
        request = urllib.request.Request(
            address,
            data=json.dumps(notice, ensure_ascii=False).encode(),
            headers={"Content-Type": "application/json; charset=utf-8"},
            method="POST",
        )
        # None: take the proxies from the environment
        proxies: dict[str, str] | None = {} if is_loopback(urlsplit(address).hostname or "") else None
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler(proxies))
        with opener.open(request, timeout=TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        return f"HTTP status {error.code}"
    except urllib.error.URLError as error:
        return getattr(error.reason, "strerror", None) or type(error.reason).__name__
    except Exception as error:  # noqa: BLE001 - the message of any exception may contain the URL
        return type(error).__name__


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treat a redirect as an error, because it may lead to a URL without https."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _is_allowed(address: str) -> bool:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))
    except ValueError:
        return False
