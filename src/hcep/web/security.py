"""Who may send requests, how large they may be, and what a browser may do with the response."""

import asyncio
import hmac
import json
import logging
import re
import secrets
import time
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
#: Open sockets in all, and per address: each holds a page in memory. Connections of every kind, which need open files:
#: many systems allow a process 1024 of them.
MAX_SOCKETS, MAX_SOCKETS_EACH, MAX_CONNECTIONS = 600, 400, 900
#: Uploads that one address may send at a time.
MAX_UPLOADS_EACH = 64
#: The longest message of a socket, and the fields that NiceGUI needs in each kind of message.
MAX_MESSAGE = 2_000_000
EVENTS: dict[str, dict[str, type]] = {
    "handshake": {"client_id": str, "tab_id": str},
    "event": {"client_id": str, "id": int, "listener_id": str},
    "javascript_response": {"client_id": str, "request_id": str},
    "ack": {"client_id": str, "next_message_id": int},
    "log": {"client_id": str, "level": str, "message": str},
}
#: Lines that each part of the server may log per minute, their length, and the parts that log what visitors cause.
MAX_LINES, MAX_LINE = 20, 300
LOGGERS = ("asyncio", "engineio.server", "socketio.server", "nicegui", "uvicorn.error", "hcep.web")
log = logging.getLogger("hcep.web")
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
        self._sockets: Counter[str] = Counter()
        self._uploads: Counter[str] = Counter()

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
            await self._talk(scope, receive, send)
        else:
            await self._answer(scope, receive, send, int(headers.get("content-length") or 0))

    async def _talk(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on the messages of a socket; a malformed one closes it with one line in the log."""
        who, is_closed = _address(scope), False

        async def checked() -> MutableMapping[str, Any]:
            nonlocal is_closed
            message = await receive()
            problem = malformed(message.get("text")) if message["type"] == "websocket.receive" else ""
            if not problem or is_closed:
                return message
            is_closed = True
            log.warning("closed a connection of %s: %s", who, problem)
            await send({"type": "websocket.close", "code": 1007, "reason": problem})
            return {"type": "websocket.disconnect", "code": 1007}

        async def while_open(message: MutableMapping[str, Any]) -> None:
            if not is_closed:
                await send(message)

        self._sockets[who] += 1
        try:
            await self.app(scope, checked, while_open)
        finally:
            self._sockets[who] -= 1
            self._sockets += Counter()  # forgets addresses without sockets

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

        who = _address(scope)
        self._reading += length
        self._uploads[who] += bool(length)
        try:
            await self.app(scope, in_time, with_headers)
        finally:
            self._reading -= length
            self._uploads[who] -= bool(length)
            self._uploads += Counter()

    def _refused(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        """Why a request is refused; None if it is not."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if self.token is None and re.sub(r":\d+\Z", "", host) not in LOOPBACK:
            return 421, f"this server does not accept the host name {host[:100]!r}", {}
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
        who, later = _address(scope), {"Retry_After": "2"}
        if scope["type"] == "websocket" and self._sockets[who] >= MAX_SOCKETS_EACH:
            return 429, "too many pages are open from this address; close some", later
        if int(length) and self._uploads[who] >= MAX_UPLOADS_EACH:
            return 429, "too many simultaneous requests from this address; try again in 2 seconds", later
        is_full = scope["type"] == "websocket" and self._sockets.total() >= MAX_SOCKETS
        if is_full or self._reading + int(length) > MAX_READING:
            return 503, "the server is busy; try again in 2 seconds", later
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
            cookie += "; Secure" if scope.get("scheme") == "https" else ""
            # Two slashes at the start would lead to another server.
            place = "/" + quote(scope["path"].lstrip("/\\")) + (f"?{urlencode(query)}" if query else "")
            return 303, "welcome", {"Location": place, "Set_Cookie": cookie}
        return 401, "the token that `hcep serve` prints is missing", {"WWW_Authenticate": "Bearer"}

    def _is_token(self, text: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(text.encode(), self.token.encode())


async def _refuse(scope: Scope, send: Send, status: int, reason: str, **headers: str) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        kind = "websocket.http.response"
        if kind not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": reason})
            return
    body = json.dumps({"error": reason}).encode()
    sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close", **HEADERS}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
    await send({"type": f"{kind}.start", "status": status, "headers": pairs})
    await send({"type": f"{kind}.body", "body": body})


def _address(scope: Scope) -> str:
    """The address that a request comes from."""
    return str((scope.get("client") or ("unknown",))[0])


def malformed(text: str | None) -> str:
    """Why a message of a socket, None if it is binary, is not one that a page sends; empty if it is.

    >>> malformed("2"), malformed('42["event", 1]')
    ('', 'the message "event" has no fields')
    """
    if text is None:
        return "a binary message"
    if len(text) > MAX_MESSAGE:
        return f"a message of more than {MAX_MESSAGE:,} characters"
    if text[:1] not in set("0123456"):
        return "a message of an unknown kind"
    if not text.startswith("4"):
        return "" if len(text) < 200 else "a message that is too long for its kind"
    if text[1:2] not in set("01234"):
        return "a packet of an unknown kind"
    if text[1] != "2":
        return ""
    try:
        payload = json.loads(text[text.index("[") :])
    except (ValueError, RecursionError):
        return "a message that is not JSON"
    name, fields = payload[0] if payload else None, payload[1] if len(payload) > 1 else None
    if not isinstance(name, str) or name not in EVENTS:
        return "a message with an unknown name"
    if not isinstance(fields, dict):
        return f'the message "{name}" has no fields'
    for field, kind in EVENTS[name].items():
        if not isinstance(fields.get(field), kind):
            return f'the message "{name}" has no valid {field}'
    args = fields.get("args", [])
    if not isinstance(args, list) or not all(arg is None or isinstance(arg, str) for arg in args):
        return f'the message "{name}" has no valid args'
    return ""


class BriefLog(logging.Filter):
    """One line of at most `MAX_LINE` characters per problem, and at most `MAX_LINES` of them per minute.

    Bugs in the explorer's own handlers keep their traceback. Addresses of missing pages are not logged: they may name
    photos.
    """

    def __init__(self) -> None:
        super().__init__()
        self._since, self._n = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        message, now = record.getMessage(), time.monotonic()
        if now - self._since > 60.0:
            self._since, self._n = now, 0
        if self._n >= MAX_LINES or (record.name == "nicegui" and message.endswith(" not found")):
            return False
        self._n += 1
        if record.exc_info and not record.name.startswith("hcep"):
            error = record.exc_info[1]
            message = f"{message.splitlines()[0]} ({type(error).__name__}: {error})"
            record.exc_info = record.exc_text = None
        message = "".join(one if one.isprintable() else " " for one in message)[:MAX_LINE]
        more = "; further log lines of this minute are omitted" if self._n == MAX_LINES else ""
        record.msg, record.args = message + more, ()
        return True


def log_briefly() -> None:
    """Limit what the parts of the server log."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, BriefLog) for one in logger.filters):
            logger.addFilter(BriefLog())


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
