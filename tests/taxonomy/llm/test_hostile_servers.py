"""Servers that never end, never begin, unpack to gigabytes, or send the key back."""

import gzip
import json
import time
import tracemalloc

import pytest

from hcep.taxonomy.llm import ChatModel, endpoint as endpoint_module
from hcep.taxonomy.llm.endpoint import LLMError
from tests.taxonomy.llm.chat_server import body, ok, running_chat, status

HELLO = [{"role": "user", "content": "Say hello."}]
KEY = "sk-0123456789abcdef"


def model(chat, **options):
    return ChatModel("tiny", chat.url, **{"max_retries": 0, "timeout": 5, "api_key": KEY, **options})


def endless(code):
    """A body without an end, under any status."""

    def answer(handler):
        handler.start(code, {"Transfer-Encoding": "chunked"})
        chunk = b"x" * 65_536
        while True:
            handler.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")

    return answer


def dripping_headers(handler):
    """A header line that comes letter by letter, each soon enough to keep the socket from timing out."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(200):
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.05)


@pytest.mark.parametrize("code", [200, 400, 401, 429, 500, 503])
def test_an_endless_body_does_not_fill_memory(code, monkeypatch):
    monkeypatch.setattr(endpoint_module, "MAX_BODY", 1_000_000)
    with running_chat(endless(code)) as server:
        chat = model(server)
        tracemalloc.start()
        with pytest.raises(LLMError, match="sent more than 1,000,000 bytes; stopped reading"):
            chat.ask(HELLO)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10_000_000


def test_slow_headers_end_at_the_timeout():
    with running_chat(dripping_headers) as server:
        started = time.monotonic()
        with pytest.raises(LLMError, match=r"no complete answer within 0\.3 s"):
            model(server, timeout=0.3).ask(HELLO)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("code", [200, 500])
def test_a_compressed_body_is_never_unpacked(code):
    bomb = gzip.compress(b" " * 50_000_000)
    packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    with running_chat(lambda handler: handler.send(code, bomb, packed)) as server:
        tracemalloc.start()
        with pytest.raises(LLMError):
            model(server).ask(HELLO)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10_000_000


def test_no_redirect_carries_the_key_elsewhere():
    with running_chat("hello") as other:
        elsewhere = status(302, location=f"{other.url}/chat/completions")
        match = r"refused the request \(302\): it redirects to 'http://127"
        with running_chat(elsewhere) as server, pytest.raises(LLMError, match=match):
            model(server).ask(HELLO)
        assert other.requests == []


ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)


@pytest.mark.parametrize(
    "step",
    [
        status(401, {"message": f"wrong key {KEY}"}),
        status(500, {"message": "x" * 290 + KEY}),
        body(f"<html>{KEY}</html>".encode(), "text/html"),
        body(json.dumps({"detail": KEY}).encode()),
        lambda handler: handler.send(403, f'{{"error": {{"message": "{ESCAPED}"}}}}'.encode()),
        status(302, location=f"http://elsewhere/?key={KEY}"),
    ],
    ids=["message", "cut", "HTML", "JSON", "escaped", "redirect"],
)
def test_the_key_is_in_no_message(step):
    with running_chat(step) as server, pytest.raises(LLMError) as caught:
        model(server).ask(HELLO)
    assert KEY not in str(caught.value)
    assert KEY[:10] not in str(caught.value)


def test_the_key_is_in_no_answer_and_not_on_disk(tmp_path):
    with running_chat(ok(f"your key is {KEY}")) as server:
        answer = model(server, cache=tmp_path).ask(HELLO)
    assert answer.text == "your key is ***"
    assert all(KEY not in file.read_text("utf-8") for file in tmp_path.iterdir())
