"""Implementation of tools/serve.py: load the model, listen, and speak until a signal or the end of input."""

import asyncio
import hashlib
import logging
import re
import socket
import sys

import uvicorn

from indextts.commands.speech import Serve
from indextts.errors import UserError
from indextts.speech.evaluation.judge import load_judge
from indextts.speech.serving.app import RateLimit, Service, build_app
from indextts.speech.serving.engine import Engine
from indextts.speech.synthesis import segments, text_to_speech
from indextts.speech.synthesis.script import require_voices, voices_in
from indextts.speech.synthesis.synthesize import load_tts, resolve_sampling, synthesis_device
from indextts.system.addresses import is_loopback
from indextts.system.amounts import counted
from indextts.system.disk import read_text_lines

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
MIN_KEY_CHARACTERS = 16
ANSWER_S = 5  # until the clients have the refusals at the end of the grace
SEND_TIMEOUT_S = 60  # until the connection of a client that takes nothing is closed
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def serve(command: Serve) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        UserError: the model, voices or keys cannot be used, the port is taken, or a package is missing.
    """
    if command.mcp:
        try:
            from indextts.speech.serving.mcp_server import build_mcp  # an optional package
        except ModuleNotFoundError as error:
            raise UserError(
                f"--mcp: the package {error.name} is not installed; run pip install -e '.[mcp]'"
            ) from None
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(sys.stderr)  # standard output is for the client
    for module in (segments, text_to_speech):  # they log lines for each batch
        logging.getLogger(module.__name__).setLevel(logging.WARNING)
    keys = () if command.mcp else read_keys(command)
    require_voices(command.voices)
    listener = None if command.mcp else listen(command.host, command.port)
    device = synthesis_device(command.checkpoint, command.device)
    tts = load_tts(command, command.checkpoint, device)
    sampling = resolve_sampling(command, tts.renderer.name, tts.trained.positions)
    judge = None
    if command.candidates > 1:
        language = tts.trained.tokenizer.options.language
        judge = load_judge(command.asr, command.asr_folder, command.models, device, language)
    engine = Engine(tts, sampling, command.max_batch, judge)
    service = Service(engine, command, keys, RateLimit(command.requests_per_minute))
    if command.default_voice not in {"", *voices_in(command.voices)}:
        raise UserError(
            f"--default-voice {command.default_voice}: --voices has no such recording; pass the name of one"
        )
    address = "MCP"
    if listener:
        listener.listen()  # a client that reads the line below can connect
        address = f"http://{command.host}:{listener.getsockname()[1]}/v1"
    voices = counted(len(voices_in(command.voices)), "voice")
    logger.info("%s on %s, %s: %s", tts.trained.source, device.type, voices, address)
    app, threads = build_app(service), engine.start()
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        log_level="error",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=command.grace + ANSWER_S,
    )
    try:
        if listener:
            _Server(config, engine, command.grace).run([listener])
        else:
            build_mcp(app, command.model_name).run("stdio")
    finally:
        engine.close()
        for thread in threads:
            thread.join(timeout=5)


class _Server(uvicorn.Server):
    """A server that closes the engine `grace` seconds after the signal to stop."""

    def __init__(self, config: uvicorn.Config, engine: Engine, grace: int) -> None:
        super().__init__(config)
        self.engine, self.grace = engine, grace

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(self.grace, self.engine.close)
        await super().shutdown(sockets)


def read_keys(command: Serve) -> tuple[bytes, ...]:
    """Return the SHA-256 of each key in the key file, which has keys or their digests.

    Raises:
        UserError: other machines can reach the server but there is no key, or a key is short.
    """
    if command.key_file is None:
        if not is_loopback(command.host):
            raise UserError(
                f"--host {command.host}: other machines can reach the server; write a key into a file and "
                "pass it with --key-file"
            )
        return ()
    lines = read_text_lines(command.key_file, "--key-file")
    keys = [line.strip() for line in lines if line.strip()]
    if not keys or min(map(len, keys)) < MIN_KEY_CHARACTERS:
        raise UserError(
            f"--key-file {command.key_file}: needs keys of at least {MIN_KEY_CHARACTERS} characters, one per "
            "line"
        )
    return tuple(
        bytes.fromhex(digest[1])
        if (digest := DIGEST.fullmatch(key))
        else hashlib.sha256(key.encode()).digest()
        for key in keys
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address; its connections end if a client stops reading.

    Raises:
        UserError: the address cannot be used.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SEND_TIMEOUT_S)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UserError(f"--host {host} --port {port}: {error.strerror}; choose another port") from None
    return listener
