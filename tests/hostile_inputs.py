"""Harmful values to type, send and upload."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = {"_type": "gradio.FileData"}
SHELL = [
    "$({})",
    "`{}`",
    "; {} ;",
    "| {}",
    "|| {}",
    "&& {}",
    "& {} &",
    "\n{}\n",
    "\r\n{}",
    "'; {}; '",
    '"; {}; "',
]
SHELL += [
    "a$({})b",
    "${{IFS}}$({})",
    "$'\\x24({})'",
    "%0a{}",
    "\\`{}\\`",
    "<({})",
    ">({})",
    "!{}",
    "{{{},}}",
    "-e {}",
]
CODE = ["__import__('os').system('{}')", "!!python/object/apply:os.system ['{}']", "{{{{7*7}}}}{{% {} %}}"]
CODE += ["';import os;os.system('{}')#", "cos\nsystem\n(S'{}'\ntR.", "${{jndi:ldap://127.0.0.1/{}}}"]
FLAGS = [
    "-x",
    "--",
    "-",
    "--help",
    "-rf",
    "--config=/etc/passwd",
    "--resume=auto",
    "--no-plan",
    "--plan",
    "-c",
    "-m",
]
FLAGS += [
    "--output-dir={outside}",
    "--base-checkpoint={outside}/secret.txt",
    "--train-manifest {outside}/secret.txt",
]
FLAGS += [
    "--logdir={outside}",
    "--address-file={outside}/marker",
    "-P",
    "@{outside}/secret.txt",
    "=--x",
    "--x=$(id)",
]
HTML = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<svg/onload=alert(1)>",
    "javascript:alert(1)",
]
HTML += [
    "</textarea><script>",
    '"><iframe src=//evil.test>',
    "<a href=data:text/html,x>",
    "&lt;b&gt;",
    "[x](javascript:1)",
]
NAMES = ["secret.txt", "secret.jsonl", "secret.wav", "project.json", "folder", "folder/../secret.txt", "."]
PATHS = ["{outside}/{name}", "../outside/{name}", "../../outside/{name}", "demo/../../outside/{name}"]
PATHS += ["demo/escape/{name}", "{workspace}/demo/escape/{name}", "./demo/escape/../escape/{name}"]
PATHS += ["{workspace}/../outside/{name}", "file://{outside}/{name}", "\\..\\..\\outside\\{name}"]
PATHS += [
    "....//....//outside/{name}",
    "..%2f..%2foutside/{name}",
    "{outside}/{name}\0.wav",
    " {outside}/{name} ",
]
PATHS += ["//{outside}/{name}", "demo/linked_{name}", "{workspace}/linked/{name}"]
PLACES = [
    "/",
    "/etc/passwd",
    "/etc/shadow",
    "/proc/self/environ",
    "/proc/self/fd/0",
    "/dev/zero",
    "/dev/stdin",
    "~",
    "~root",
]
PLACES += [
    "..",
    "../",
    ".",
    "",
    " ",
    "\t",
    "C:\\Windows\\win.ini",
    "\\\\evil.test\\share",
    "linked",
    "escape",
    "demo/jobs",
]
PLACES += [
    "http://127.0.0.1:{port}/x",
    "https://evil.test/x",
    "ftp://evil.test",
    "gs://bucket/x",
    "s3://x/y",
    "data:,x",
]
TEXTS = [
    "\0",
    "a\0b",
    "\u202eabc",
    "\ufeff",
    "e\u0301" * 50,
    "\U0001f600",
    "\x1b[2J\x1b]0;x\x07",
    "ሰላም",
    "\u2028",
    "\r",
]
TEXTS += [
    "{0.__class__}",
    "{project}",
    "%s%s%n",
    "%(x)s",
    "' OR 1=1 --",
    "nan",
    "inf",
    "1e999",
    "-0",
    "0x10",
    "٣",
    "True",
]
TEXTS += [
    "a" * 300,
    "a/" * 3000,
    "9" * 5000,
    "é" * 4096,
    "a" * 1_000_000,
    "[" * 5000,
    ",".join("a" * 500),
    "\n" * 5000,
]
NUMBERS: list[Any] = [0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, 1e-320, 0.1, -0.0, 3.7]
NUMBERS += [float("nan"), float("inf"), float("-inf"), True, False, None]
SHAPES: list[Any] = [
    [],
    {},
    [[]],
    [None],
    [{}],
    [1, 2],
    ["demo"],
    ["demo", "demo"],
    {"value": "demo"},
    [[["x"]]],
]
SHAPES += [
    {"path": None},
    {"path": 7, "meta": FILE},
    {"path": "", "meta": FILE},
    {"path": ["a"], "meta": FILE},
]
SHAPES += [{"__type__": "update", "value": "demo"}, {"headers": ["a"], "data": [["b"]], "metadata": None}]
SHAPES += [
    {"is_stream": True, "path": "x", "meta": FILE},
    {"name": "x", "data": "data:text/plain;base64,eA=="},
]
SHAPES += [
    {"__class__": "x"},
    {str(n): n for n in range(2000)},
    list(range(2000)),
    {"a": {"b": {"c": [{"d": 1}]}}},
]


def values(outside: Path, workspace: Path, marker: Path, port: int) -> list[Any]:
    """Return hostile values, at least 300.

    Args:
        outside: a folder that must be neither read nor written; /secret.txt and others are in it.
        workspace: where demo/escape and linked lead to `outside`.
        marker: what a shell would make.
        port: of a server on this machine that must not be asked.
    """
    places = {"outside": str(outside), "workspace": str(workspace), "port": port}
    made = f"touch {marker}"
    paths = [path.format(name=name, **places) for path in PATHS for name in NAMES]
    texts = [shell.format(made) for shell in (*SHELL, *CODE)]
    texts += [text.format(**places) for text in (*FLAGS, *PLACES)]
    texts += [*HTML, *paths, *TEXTS]
    files = [
        {"path": path, "meta": FILE}
        for path in (*paths[::6], *[place.format(**places) for place in PLACES[:12]])
    ]
    urls = [
        {"path": f"http://127.0.0.1:{port}/a.wav", "meta": FILE},
        {"path": "x", "url": f"http://127.0.0.1:{port}/u"},
    ]
    found = [
        *texts,
        *NUMBERS,
        *SHAPES,
        *files,
        *urls,
        [files[0]],
        [files[1], files[2]],
        [paths[0]],
        [urls[0]],
    ]
    assert len(found) >= 300
    return found


def bodies(handler: int, data: list[Any]) -> Iterator[bytes]:
    """Yield requests for a handler that are no requests: more or fewer values, other types, broken JSON."""
    good = {"fn_index": handler, "data": data, "session_hash": "broken"}
    changes: list[dict[str, Any]] = [{"data": [*data, "more"]}, {"data": data[:-1] if data else ["x"]}]
    changes += [{"data": value} for value in (None, "x", {}, 7)]
    changes += [{"session_hash": value} for value in (None, "", "../x", "a" * 5000, 7, ["x"], "a\nb")]
    changes += [{"fn_index": value} for value in (-1, 10**6, "0", None, 1.5, True, [handler], 2**70)]
    changes += [{"trigger_id": "x"}, {"event_id": "../x"}, {"batched": True}, {"simple_format": "x"}]
    yield from (json.dumps(good | change).encode() for change in changes)
    yield from (b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000)
    half = json.dumps(good | {"data": ["HALF"] * len(data)}).replace("HALF", "\\ud800")
    if data:
        yield half.encode()
        deep: list[Any] = []
        for _ in range(100):
            deep = [deep]
        yield json.dumps(good | {"data": [deep] * len(data)}).encode()


def headers(port: int, cookie: str) -> list[dict[str, str | None]]:
    """Return the headers of requests that no page of ours sends, each to be refused."""
    other_sites = [
        "http://evil.test",
        "null",
        "https://evil.test:443",
        f"http://127.0.0.1:{port + 1}",
        "file://",
    ]
    other_sites += [f"http://127.0.0.1:{port}.evil.test", "http://localhost", "chrome-extension://a"]
    forged_hosts = [
        "evil.test",
        f"evil.test:{port}",
        "a.gradio.live",
        "127.0.0.1.evil.test",
        "a@127.0.0.1",
        "::1",
        "",
    ]
    nobody = [None, "", "access-token-x=1", cookie.replace("=", "=x"), cookie.replace("access", "Access")]
    return [
        *({"cookie": cookie, "origin": origin} for origin in other_sites),
        *({"cookie": cookie, "host": host} for host in forged_hosts),
        *({"cookie": cookie, "sec_fetch_site": site} for site in ("cross-site", "same-site")),
        *({"cookie": forged} for forged in nobody),
    ]


def forged_headers() -> list[dict[str, str]]:
    """Return forwarding headers as any visitor can send them; they must change nothing."""
    terminal = "\x1b]0;owned\x07\x1b[2J"
    names = ["x_forwarded_for", "x_forwarded_host", "x_forwarded_proto", "x_forwarded_port", "x_real_ip"]
    names += ["forwarded", "x_gradio_server", "x_gradio_user", "x_original_host", "x_forwarded_prefix"]
    texts = [
        "evil.test",
        "https://evil.test",
        "9.9.9.9",
        "127.0.0.1",
        f"9.9.9.9{terminal}",
        "a" * 8000,
        "https",
    ]
    return [{name: text} for name in names for text in texts]
