"""Reverse proxy as on a rented machine: a public host name outside, the page on loopback inside.

    python -m tests.local_proxy PORT UPSTREAM_PORT {pass|rewrite} [KEY CERTIFICATE]

pass keeps the Host header; rewrite replaces it with the upstream's address and puts the original name into
X-Forwarded-Host. With a key and a certificate it serves https outside and sets X-Forwarded-Proto. It prints a
line for each request with the status of its response.
"""

import sys

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length"}


def app(upstream: int, mode: str) -> Starlette:
    client = httpx.AsyncClient(timeout=None, trust_env=False)  # a stream lasts

    async def forward(request: Request) -> StreamingResponse:
        assert request.client
        headers = [(name, text) for name, text in request.headers.items() if name not in HOP_BY_HOP]
        if mode == "rewrite":
            headers = [(name, text) for name, text in headers if name != "host"]
            headers += [
                ("host", f"127.0.0.1:{upstream}"),
                ("x-forwarded-host", request.headers.get("host", "")),
            ]
        headers += [("x-forwarded-proto", request.url.scheme), ("x-forwarded-for", request.client.host)]
        path = request.scope["raw_path"] + b"?" + request.scope["query_string"]
        url = httpx.URL(scheme="http", host="127.0.0.1", port=upstream, raw_path=path)
        sent = client.build_request(request.method, url, headers=headers, content=await request.body())
        answer = await client.send(sent, stream=True)
        response = StreamingResponse(
            answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose)
        )
        response.raw_headers = [
            (name, text)
            for name, text in answer.headers.raw
            if name.lower().decode() not in HOP_BY_HOP - {"content-length"}
        ]
        return response

    methods = ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", forward, methods=methods)])


if __name__ == "__main__":
    port, upstream, mode, *files = sys.argv[1:]
    key, certificate = files or (None, None)
    uvicorn.run(
        app(int(upstream), mode),
        host="127.0.0.1",
        port=int(port),
        log_level="info",
        ssl_keyfile=key,
        ssl_certfile=certificate,
        proxy_headers=False,
    )
