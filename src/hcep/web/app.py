"""The application: pages and API around one engine, behind one guard."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hcep._checks import require
from hcep.web.engine import Engine

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_app(
    model: Any = None, store: Any = None, *, token: str | None = None, warm: bool = False, **options: Any
) -> FastAPI:
    """The explorer as an ASGI application.

    Parameters
    ----------
    model, store : as for `Engine`; `model` may also be an `Engine`
    token : required with every request, if others than this machine's user can reach the server
    warm : load and compile everything at the start, while the first visitor looks for a photo
    **options : further options of `Engine`
    """
    fastapi, ui = require("fastapi", "web", "the explorer"), require("nicegui", "web", "the explorer").ui
    from hcep.web import api
    from hcep.web.pages import collection, compare, hierarchy, photo
    from hcep.web.security import Guard

    engine = model if isinstance(model, Engine) else Engine(model, store, **options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(engine.warm_up()) if warm else None
        yield
        if warming is not None:
            warming.cancel()
        await engine.close()

    app: FastAPI = fastapi.FastAPI(title="HCEP explorer", docs_url=None, redoc_url=None, lifespan=lifespan)
    seen: Counter[str] = Counter()
    api.register(app, engine, seen)
    for page in (photo, collection, hierarchy, compare):
        page.register(engine)
    look: dict[str, Any] = {"title": "HCEP", "dark": None, "language": "en-US", "tailwind": False}
    # A browser or a server that is busy for some seconds does not lose its page.
    look |= {"reconnect_timeout": 20.0, "storage_secret": secrets.token_hex(32), "show_welcome_message": False}
    ui.run_with(app, **look)
    app.add_middleware(Guard, seen=seen, token=token, max_body=int(engine.limits.request_megabytes * 1e6))
    _give_nonces()
    return app


def _give_nonces() -> None:
    """Add the nonce of the response to the scripts of NiceGUI's own page; injected scripts have none."""
    environment = require("nicegui.client", "web", "the explorer").templates.env
    loader = environment.loader

    def source(name: str) -> str:
        text: str = loader.get_source(environment, name)[0]
        return text.replace("<script", '<script nonce="{{ request.scope.nonce }}"')

    environment.loader = require("jinja2", "web", "the explorer").FunctionLoader(source)
