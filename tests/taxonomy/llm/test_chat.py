"""The chat model over real HTTP on the loopback interface: well, badly, from disk."""

import json
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from hcep.errors import HCEPError
from hcep.taxonomy.llm import ChatModel, endpoint as endpoint_module
from hcep.taxonomy.llm.endpoint import ChatAnswer, LLMError, Usage, retry_after
from tests.taxonomy.llm.chat_server import (
    body,
    dripping,
    dropped,
    ok,
    running_chat,
    slow,
    status,
    truncated,
    truncated_stream,
)

HELLO = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Say hello."}]


@pytest.fixture(autouse=True)
def _no_key_of_the_machine(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def model(chat, **options):
    return ChatModel("tiny", chat.url, **{"backoff": 0.001, "timeout": 5, **options})


def test_the_request_and_its_answer():
    with running_chat(ok("hello", prompt_tokens=20, completion_tokens=3)) as server:
        chat = model(server, max_tokens=50)
        answer = chat.ask(HELLO, seed=7)
    assert answer == ChatAnswer("hello", 20, 3, cached=False, model="loopback", finish_reason="stop")
    assert not answer.truncated
    assert server.requests == [
        {"model": "tiny", "messages": HELLO, "temperature": 0.0, "max_tokens": 50, "seed": 7},
    ]
    assert chat.usage == Usage(calls=1, prompt_tokens=20, completion_tokens=3)
    assert "1 call" in repr(chat)


def test_the_limit_of_tokens_is_sent():
    with running_chat(ok("hel", finish_reason="length")) as server:
        answer = model(server).ask(HELLO)
    assert answer.truncated


def test_no_text_and_no_counts_are_an_empty_answer():
    silent = json.dumps({"choices": [{"message": {"role": "assistant", "content": None}}]}).encode()
    with running_chat(body(silent)) as server:
        answer = model(server).ask(HELLO)
    assert answer == ChatAnswer("", 0, 0, cached=False, model="tiny", finish_reason="unknown")


FAULTS = {
    "429": status(429, retry_after="0"),
    "500": status(500),
    "503": status(503),
    "dropped": dropped,
    "truncated body": truncated("hello"),
    "truncated stream": truncated_stream("hello"),
    "malformed JSON": body(b'{"choices": [{"mess'),
    "not a completion": body(b'{"detail": "loading"}'),
    "no choice": body(b'{"choices": []}'),
    "a list": body(b"[1, 2]"),
    "HTML": body(b"<html>Bad gateway</html>", "text/html"),
    "time-out": slow(1.0),
}
#: Short only if the server is to be too slow: a busy machine needs time for an answer.
TIMEOUTS = dict.fromkeys(FAULTS, 5.0) | {"time-out": 0.2}


@pytest.mark.parametrize("name", FAULTS)
def test_a_temporary_fault_is_retried(name):
    with running_chat(FAULTS[name], FAULTS[name], "hello") as server:
        chat = model(server, timeout=TIMEOUTS[name], max_retries=2)
        assert chat.ask(HELLO).text == "hello"
    assert chat.usage.retries == 2
    assert chat.usage.calls == 1
    assert len(server.requests) == 3


REASONS = {
    "429": r"gave up after 2 attempts: too many requests \(429\).*scripted 429",
    "500": r"gave up after 2 attempts: the server failed \(500\)",
    "503": r"the server failed \(503\)",
    "dropped": "the connection was lost before the answer was complete .*without sending a response",
    "truncated body": "the connection was lost before the answer was complete",
    "truncated stream": "the connection was lost before the answer was complete",
    "malformed JSON": "application/json, not JSON.*base_url",
    "not a completion": "JSON that is not a chat completion.*loading",
    "no choice": "not a chat completion",
    "a list": "not a chat completion",
    "HTML": "text/html, not JSON: '<html>Bad gateway",
    "time-out": "no complete answer within 0.2 s",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_permanent_fault_ends_within_bounds_and_says_why(name, tmp_path):
    with running_chat(FAULTS[name]) as server:
        chat = model(server, timeout=TIMEOUTS[name], max_retries=1, cache=tmp_path / "answers")
        with pytest.raises(LLMError, match=REASONS[name]):
            chat.ask(HELLO)
    assert len(server.requests) == 2
    assert not (tmp_path / "answers").exists()
    assert chat.usage.calls == 0


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (status(401), r"refused the request \(401\).*check the API key"),
        (status(404), r"\(404\).*check base_url and model"),
        (status(400, {"message": "context too long"}), r"\(400\).*context too long"),
        (status(429, {"message": "no money", "code": "insufficient_quota"}), r"\(429\).*no money"),
        (body(b" " * 3000), "more than 2,000 bytes"),
    ],
    ids=["401", "404", "400", "quota", "endless"],
)
def test_permanent_errors_are_not_retried(fault, match, monkeypatch):
    monkeypatch.setattr(endpoint_module, "MAX_BODY", 2000)
    with running_chat(fault) as server, pytest.raises(LLMError, match=match):
        model(server).ask(HELLO)
    assert len(server.requests) == 1


def test_a_slow_body_ends_at_the_timeout():
    with (
        running_chat(dripping(0.05, 200)) as server,
        pytest.raises(LLMError, match="no complete answer within"),
    ):
        model(server, timeout=0.2, max_retries=0).ask(HELLO)


def test_the_server_says_how_long_to_wait():
    with running_chat(status(429, retry_after="0.4"), "hello") as server:
        assert model(server).ask(HELLO).text == "hello"
    assert server.times[1] - server.times[0] >= 0.4


def test_a_wait_beyond_max_wait_is_an_error():
    match = r"next attempt is due in 3600 s, beyond max_wait=120 s.*429"
    with running_chat(status(429, retry_after="3600"), "hello") as server, pytest.raises(LLMError, match=match):
        model(server).ask(HELLO)
    assert len(server.requests) == 1


def test_waits_are_bounded_in_sum():
    with running_chat(status(429, retry_after="0.2")) as server, pytest.raises(LLMError, match="beyond max_wait"):
        model(server, max_wait=0.5, max_retries=100).ask(HELLO)
    assert len(server.requests) == 3


def test_retry_after_in_seconds_as_a_date_or_not_at_all():
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after({"retry-after": "2.5"}) == 2.5
    assert retry_after({"retry-after": "-1"}) == 0
    assert 25 < retry_after({"retry-after": soon}) <= 30
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}) == 0
    assert retry_after({"retry-after": "later"}) is None
    assert retry_after({}) is None


def test_parameters_that_a_model_refuses_are_renamed_or_left_out():
    refuse_limit = status(400, {"param": "max_tokens", "message": "use max_completion_tokens"})
    refuse_temperature = status(400, {"param": "temperature", "message": "unsupported"})
    with running_chat(refuse_limit, refuse_temperature, "hello", "again") as server:
        chat = model(server, max_tokens=9)
        assert [chat.ask(HELLO).text, chat.ask(HELLO).text] == ["hello", "again"]
    assert server.requests[3] == {"model": "tiny", "messages": HELLO, "max_completion_tokens": 9}


def test_a_parameter_refused_twice_is_an_error():
    refuse = status(400, {"param": "temperature", "message": "never"})
    with running_chat(refuse) as server, pytest.raises(LLMError, match=r"does not support temperature: .*never"):
        model(server).ask(HELLO)
    assert len(server.requests) == 2


def test_none_leaves_parameters_to_the_server():
    with running_chat("hello") as server:
        model(server, temperature=None, max_tokens=None).ask(HELLO)
    assert server.requests == [{"model": "tiny", "messages": HELLO}]


# -- keys and addresses --------------------------------------------------------------------------------------------


def test_a_local_server_needs_no_key(monkeypatch):
    with running_chat("hello") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert ChatModel("tiny").ask(HELLO).text == "hello"
        monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
        ChatModel("tiny").ask(HELLO)
        ChatModel("tiny", api_key="given").ask(HELLO)
    keys = [headers["authorization"] for headers in server.headers]
    assert keys == ["Bearer not-needed", "Bearer from-the-environment", "Bearer given"]


def test_without_server_and_key():
    with pytest.raises(LLMError, match=r"no API key: set OPENAI_API_KEY.*--base-url http"):
        ChatModel("gpt").ask(HELLO)


@pytest.mark.parametrize("address", ["127.0.0.1:8761/v1", "localhost:8761", "ftp://host/v1"])
def test_an_address_without_http_is_refused_before_anything_is_asked(address, monkeypatch):
    with pytest.raises(HCEPError, match=rf"base_url .* '{address}' is not a web address; expected http://host:port/v1"):
        ChatModel("tiny", address)
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(HCEPError, match="or OPENAI_BASE_URL"):
        ChatModel("tiny")


def test_an_invalid_address():
    with pytest.raises(LLMError, match="base_url 'http://a:b:c' is not an address"):
        ChatModel("gpt", "http://a:b:c").ask(HELLO)


def test_connection_refused():
    with running_chat("hello") as server:
        pass
    with pytest.raises(LLMError, match="gave up after 2 attempts: cannot reach http://127"):
        model(server, max_retries=1).ask(HELLO)


# -- from disk -----------------------------------------------------------------------------------------------------


def test_an_answer_is_kept_and_replayed_without_server_or_key(tmp_path):
    with running_chat(ok("grüße", prompt_tokens=4, completion_tokens=2)) as server:
        chat = model(server, cache=tmp_path)
        first, second = chat.ask(HELLO), chat.ask(HELLO)
    assert len(server.requests) == 1
    assert (first.cached, second.cached) == (False, True)
    assert chat.usage == Usage(2, 1, 0, 4, 2)
    replay = ChatModel("tiny", cache=tmp_path, offline=True)
    assert replay.ask(HELLO) == second
    assert replay.usage == Usage(calls=1, cached_calls=1)
    (file,) = tmp_path.iterdir()
    assert "grüße" in file.read_text("utf-8")


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0.5}, {"max_tokens": 7}, {"model": "other"}],
    ids=["temperature", "max_tokens", "model"],
)
def test_another_question_has_another_cache_entry(change, tmp_path):
    with running_chat("one", "two") as server:
        model(server, cache=tmp_path).ask(HELLO)
        options = {"model": "tiny", "base_url": server.url, "cache": tmp_path, **change}
        assert ChatModel(**options).ask(HELLO).text == "two"


def test_seeds_and_messages_are_other_entries(tmp_path):
    with running_chat("one", "two", "three") as server:
        chat = model(server, cache=tmp_path)
        texts = [chat.ask(HELLO).text, chat.ask(HELLO, seed=1).text, chat.ask(HELLO[1:]).text]
    assert texts == ["one", "two", "three"]


def test_offline_names_the_prompt_that_is_missing(tmp_path):
    with running_chat("one") as server:
        model(server, cache=tmp_path).ask(HELLO)
    chat = ChatModel("tiny", cache=tmp_path, offline=True)
    with pytest.raises(LLMError, match=r"offline, and no answer to prompt [0-9a-f]{12} in .*run once with a server"):
        chat.ask(HELLO[1:])


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b'{"format": "hcep-chat-',
        b"\xff\xfe",
        b"[]",
        b'{"format": "hcep-chat-answer", "request": {}, "answer": {}}',
        b"[" * 5000,
    ],
    ids=["empty", "cut", "not UTF-8", "a list", "another request", "nested"],
)
def test_a_damaged_cache_entry_is_replaced(damage, tmp_path):
    with running_chat("one", "two") as server:
        chat = model(server, cache=tmp_path)
        chat.ask(HELLO)
        (file,) = tmp_path.iterdir()
        file.write_bytes(damage)
        assert chat.ask(HELLO).text == "two"
        assert chat.ask(HELLO).cached


def test_an_entry_with_a_field_of_the_wrong_type_is_ignored(tmp_path):
    with running_chat("one", "two") as server:
        chat = model(server, cache=tmp_path)
        chat.ask(HELLO)
        (file,) = tmp_path.iterdir()
        record = json.loads(file.read_text("utf-8"))
        file.write_text(json.dumps({**record, "answer": {**record["answer"], "text": 3}}))
        assert chat.ask(HELLO).text == "two"


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError("disk full")

    with running_chat("one") as server:
        monkeypatch.setattr("os.replace", full)
        with pytest.raises(HCEPError, match="disk full"):
            model(server, cache=tmp_path).ask(HELLO)
    assert list(tmp_path.iterdir()) == []


def test_several_threads_count_together():
    with running_chat("hello") as server:
        chat = model(server)
        threads = [threading.Thread(target=chat.ask, args=(HELLO,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert chat.usage.calls == 8
    assert chat.usage.prompt_tokens == 88


# -- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"model": " "}, "model must be the name"),
        ({"timeout": 0}, "timeout must be a finite number above 0, got 0"),
        ({"max_retries": -1}, "max_retries must be a finite number of at least 0"),
        ({"max_tokens": 0}, "max_tokens must be a finite number of at least 1"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"max_wait": "long"}, "max_wait must be a finite number"),
        ({"backoff": True}, "backoff must be a finite number"),
        ({"offline": True}, "offline answers come from the cache"),
        ({"cache": __file__}, "cache must be a folder"),
    ],
)
def test_options_out_of_range(options, match):
    with pytest.raises(HCEPError, match=match):
        ChatModel(**{"model": "tiny", **options})


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([], "messages must be a list"),
        ("hello", "messages must be a list"),
        ([{"role": "robot", "content": "x"}], "got role 'robot'"),
        ([{"role": "user", "content": 3}], "content of type int"),
    ],
)
def test_invalid_messages(messages, match):
    with pytest.raises(HCEPError, match=match):
        ChatModel("tiny", "http://127.0.0.1:1/v1").ask(messages)


def test_usage_of_one_run_is_a_difference():
    before, after = Usage(2, 1, 1, 10, 5), Usage(5, 2, 1, 30, 9)
    assert after - before == Usage(3, 1, 0, 20, 4)
