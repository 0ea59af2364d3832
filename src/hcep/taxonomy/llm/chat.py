"""A chat client with retries and a cache on disk."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hcep._checks import is_number, require_not_negative
from hcep._files import write_text
from hcep.errors import HCEPError, quote
from hcep.taxonomy.llm.endpoint import (
    ChatAnswer,
    LLMError,
    TransientError,
    UnsupportedParameterError,
    Usage,
    complete,
)

Messages = Sequence[Mapping[str, str]]
Accepted = TypeVar("Accepted")
FORMAT = "hcep-chat-answer"
#: Seconds; the wait between two tries doubles up to this, unless the server asks for another.
LONGEST_BACKOFF = 8.0
#: Characters of a rejected answer that the model sees again.
MAX_SENT_BACK = 400


class RejectedError(Exception):
    """An answer was rejected; the message is worded to follow "it"."""


class ChatModel:
    """A language model behind any server that speaks OpenAI's chat protocol (OpenAI, vLLM, Ollama, llama.cpp, ...).

    Parameters
    ----------
    model : the model's name on the server
    base_url : address of the server, usually ending in ``/v1``; by default OPENAI_BASE_URL, or else OpenAI's
    api_key : OPENAI_API_KEY by default; a server of your own may need none
    temperature : None leaves the choice to the server
    max_tokens : maximum length of an answer; one that is cut off has ``finish_reason == "length"``
    timeout : seconds for one complete answer
    max_retries : further tries after too many requests, server errors, timeouts and broken connections
    max_wait : maximum seconds to wait between the tries of one answer, in total
    backoff : first wait in seconds if the server names none; it doubles up to 8 s
    cache : folder that keeps every answer as JSON, by the hash of model, messages and parameters
    offline : answer only from `cache`

    Attributes
    ----------
    usage : calls and tokens so far

    A chat model can be used from several threads.

    Examples
    --------
    >>> from hcep.taxonomy.llm import ChatModel
    >>> chat = ChatModel("smollm2", "http://127.0.0.1:8080/v1", cache="answers", offline=True)
    >>> chat.ask([{"role": "user", "content": "Name a bird."}])
    Traceback (most recent call last):
    hcep.taxonomy.llm.endpoint.LLMError: offline, and no answer to prompt bfc2ebbd33e5 in 'answers': ...
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        temperature: float | None = 0.0,
        max_tokens: int | None = 4096,
        timeout: float = 60.0,
        max_retries: int = 4,
        max_wait: float = 120.0,
        backoff: float = 0.5,
        cache: str | Path | None = None,
        offline: bool = False,
    ) -> None:
        if not isinstance(model, str) or not model.strip():
            raise HCEPError(f"model must be the name of a model on the server, got {quote(model)}")
        if offline and cache is None:
            raise HCEPError("offline answers come from the cache; pass the folder of a recorded run")
        if not is_number(timeout) or not 0 < timeout < float("inf"):
            raise HCEPError(f"timeout must be a finite number above 0, got {quote(timeout)}")
        for name, value in {"max_wait": max_wait, "backoff": backoff, "max_retries": max_retries}.items():
            require_not_negative(name, value)
        require_not_negative("temperature", 0 if temperature is None else temperature)
        require_not_negative("max_tokens", 1 if max_tokens is None else max_tokens, least=1)
        self.model = model
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            expected = "expected http://host:port/v1 or https://host/v1 (--base-url on the command line)"
            raise HCEPError(f"base_url (or OPENAI_BASE_URL) {quote(self.base_url)} is not a web address; {expected}")
        self.timeout, self.max_retries, self.max_wait, self.backoff = timeout, max_retries, max_wait, backoff
        self.offline = offline
        self.cache = None if cache is None else Path(cache)
        if self.cache is not None and self.cache.exists() and not self.cache.is_dir():
            raise HCEPError(f"cache must be a folder; {str(cache)!r} is a file")
        self.usage = Usage()
        self._api_key = api_key
        self._parameters = {"temperature": temperature, "max_tokens": max_tokens}
        self._renamed: dict[str, str | None] = {}  # parameters that this model has under another name, or not at all
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        where = "offline" if self.offline else self.base_url or "OpenAI"
        return f"ChatModel({self.model!r}, {where}; {self.usage})"

    def ask(self, messages: Messages, *, seed: int | None = None) -> ChatAnswer:
        """Ask for the next message of a conversation; each seed has an answer of its own in the cache.

        Raises LLMError if the server refuses or keeps failing, or if `offline` and the cache has no answer.
        """
        request = self._request(messages, seed)
        # Without the server's address: a recorded run can be replayed anywhere. Two servers that give one name to
        # different models need different folders.
        canonical = json.dumps(request, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()
        place = None if self.cache is None else self.cache / f"{hashlib.sha256(canonical).hexdigest()}.json"
        answer = None if place is None else _cached_answer(place, request)
        if answer is None:
            if self.offline and place is not None:
                message = f"offline, and no answer to prompt {place.stem[:12]} in {str(place.parent)!r}: run once with "
                raise LLMError(message + "a server and this cache, with the same model, options and messages")
            answer = self._ask_with_retries(request)
            if place is not None:
                fields = {key: value for key, value in asdict(answer).items() if key != "cached"}
                record = {"format": FORMAT, "request": request, "answer": fields}
                write_text(place, json.dumps(record, indent=2, ensure_ascii=False))
        with self._lock:
            self.usage = self.usage.with_answer(answer)
        return answer

    def _request(self, messages: Messages, seed: int | None) -> dict[str, Any]:
        if isinstance(messages, str) or not messages:
            raise HCEPError('messages must be a list of at least one {"role": ..., "content": ...}')
        for message in messages:
            role, content = message.get("role"), message.get("content")
            if role not in ("system", "user", "assistant") or not isinstance(content, str):
                expected = 'a message needs a "role" (system, user or assistant) and a "content" of text'
                raise HCEPError(f"{expected}; got role {quote(role)} and content of type {type(content).__name__}")
        plain = [{"role": message["role"], "content": message["content"]} for message in messages]
        request = {"model": self.model, "messages": plain, **self._parameters, "seed": seed}
        return {name: value for name, value in request.items() if value is not None}

    def _ask_with_retries(self, request: dict[str, Any]) -> ChatAnswer:
        waited = 0.0
        for n_failed in range(self.max_retries + 1):
            try:
                return self._ask_adapting(request)
            except TransientError as error:
                wait = min(self.backoff * 2**n_failed, LONGEST_BACKOFF) if error.wait is None else error.wait
                if n_failed == self.max_retries:
                    raise LLMError(f"gave up after {n_failed + 1} attempts: {error}") from error
                if waited + wait > self.max_wait:
                    raise LLMError(
                        f"gave up: the next attempt is due in {wait:g} s, beyond max_wait={self.max_wait:g} s: {error}"
                    ) from error
            time.sleep(wait)
            waited += wait
            with self._lock:
                self.usage = replace(self.usage, retries=self.usage.retries + 1)
        raise AssertionError("the last failure raises")

    def _ask_adapting(self, request: dict[str, Any]) -> ChatAnswer:
        """Ask; leave out or rename parameters that this model does not support (the newest models have no
        temperature, and another name for the limit of tokens).
        """
        for _ in range(4):
            renamed = {self._renamed.get(name, name): value for name, value in request.items()}
            supported = {str(name): value for name, value in renamed.items() if name is not None}
            try:
                return complete(supported, self.base_url, self._api_key, self.timeout)
            except UnsupportedParameterError as error:
                if error.parameter in self._renamed:
                    raise
                self._renamed[error.parameter] = "max_completion_tokens" if error.parameter == "max_tokens" else None
        raise AssertionError("each parameter is renamed once")


def ask_until_accepted(chat: ChatModel, messages: Messages, accept: Callable[[str], Accepted], rounds: int) -> Accepted:
    """Ask until an answer is accepted; a rejected one goes back with the reason.

    Parameters
    ----------
    messages : the conversation so far
    accept : converts an answer's text, or raises `RejectedError`
    rounds : maximum number of answers; if none is accepted, the last `RejectedError` is raised
    """
    for left in range(rounds - 1, -1, -1):
        answer = chat.ask(messages)
        try:
            if answer.truncated:
                raise RejectedError("was cut off at the token limit")
            return accept(answer.text)
        except RejectedError as error:
            if not left:
                raise
            before = [{"role": "assistant", "content": answer.text[:MAX_SENT_BACK]}] if answer.text.strip() else []
            again = f"This cannot be used: it {error}. Answer again and keep to the rules."
            messages = [*messages, *before, {"role": "user", "content": again}]
    raise AssertionError("the last rejection raises")


class _CachedAnswer(msgspec.Struct):
    format: str
    request: dict[str, Any]
    answer: ChatAnswer


def _cached_answer(place: Path, request: dict[str, Any]) -> ChatAnswer | None:
    """The answer in a JSON file; a file that is damaged, or of another request, counts as absent."""
    try:
        record = msgspec.json.decode(place.read_bytes(), type=_CachedAnswer)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return replace(record.answer, cached=True) if record.format == FORMAT and record.request == request else None
