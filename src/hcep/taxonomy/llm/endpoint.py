"""One request to a chat endpoint, whose answer is limited in bytes and time and never trusted."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Self

import hcep
from hcep._files import AddressError, BrokenOffError, TooLargeError, TooSlowError, WebError, WebResponse, fetch
from hcep.errors import HCEPError, quote

#: No answer comes near this size; an endpoint that sends more is broken or hostile.
MAX_BODY = 16_000_000
OPENAI = "https://api.openai.com/v1"
#: Shorter "keys" are placeholders, which may also be words of an answer.
_SECRET = 8


class LLMError(HCEPError):
    """The language model gave no usable answer; the message says why and what to do."""


class TransientError(LLMError):
    """A failure that may pass; `wait` is the number of seconds that the server asked to wait, if any."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class ChatAnswer:
    """One answer of a chat model; `cached` is whether it came from disk.

    The endpoint names the model and counts the tokens (0 if it does not). The reason it finished is "stop", "length"
    (cut off at the limit of tokens), or another word of the endpoint's.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    model: str
    finish_reason: str
    cached: bool = False

    @property
    def truncated(self) -> bool:
        """Whether the text was cut off at the token limit."""
        return self.finish_reason == "length"


@dataclass(frozen=True)
class Usage:
    """The calls and tokens of a chat model; answers from disk count as calls, and `retries` are repeated requests.

    >>> str(Usage(calls=3, cached_calls=1, prompt_tokens=1200, completion_tokens=300))
    '3 calls (1 from disk), 1,200 prompt + 300 completion tokens'
    """

    calls: int = 0
    cached_calls: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def with_answer(self, answer: ChatAnswer) -> Self:
        """The usage after one more answer."""
        calls = self.calls + 1
        if answer.cached:
            return replace(self, calls=calls, cached_calls=self.cached_calls + 1)
        n_in, n_out = self.prompt_tokens + answer.prompt_tokens, self.completion_tokens + answer.completion_tokens
        return replace(self, calls=calls, prompt_tokens=n_in, completion_tokens=n_out)

    def __sub__(self, before: Self) -> Self:
        """The usage since an earlier state."""
        then = asdict(before)
        return replace(self, **{name: now - then[name] for name, now in asdict(self).items()})

    def __str__(self) -> str:
        calls = f"{self.calls:,} call{'' if self.calls == 1 else 's'}"
        disk = f" ({self.cached_calls:,} from disk)" if self.cached_calls else ""
        tokens = f"{self.prompt_tokens:,} prompt + {self.completion_tokens:,} completion tokens"
        return f"{calls}{disk}, {tokens}"


class UnsupportedParameterError(LLMError):
    """The model does not support one of our parameters."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


def complete(request: Mapping[str, Any], base_url: str | None, api_key: str | None, timeout: float) -> ChatAnswer:
    """Send one request to a server that speaks the chat completions protocol; OpenAI's by default.

    The key never appears in a message or an answer. Raises TransientError if trying again may help,
    UnsupportedParameterError for a parameter that can be left out or renamed, and LLMError otherwise.
    """
    # A server of one's own ignores the key.
    key = api_key or os.environ.get("OPENAI_API_KEY") or ("not-needed" if base_url else None)
    if key is None:
        message = "no API key: set OPENAI_API_KEY, pass api_key, or give the base_url of a server that needs none "
        raise LLMError(message + "(--base-url http://127.0.0.1:8080/v1 on the command line)")

    def masked(text: str) -> str:
        return text if len(key) < _SECRET else text.replace(key, "***")

    try:
        response = _send(json.dumps(request).encode(), (base_url or OPENAI).rstrip("/"), key, timeout)
        if len(key) >= _SECRET:  # before the text is shortened for a message
            response = response._replace(body=response.body.replace(key.encode(), b"***"))
        if response.status != 200:
            raise _status_error(response)
        answer = _completion(response.body, response.headers.get("content-type", ""), request["model"])
        text, model, finished = map(masked, (answer.text, answer.model, answer.finish_reason))
        return replace(answer, text=text, model=model, finish_reason=finished)
    except LLMError as error:
        error.args = tuple(map(masked, error.args))
        raise


def _send(data: bytes, base_url: str, key: str, seconds: float) -> WebResponse:
    account = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
    headers = {"Content-Type": "application/json", "User-Agent": f"hcep/{hcep.__version__}"}
    headers |= {"Authorization": f"Bearer {key}"}
    headers |= {header: os.environ[name] for header, name in account.items() if os.environ.get(name)}
    limits: Any = {"timeout": seconds, "max_seconds": seconds, "max_bytes": MAX_BODY}
    try:
        return fetch(f"{base_url}/chat/completions", data=data, headers=headers, **limits)
    except TooSlowError:
        message = f"no complete answer within {seconds:g} s; raise timeout, or ask for fewer tokens"
        raise TransientError(message) from None
    except TooLargeError:
        raise LLMError(f"the endpoint sent more than {MAX_BODY:,} bytes; stopped reading") from None
    except BrokenOffError as error:
        raise TransientError(f"the connection was lost before the answer was complete ({error})") from None
    except AddressError as error:
        message = f"base_url {quote(base_url)} is not an address: {error}; expected http://host:port/v1"
        raise LLMError(message) from None
    except WebError as error:
        raise TransientError(f"cannot reach {base_url}: {error}; is the server running?") from None


def _completion(body: bytes, content_type: str, requested_model: str) -> ChatAnswer:
    """The answer in the body of a chat completion; TransientError if the body is something else."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        start = body[:80].decode("utf-8", "replace")
        message = f"the endpoint answered with {content_type or 'no content type'}, not JSON: {quote(start)}; "
        raise TransientError(message + "is base_url the address that ends in /v1?") from None
    try:
        choice = data["choices"][0]
        text = choice["message"].get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        message = f"the endpoint answered with JSON that is not a chat completion: {json.dumps(data)[:80]}"
        raise TransientError(message) from None
    usage = data["usage"] if isinstance(data.get("usage"), dict) else {}
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    n_in, n_out = (n if isinstance(n, int) and n >= 0 else 0 for n in counts)
    model, finished = str(data.get("model") or requested_model), str(choice.get("finish_reason") or "unknown")
    return ChatAnswer(text if isinstance(text, str) else "", n_in, n_out, model, finished)


def _status_error(response: WebResponse) -> LLMError:
    """The error that a response reports, in the protocol's record or in any other form."""
    try:
        details = json.loads(response.body)
        details = details.get("error", details) if isinstance(details, dict) else details
    except (ValueError, RecursionError):
        details = response.body[:1000].decode("utf-8", "replace").strip() or response.reason
    record = details if isinstance(details, dict) else {}
    status, parameter = response.status, record.get("param")
    reason = " ".join(str(record.get("message") or details).split())[:300]
    if status == 429 and record.get("code") != "insufficient_quota":
        return TransientError(f"too many requests (429): {reason}", retry_after(response.headers))
    if status in (408, 409) or status >= 500:
        return TransientError(f"the server failed ({status}): {reason}", retry_after(response.headers))
    if status == 400 and parameter in ("max_tokens", "temperature", "seed"):
        return UnsupportedParameterError(f"the model does not support {parameter}: {reason}", parameter)
    if status < 400:
        reason = f"it redirects to {quote(response.headers.get('location', 'nowhere'))}"
    hints = {401: "; check the API key", 403: "; check the API key", 404: "; check base_url and model"}
    return LLMError(f"the endpoint refused the request ({status}): {reason}{hints.get(status, '')}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait by its ``retry-after`` header, a number or a date."""
    value = headers.get("retry-after", "").strip()
    for seconds in (float, lambda text: parsedate_to_datetime(text).timestamp() - time.time()):
        try:
            return max(0.0, seconds(value))
        except (ValueError, TypeError, OverflowError):
            continue
    return None
