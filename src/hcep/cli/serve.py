"""`hcep serve`: the explorer in a browser, and its API."""

import secrets
import signal
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

from hcep._checks import require
from hcep.cli.console import say
from hcep.cli.options import OwnEncoder, argument, option
from hcep.errors import HCEPError


def serve(
    model: Annotated[Path | None, argument("Model folder; ImageNet's by default.")] = None,
    *,
    store: Annotated[Path | None, option("Store of `hcep encode`: a collection to look through.")] = None,
    compare: Annotated[Path | None, option("Another model folder, to compare with on the same photos.")] = None,
    host: Annotated[str, option("To listen on; others than 127.0.0.1 need a token, which is printed.")] = "127.0.0.1",
    port: Annotated[int, option("Port; 0 for any free one.", "--port", "-p", min=0, max=65535)] = 8080,
    browser: Annotated[bool, option("Open a browser.")] = True,
    corrections: Annotated[Path | None, option("What people say; in the model's folder or the user's data.")] = None,
    encoder: OwnEncoder = None,
    max_megabytes: Annotated[float, option("Of one photo.", min=0.1, max=100)] = 20,
    max_megapixels: Annotated[float, option("Of one photo.", min=0.1, max=89)] = 50,
    photos: Annotated[int, option("Photos that are remembered, the last used ones.", min=1)] = 256,
    queue: Annotated[int, option("Requests that may wait; more are told to come again.", min=1)] = 64,
    batch: Annotated[int, option("Photos of several people that are encoded together.", min=1)] = 8,
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
