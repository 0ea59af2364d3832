"""`hcep serve`: the explorer in a browser, and its API."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from hcep._optional import require
from hcep.cli.console import say
from hcep.errors import HCEPError


def serve(
    model: Annotated[Path | None, typer.Argument(help="Model folder; ImageNet's by default.")] = None,
    *,
    store: Annotated[Path | None, typer.Option(help="Store of `hcep encode`: a collection to look through.")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Another model folder, to compare with on the same photos.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than 127.0.0.1 need a token, which is printed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="Port; 0 for any free one.")] = 8080,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    corrections: Annotated[
        Path | None,
        typer.Option(help="File of what people say of photos; by default in the model's folder, or the user's data."),
    ] = None,
    encoder: Annotated[str | None, typer.Option("--encoder", "-e", help="The model's own by default.")] = None,
    max_megabytes: Annotated[float, typer.Option(min=0.1, max=100, help="Of one photo.")] = 20,
    max_megapixels: Annotated[float, typer.Option(min=0.1, max=89, help="Of one photo.")] = 50,
    photos: Annotated[int, typer.Option(min=1, help="Photos that are remembered, the last used ones.")] = 256,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; more are told to come again.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="Photos of several people that are encoded together.")] = 8,
) -> None:
    """Explore a model in the browser: drop a photo, see its path, question it, correct it; also a JSON API."""
    uvicorn = require("uvicorn", "web", "hcep serve")
    require("nicegui", "web", "hcep serve")
    listening = _listen(host, port)
    from hcep.web import Engine, create_app
    from hcep.web.engine import Limits
    from hcep.web.security import LOOPBACK, PatientProtocol

    is_local = host in LOOPBACK | {"::1"}
    token = None if is_local else secrets.token_urlsafe(24)
    limits = Limits(megabytes=max_megabytes, megapixels=max_megapixels, photos=photos, queue=queue, batch=batch)
    engine = Engine(model, store, corrections=corrections, encoder=encoder, limits=limits, other=compare)
    name = f"[{host}]" if ":" in host else socket.gethostname() if host == "0.0.0.0" else host
    address = f"http://{name}:{listening.getsockname()[1]}/" + (f"?token={token}" if token else "")
    say(f"corrections are kept in {engine.corrections_file}")
    say(f"open {address} (Ctrl-C ends)")
    config = uvicorn.Config(
        create_app(engine, token=token, warm=True),
        http=PatientProtocol,
        log_level="warning",
        access_log=False,  # addresses hold names of photos, and once the token
        server_header=False,
        limit_concurrency=500,
        timeout_graceful_shutdown=10,
    )
    if browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    signal.set_wakeup_fd(-1)  # an interrupt ends what is running first, which may take longer than other commands
    uvicorn.Server(config).run([listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket to listen on, before anything slow is done."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise HCEPError(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port") from None
