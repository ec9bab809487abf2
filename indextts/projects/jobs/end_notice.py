"""The notice that a job has ended, for a person who is elsewhere. The standard library only: see runner.py.

The environment variable INDEXTTS_WEBHOOK holds an address of the user's choice, which usually contains a
secret: it is in no command line, no file and no log, and the programs of the job do not get it. Of the notice
Slack and Mattermost show "text", Discord shows "content".
"""

import ipaddress
import json
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

LIMIT_S = 10.0


def send(address: str, project: str, stage: str, state: str, seconds: float) -> str | None:
    """POST the notice; return what went wrong without a word of the address, None if it arrived."""
    if not _may_be_used(address):
        return "the address must begin with https://, or with http:// on this machine"
    sentence = f"{project}: {stage} {state.replace('_', ' ')} after {seconds:.0f} s"
    notice = {
        "project": project,
        "stage": stage,
        "state": state,
        "seconds": round(seconds, 1),
        "text": sentence,
        "content": sentence,
    }
    problems: list[str | None] = [f"no answer in {LIMIT_S:.0f} s"]
    # The limits of urllib hold for each read; in a thread the whole is limited, the look-up of the name too.
    thread = threading.Thread(target=lambda: problems.append(_post(address, notice)), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return problems[-1]


def _post(address: str, notice: dict[str, Any]) -> str | None:
    try:
        request = urllib.request.Request(
            address,
            data=json.dumps(notice, ensure_ascii=False).encode(),
            headers={"Content-Type": "application/json; charset=utf-8"},
            method="POST",
        )
        proxies: dict[str, str] | None = (
            {} if _is_loopback(address) else None
        )  # None: as the environment says
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler(proxies))
        with opener.open(request, timeout=LIMIT_S):
            return None
    except urllib.error.HTTPError as error:
        return f"the answer was {error.code}"
    except urllib.error.URLError as error:
        return getattr(error.reason, "strerror", None) or type(error.reason).__name__
    except Exception as error:  # noqa: BLE001 - whatever it is: its message may hold the address
        return type(error).__name__


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An answer that sends us elsewhere, perhaps without https, is an error."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _may_be_used(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(address))
        )
    except ValueError:
        return False


def _is_loopback(address: str) -> bool:
    name = urlsplit(address).hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
