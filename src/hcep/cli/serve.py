"""`hcep serve`: the explorer in a browser, and its API."""

import secrets
import signal
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any

from hcep._checks import require
from hcep.cli import options as opt
from hcep.cli.console import say
from hcep.cli.options import argument, more, option
from hcep.errors import HCEPError, quote

#: The least and the largest value of each parameter.
BOUNDS = {
    "megabytes": (0.1, 100),
    "megapixels": (0.1, 89),
    "photos": (1, 10**6),
    "queue": (1, 10**6),
    "batch": (1, 512),
}


def serve(
    model: Annotated[
        Path | None,
        argument("Folder of a model, project or photos (default: ImageNet's classes).", metavar="MODEL|PROJECT"),
    ] = None,
    *,
    store: opt.Store = None,
    host: Annotated[
        str, option("Address to listen on; addresses other than 127.0.0.1 require a token.", "--host ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[
        int, option("Port to listen on; 0 picks a free one.", "--port PORT", "-p", min=0, max=65535)
    ] = 8080,
    browser: Annotated[bool, option("Open a browser.", "--browser/--no-browser")] = True,
    corrections: opt.Corrections = None,
    encoder: opt.Encoder = None,
    preprocessing: opt.Preprocessing = None,
    ssl_certfile: Annotated[Path | None, more("Certificate for https.", "--ssl-certfile FILE")] = None,
    ssl_keyfile: Annotated[Path | None, more("Private key of the certificate.", "--ssl-keyfile FILE")] = None,
    parameter: opt.Parameter = None,
) -> None:
    """Open the explorer in a browser (also serves a JSON API).

    A project is a folder with photos, a tree, a model and corrections. A new or empty folder becomes one: choose
    photos, paste a tree and fit a model in the browser. The project of a folder that only has photos is kept in its
    subfolder hcep-project. Corrections are kept in the folder of the model or project, or in the user's data
    folder for the built-in model. Parameters: megabytes and megapixels (of one photo), photos (that are remembered),
    queue (requests that may wait), batch (photos that are encoded together).
    """
    if ssl_keyfile is not None and ssl_certfile is None:
        raise HCEPError("--ssl-keyfile: also give the certificate with --ssl-certfile")
    for file in (ssl_certfile, ssl_keyfile):
        if file is not None and not file.is_file():
            raise HCEPError(f"{str(file)!r}: there is no such file")
    bounded = _bounded(opt.parameters(parameter, also=BOUNDS))
    uvicorn = require("uvicorn", "web", "hcep serve")
    require("nicegui", "web", "hcep serve")
    listening = _listen(host, port)
    from hcep.web import create_app
    from hcep.web.engine import Engine, Limits
    from hcep.web.project import Project
    from hcep.web.security import LOOPBACK, MAX_CONNECTIONS, MAX_MESSAGE, PatientProtocol

    is_local = host in LOOPBACK | {"::1"}
    token = None if is_local else secrets.token_urlsafe(24)
    project = None if model is None or (model / "model.json").exists() else Project(model)
    sources: dict[str, Any] = {"corrections": corrections, "project": project}
    sources |= {"encoder": encoder, "preprocessing": preprocessing}
    engine = Engine(None if project is not None else model, store, limits=Limits(**bounded), **sources)
    name = f"[{host}]" if ":" in host else socket.gethostname() if host == "0.0.0.0" else host
    port, query = listening.getsockname()[1], f"?token={token}" if token else ""
    scheme = "http" if ssl_certfile is None else "https"
    page = "" if project is None or project.has_model else "project"
    address = f"{scheme}://{name}:{port}/{page}{query}"
    say(f"corrections are kept in {engine.corrections_file}")
    say(f"open {address} (press Ctrl-C to stop)")
    config = uvicorn.Config(
        create_app(engine, token=token, warm=True),
        http=PatientProtocol,
        log_level="warning",
        access_log=False,  # addresses contain names of photos, and at first the token
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=10,
        ws_max_size=MAX_MESSAGE,
        ssl_certfile=None if ssl_certfile is None else str(ssl_certfile),
        ssl_keyfile=None if ssl_keyfile is None else str(ssl_keyfile),
    )
    if browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    # An interrupt lets running requests finish first, which may take longer than in other commands.
    signal.set_wakeup_fd(-1)
    uvicorn.Server(config).run([listening])


def _bounded(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters if each is a number within its bounds; raise HCEPError otherwise."""
    for name, value in parameters.items():
        low, high = BOUNDS[name]
        if not (isinstance(value, int | float) and low <= value <= high):
            raise HCEPError(f"--parameter {name}: expected a number from {low:,} to {high:,}, got {quote(value)}")
    return parameters


def _listen(host: str, port: int) -> socket.socket:
    """Open the socket before anything slow is done."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise HCEPError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port with --port") from None
