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
from hcep.cli.options import argument, option
from hcep.errors import HCEPError

#: The least and the largest value of each parameter.
BOUNDS = {
    "megabytes": (0.1, 100),
    "megapixels": (0.1, 89),
    "photos": (1, 10**6),
    "queue": (1, 10**6),
    "batch": (1, 512),
}


def serve(
    model: Annotated[Path | None, argument("Model folder (default: ImageNet's classes).", metavar="MODEL")] = None,
    *,
    store: opt.Store = None,
    compare: opt.Compare = None,
    host: Annotated[
        str, option("Address to listen on; any but 127.0.0.1 needs a token.", "--host ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, option("Port; 0 for any free one.", "--port PORT", "-p", min=0, max=65535)] = 8080,
    browser: Annotated[bool, option("Open a browser.", "--browser/--no-browser")] = True,
    corrections: opt.Corrections = None,
    encoder: opt.Encoder = None,
    parameter: opt.Parameter = None,
) -> None:
    """Open the explorer in a browser (also serves a JSON API).

    --compare takes one other model folder. Corrections are kept in the model's folder, or in the user's data folder for
    the built-in model. Parameters: megabytes and megapixels (of one photo), photos (that are remembered), queue
    (requests that may wait), batch (photos that are encoded together).
    """
    if len(compare or ()) > 1:
        raise HCEPError(f"--compare: hcep serve compares with one other model, got {len(compare or ())}")
    bounded = _bounded(opt.parameters(parameter, also=BOUNDS))
    uvicorn = require("uvicorn", "web", "hcep serve")
    require("nicegui", "web", "hcep serve")
    listening = _listen(host, port)
    from hcep.web import create_app
    from hcep.web.engine import Engine, Limits
    from hcep.web.security import LOOPBACK, PatientProtocol

    is_local = host in LOOPBACK | {"::1"}
    token = None if is_local else secrets.token_urlsafe(24)
    other = Path(compare[0]) if compare else None
    engine = Engine(model, store, corrections=corrections, encoder=encoder, limits=Limits(**bounded), other=other)
    name = f"[{host}]" if ":" in host else socket.gethostname() if host == "0.0.0.0" else host
    address = f"http://{name}:{listening.getsockname()[1]}/" + (f"?token={token}" if token else "")
    say(f"corrections are kept in {engine.corrections_file}")
    say(f"open {address} (press Ctrl-C to stop)")
    config = uvicorn.Config(
        create_app(engine, token=token, warm=True),
        http=PatientProtocol,
        log_level="warning",
        access_log=False,  # addresses contain names of photos, and at first the token
        server_header=False,
        limit_concurrency=500,
        timeout_graceful_shutdown=10,
    )
    if browser:
        threading.Timer(1.0, webbrowser.open, [address]).start()
    signal.set_wakeup_fd(
        -1
    )  # an interrupt lets running requests finish first, which may take longer than in other commands
    uvicorn.Server(config).run([listening])


def _bounded(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters if each is a number within its bounds; raise HCEPError otherwise."""
    for name, value in parameters.items():
        low, high = BOUNDS[name]
        if not (isinstance(value, int | float) and low <= value <= high):
            raise HCEPError(f"--parameter {name}: expected a number from {low:g} to {high:g}, got {value!r}")
    return parameters


def _listen(host: str, port: int) -> socket.socket:
    """Open the socket before anything slow is done."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise HCEPError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port with --port") from None
