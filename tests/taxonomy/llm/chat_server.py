"""A chat endpoint on the loopback interface that answers well and badly, as a script tells it.

A script is a list of steps, one a request, the last one repeated. A step is a text (a proper answer), `Answering` (a
function from the request's JSON to a text), or one of the faults below.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Chat:
    """The state of the server: what it will say, and the requests that came."""

    def __init__(self, script: Sequence[Any]) -> None:
        self.url = ""
        self.tell(*script)

    def tell(self, *script: Any) -> Chat:
        """Start over with another script."""
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        return self

    def step(self) -> Any:
        return self.script[min(len(self.requests), len(self.script)) - 1]

    def prompt(self, i: int = -1) -> str:
        """The last message of a request."""
        return str(self.requests[i]["messages"][-1]["content"])


def completion(text: str | None, finish_reason: str = "stop", model: str = "loopback", **usage: int) -> bytes:
    """The body of a proper answer."""
    counts = usage or {"prompt_tokens": 11, "completion_tokens": 7}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    body = {"id": "c1", "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": counts}
    return json.dumps(body).encode()


def ok(text: str | None, finish_reason: str = "stop", **usage: int) -> Callable[[Handler], None]:
    return lambda handler: handler.send(200, completion(text, finish_reason, **usage))


def body(data: bytes, content_type: str = "application/json") -> Callable[[Handler], None]:
    """Status 200 and any bytes."""
    return lambda handler: handler.send(200, data, {"Content-Type": content_type})


def status(code: int, error: dict[str, Any] | None = None, **headers: str) -> Callable[[Handler], None]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = json.dumps({"error": {"message": f"scripted {code}", **(error or {})}}).encode()
    return lambda handler: handler.send(code, data, named)


def slow(seconds: float, text: str = "late") -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        time.sleep(seconds)
        handler.send(200, completion(text))

    return answer


def dripping(interval: float, n_drops: int) -> Callable[[Handler], None]:
    """A body that comes byte by byte and never ends in time."""

    def answer(handler: Handler) -> None:
        handler.start(200, {"Content-Length": str(n_drops)})
        for _ in range(n_drops):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(interval)

    return answer


def truncated(text: str) -> Callable[[Handler], None]:
    """Half of the promised bytes, then the connection is closed."""

    def answer(handler: Handler) -> None:
        data = completion(text)
        handler.start(200, {"Content-Length": str(len(data))})
        handler.wfile.write(data[: len(data) // 2])
        handler.close_connection = True

    return answer


def truncated_stream(text: str) -> Callable[[Handler], None]:
    """A chunked body whose closing chunk never comes."""

    def answer(handler: Handler) -> None:
        data = completion(text)[:40]
        handler.start(200, {"Transfer-Encoding": "chunked"})
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        handler.close_connection = True

    return answer


def dropped(handler: Handler) -> None:
    """No word at all."""
    handler.close_connection = True


class Handler(BaseHTTPRequestHandler):
    chat: Chat
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets; the second must not wait for the first's receipt

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.chat.requests.append(request)
        self.chat.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.chat.times.append(time.monotonic())
        if self.path != "/v1/chat/completions":
            self.send(404, b'{"error": {"message": "no such path"}}')
            return
        step = self.chat.step()
        if isinstance(step, str):
            step = ok(step)
        elif isinstance(step, Answering):
            step = ok(step.answer(request))
        try:
            step(self)
        except (BrokenPipeError, ConnectionResetError):  # the client did not wait; that is what some tests are about
            self.close_connection = True

    def start(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, code: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.start(code, {"Content-Length": str(len(data)), **(headers or {})})
        self.wfile.write(data)


class Answering:
    """A step that reads the request: a function from its JSON to a text."""

    def __init__(self, answer: Callable[[dict[str, Any]], str]) -> None:
        self.answer = answer


@contextmanager
def running_chat(*script: Any) -> Iterator[Chat]:
    """A chat endpoint that answers until the block ends."""
    chat = Chat(script)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"chat": chat}))
    server.daemon_threads = True
    server.block_on_close = False
    chat.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
