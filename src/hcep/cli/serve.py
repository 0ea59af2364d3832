"""`hcep serve`: the explorer in a browser, and its API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hcep._optional import require
from hcep.cli.console import say


def serve(
    model: Annotated[Path | None, typer.Argument(help="Model folder; ImageNet's by default.")] = None,
    *,
    store: Annotated[Path | None, typer.Option(help="Store of `hcep encode`: a collection to look through.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; another than this machine needs the token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="Port; 0 for any free one.")] = 8080,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
    corrections: Annotated[
        Path | None, typer.Option(help="File of what people say of photos; in the model's folder by default.")
    ] = None,
    encoder: Annotated[str | None, typer.Option("--encoder", "-e", help="The model's own by default.")] = None,
) -> None:
    """Explore a model in the browser: drop a photo, see its path, question it, correct it; also a JSON API.

    [bold]Examples[/]

      hcep serve

      hcep serve model/ --store store/

      hcep serve model/ --host 0.0.0.0 --no-browser
    """
    uvicorn = require("uvicorn", "web", "hcep serve")
    from hcep.web import Engine, create_app

    engine = Engine(model, store, corrections=corrections, encoder=encoder)
    app = create_app(engine)
    say(f"corrections: {engine.corrections_file}")
    uvicorn.run(app, host=host, port=port, log_level="warning")
