"""Who may send requests, how large they may be, and what a browser may do with the response."""

import asyncio
import hmac
import json
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
#: Status, reason, and headers with underscores for dashes.
Refusal = tuple[int, str, dict[str, str]]

COOKIE = "hcep_token"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
#: For monitoring: whether the server is running, and nothing else.
OPEN_TO_ALL = "/api/v1/health"
#: Seconds for the head of a request to arrive; a body gets as many, and more by its length.
PATIENCE = 10.0
SLOWEST = 50_000  # bytes per second
#: Total bytes in the bodies of requests that are being answered.
MAX_READING = 500_000_000
# Vue compiles templates and NiceGUI runs code that the server sends, so scripts may evaluate text; Quasar sets styles
# on elements. Scripts in a page must carry the nonce of this one response, so that injected text stays text.
POLICY = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=(), payment=(), usb=()",
}


class Guard:
    """The outermost layer of the application: `seen` counts responses by status, `max_body` limits a body's bytes.

    A request must carry the `token` in the header ``Authorization: Bearer …``, in a cookie, or once in ``?token=``.
    Without a token the server only answers to the names of this machine, so that no other site can reach it under
    another name.
    """

    def __init__(self, app: App, *, seen: Counter[str], token: str | None = None, max_body: int = 100_000_000) -> None:
        self.app, self.seen, self.token, self.max_body, self._reading = app, seen, token, max_body, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            status, reason, more = refused
            self.seen[str(status)] += 1
            await _refuse(scope, send, status, reason, **more)
        elif scope["type"] == "websocket":
            await self.app(scope, receive, send)
        else:
            await self._answer(scope, receive, send, int(headers.get("content-length") or 0))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, length: int) -> None:
        scope["nonce"] = nonce = secrets.token_urlsafe(16)
        end, is_read, is_late = asyncio.get_running_loop().time() + PATIENCE + length / SLOWEST, not length, False
        more = {**HEADERS, "Content-Security-Policy": POLICY.format(nonce=nonce)}

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if is_late:
                return
            if message["type"] == "http.response.start":
                self.seen[str(message["status"])] += 1
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in more.items())]
            await send(message)

        async def in_time() -> MutableMapping[str, Any]:
            nonlocal is_read, is_late
            if is_read:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), end - asyncio.get_running_loop().time())
            except TimeoutError:
                is_late = True
                await _refuse(scope, send, 408, "the photo took too long to arrive")
                return {"type": "http.disconnect"}
            is_read = not message.get("more_body")
            return message

        self._reading += length
        try:
            await self.app(scope, in_time, with_headers)
        finally:
            self._reading -= length

    def _refused(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        """Why a request is refused; None if it is not."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if self.token is None and re.sub(r":\d+\Z", "", host) not in LOOPBACK:
            return 421, f"this server does not answer to the name {host[:100]!r}", {}
        is_change = scope.get("method", "GET") not in ("GET", "HEAD", "OPTIONS")
        foreign = is_change and headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if foreign or (origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}")):
            return 403, "other sites may not use this server", {}
        if self.token is not None and scope["path"] != OPEN_TO_ALL and (unknown := self._unknown(scope, headers)):
            return unknown
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            return 411, "the header Content-Length is missing", {}
        if not length.isdecimal() or int(length) > self.max_body:
            return 413, f"a request may have at most {self.max_body / 1e6:g} MB", {}
        if self._reading + int(length) > MAX_READING:
            return 503, "the server is busy; try again in 2 seconds", {"Retry_After": "2"}
        return None

    def _unknown(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        """Why a request is not authorised; a token in the address is moved into a cookie."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        cookies = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
        if (scheme.lower() == "bearer" and self._is_token(bearer)) or self._is_token(cookies.get(COOKIE, "")):
            return None
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if scope["type"] == "http" and self._is_token(query.pop("token", "")):
            cookie = f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000"
            # Two slashes at the start would lead to another server.
            place = "/" + quote(scope["path"].lstrip("/\\")) + (f"?{urlencode(query)}" if query else "")
            return 303, "welcome", {"Location": place, "Set_Cookie": cookie}
        return 401, "the token that `hcep serve` prints is missing", {"WWW_Authenticate": "Bearer"}

    def _is_token(self, text: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(text.encode(), self.token.encode())


async def _refuse(scope: Scope, send: Send, status: int, reason: str, **headers: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    body = json.dumps({"error": reason}).encode()
    sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close", **HEADERS}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


class PatientProtocol(H11Protocol):
    """HTTP that closes a connection when the head of a request does not arrive; uvicorn would wait forever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._watch()

    def _watch(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if self.conn.their_state is not h11.IDLE:
            self._idle_since = self.loop.time()
        elif self.loop.time() - self._idle_since > PATIENCE:
            self.transport.close()
            return
        self.loop.call_later(1.0, self._watch)
