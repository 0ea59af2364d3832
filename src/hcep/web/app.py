"""The application: pages and API around one engine, behind one guard."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hcep._checks import require
from hcep.web.engine import Engine

if TYPE_CHECKING:
    from fastapi import FastAPI

#: Pages without a socket that are kept: those that wait for their browser, and those that are closed.
MAX_IDLE_PAGES = 100


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
    fastapi, nicegui = require("fastapi", "web", "the explorer"), require("nicegui", "web", "the explorer")
    ui = nicegui.ui
    from hcep.web import api
    from hcep.web.pages import collection, hierarchy, photo, project
    from hcep.web.security import Guard, log_briefly

    engine = model if isinstance(model, Engine) else Engine(model, store, **options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        nicegui.app.timer(1.0, lambda: _forget_pages(nicegui.Client))
        warming = asyncio.create_task(engine.warm_up()) if warm else None
        yield
        if warming is not None:
            warming.cancel()
        await engine.close()

    app: FastAPI = fastapi.FastAPI(title="HCEP explorer", docs_url=None, redoc_url=None, lifespan=lifespan)
    seen: Counter[str] = Counter()
    api.register(app, engine, seen)
    for page in (photo, collection, hierarchy, project):
        page.register(engine)
    look: dict[str, Any] = {"title": "HCEP", "dark": None, "language": "en-US", "tailwind": False}
    # A browser or a server that is busy for some seconds does not lose its page.
    look |= {"reconnect_timeout": 20.0, "show_welcome_message": False}
    ui.run_with(app, **look)
    nicegui.app.storage.max_tab_storage_age = (
        60.0  # seconds; no page uses this storage, which NiceGUI keeps for a month
    )
    # Messages that come by HTTP instead of a socket would pass by the limits on sockets and their messages.
    nicegui.app.config.socket_io_js_transports = nicegui.core.sio.eio.transports = ["websocket"]
    app.add_middleware(Guard, seen=seen, token=token, max_body=int(engine.limits.request_megabytes * 1e6))
    _give_nonces()
    log_briefly()
    return app


def _forget_pages(clients: Any) -> None:
    """Forget the oldest pages without a socket beyond `MAX_IDLE_PAGES`.

    NiceGUI forgets a page that no browser has connected to after a minute, and one that was closed after 20 seconds,
    which is too late if there are many of them.
    """
    old = time.time() - 5.0  # a browser may still be loading the scripts of a newer page
    pages = [page for page in clients.instances.values() if not page.has_socket_connection]
    idle = [page for page in pages if page._delete_tasks or page.created < old]
    for page in idle[:-MAX_IDLE_PAGES]:
        for document in list(page._delete_tasks):  # they would delete the page again
            page._cancel_delete_task(document)
        page.delete()


def _give_nonces() -> None:
    """Add the nonce of the response to the scripts of NiceGUI's own page; injected scripts have none."""
    environment = require("nicegui.client", "web", "the explorer").templates.env
    loader = environment.loader

    def source(name: str) -> str:
        text: str = loader.get_source(environment, name)[0]
        return text.replace("<script", '<script nonce="{{ request.scope.nonce }}"')

    environment.loader = require("jinja2", "web", "the explorer").FunctionLoader(source)
