"""Harmful values to type and send."""

from pathlib import Path
from typing import Any

FILE = {"_type": "gradio.FileData"}
# {} is a command; words are separated by two spaces
SHELL = """
$({})  `{}`  ; {} ;  | {}  || {}  && {}  & {} &  '; {}; '  "; {}; "  a$({})b  ${{IFS}}$({})  $'\\x24({})'
%0a{}  \\`{}\\`  <({})  >({})  !{}  {{{},}}  -e {}  __import__('os').system('{}')  {{{{7*7}}}}{{% {} %}}
!!python/object/apply:os.system ['{}']  ';import os;os.system('{}')#  ${{jndi:ldap://127.0.0.1/{}}}
"""
LINES = ["\n{}\n", "\r\n{}", "cos\nsystem\n(S'{}'\ntR."]
FLAGS = """
-x -- - --help -rf --config=/etc/passwd --resume=auto --no-plan --plan -c -m --output-dir={outside} -P =--x
--base-checkpoint={outside}/secret.txt --logdir={outside} --address-file={outside}/marker --x=$(id)
@{outside}/secret.txt
"""
HTML = """
<img src=x onerror=alert(1)>  <script>alert(1)</script>  <svg/onload=alert(1)>  javascript:alert(1)
</textarea><script>  "><iframe src=//evil.test>  <a href=data:text/html,x>  &lt;b&gt;  [x](javascript:1)
"""
NAMES = ["secret.txt", "secret.jsonl", "secret.wav", "project.json", "folder", "folder/../secret.txt", "."]
PATHS = r"""
{outside}/{name} ../outside/{name} ../../outside/{name} demo/../../outside/{name} demo/escape/{name}
{workspace}/demo/escape/{name} ./demo/escape/../escape/{name} {workspace}/../outside/{name}
file://{outside}/{name} \..\..\outside\{name} ....//....//outside/{name} ..%2f..%2foutside/{name}
//{outside}/{name} demo/linked_{name} {workspace}/linked/{name}
"""
ODD_PATHS = ["{outside}/{name}\0.wav", " {outside}/{name} "]
PLACES = r"""
/ /etc/passwd /etc/shadow /proc/self/environ /proc/self/fd/0 /dev/zero /dev/stdin ~ ~root .. ../ .
C:\Windows\win.ini \\evil.test\share linked escape demo/jobs http://127.0.0.1:{port}/x
https://evil.test/x ftp://evil.test gs://bucket/x s3://x/y data:,x
"""
TEXTS = ["", " ", "\t", "\0", "a\0b", "\u202eabc", "\ufeff", "e\u0301" * 50, "\U0001f600", "\u2028", "\r"]
TEXTS += ["\x1b[2J\x1b]0;x\x07", "ሰላም", "' OR 1=1 --", "a" * 300, "a/" * 3000, "9" * 5000, "é" * 4096]
TEXTS += ["a" * 1_000_000, "[" * 5000, ",".join("a" * 500), "\n" * 5000]
TEXTS += ["{0.__class__}", "{project}", "%s%s%n", "%(x)s", "nan", "inf", "1e999", "-0", "0x10", "٣", "True"]
NUMBERS: list[Any] = [0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, 1e-320, 0.1, -0.0, 3.7]
NUMBERS += [float("nan"), float("inf"), float("-inf"), True, False, None]
SHAPES: list[Any] = [[], {}, [[]], [None], [{}], [1, 2], ["demo"], ["demo", "demo"], {"value": "demo"}]
SHAPES += [[[["x"]]], {"__class__": "x"}, {str(n): n for n in range(2000)}, list(range(2000))]
SHAPES += [{"path": None}, {"path": 7, "meta": FILE}, {"path": "", "meta": FILE}]
SHAPES += [{"path": ["a"], "meta": FILE}, {"a": {"b": {"c": [{"d": 1}]}}}]
SHAPES += [{"__type__": "update", "value": "demo"}, {"headers": ["a"], "data": [["b"]], "metadata": None}]
SHAPES += [
    {"is_stream": True, "path": "x", "meta": FILE},
    {"name": "x", "data": "data:text/plain;base64,eA=="},
]


def values(outside: Path, workspace: Path, port: int) -> list[Any]:
    """Return hostile values, at least 300.

    Args:
        outside: a folder that must be neither read nor written; a shell would make the file `marker` there.
        workspace: where demo/escape and linked lead to `outside`.
        port: of a server on this machine that must not be asked.
    """
    places = {"outside": str(outside), "workspace": str(workspace), "port": port}
    paths = [path.format(name=name, **places) for path in [*PATHS.split(), *ODD_PATHS] for name in NAMES]
    shell = [text.strip() for line in SHELL.splitlines() for text in line.split("  ") if text]
    texts = [text.format(f"touch {outside / 'marker'}") for text in (*shell, *LINES)]
    texts += [text.format(**places) for text in (*FLAGS.split(), *PLACES.split())]
    html = [text for line in HTML.splitlines() for text in line.split("  ") if text]
    elsewhere = f"http://127.0.0.1:{port}"
    files = [
        {"path": path, "meta": FILE} for path in (*paths[::6], f"{elsewhere}/a.wav", *PLACES.split()[:12])
    ]
    found = [*texts, *html, *paths, *TEXTS, *NUMBERS, *SHAPES, *files, {"path": "x", "url": f"{elsewhere}/u"}]
    found += [files[:1], files[1:3], paths[:1]]
    assert len(found) >= 300
    return found
