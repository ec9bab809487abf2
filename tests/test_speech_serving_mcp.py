"""Tests of tools/serve.py --mcp with the client of the official SDK, over standard input and output."""

import asyncio
import base64
import io
import sys
from typing import Any

import pytest
import soundfile

from indextts.projects.project import Project
from tests.conftest import REPOSITORY
from tests.speaking_run import clips_of
from tests.waiting import PATIENCE_S


@pytest.mark.long
@pytest.mark.slow
def test_an_assistant_lists_the_voices_and_speaks(tuned: Project):
    mcp = pytest.importorskip("mcp", reason="needs the extra mcp")
    clip = clips_of(tuned)[0].audio
    flags = [f"--checkpoint={tuned.run_dir}", f"--voices={clip}", "--max-codes=40", "--device=cpu"]
    program = mcp.StdioServerParameters(
        command=sys.executable, args=["tools/serve.py", "--mcp", *flags], cwd=REPOSITORY
    )

    async def talk() -> list[Any]:
        async with mcp.Client(program, read_timeout_seconds=PATIENCE_S) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            calls: list[tuple[str, dict[str, str]]] = [("list_voices", {})]
            for voice in (clip.stem, "nobody"):
                calls.append(("speak", {"text": "ሰላም ለዓለም።", "voice": voice, "response_format": "wav"}))
            return [tools, *[await client.call_tool(*call) for call in calls]]

    tools, voices, spoken, refused = asyncio.run(talk())
    assert tools == ["list_voices", "speak"]
    assert voices.structured_content == {"result": [clip.stem]}
    [sound] = spoken.content
    assert (sound.type, sound.mime_type) == ("audio", "audio/wav")
    assert soundfile.info(io.BytesIO(base64.b64decode(sound.data))).duration > 0.1
    assert refused.is_error
    assert clip.stem in refused.content[0].text
