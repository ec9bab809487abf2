"""Tools of an MCP server, with which an assistant speaks: list_voices and speak.

Each tool is a request to the HTTP routes (app.py) within this process, so voices, limits and refusals are
the same for both.
"""

from typing import Any

import httpx2
from fastapi import FastAPI
from mcp.server.mcpserver import Audio, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from indextts.speech.serving.encoding import Format


def build_mcp(app: FastAPI, model_name: str) -> MCPServer:
    """Return a server whose tools speak with the engine of `app`."""
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    client = httpx2.AsyncClient(transport=transport, base_url="http://server", timeout=None)

    async def answer_of(method: str, path: str, **options: Any) -> httpx2.Response:
        answer = await client.request(method, path, **options)
        if answer.is_error:
            raise ToolError(answer.json()["error"]["message"])
        return answer

    async def list_voices() -> list[str]:
        """Return the names of the voices that speak can use."""
        answer = await answer_of("GET", "/v1/audio/voices")
        return list(answer.json()["voices"])

    async def speak(text: str, voice: str, response_format: Format = "mp3", speed: float = 1.0) -> Audio:
        """Speak a text in the language of the model; return the sound.

        Args:
            text: The text, with numbers in digits or words.
            voice: A name from list_voices.
            response_format: Format of the sound.
            speed: From 0.25 to 4; 1 is the pace of the voice.
        """
        wanted: dict[str, Any] = {"model": model_name, "input": text, "voice": voice, "speed": speed}
        wanted["response_format"] = response_format
        answer = await answer_of("POST", "/v1/audio/speech", json=wanted)
        return Audio(data=answer.content, format=answer.headers["content-type"].removeprefix("audio/"))

    server = MCPServer(model_name)
    for tool in (list_voices, speak):
        server.add_tool(tool)
    return server
