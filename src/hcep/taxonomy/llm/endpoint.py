"""One request to a chat endpoint: its answer, which nobody vouches for, within limits of bytes and of time."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Self

import hcep
from hcep._files import AddressError, BrokenOffError, TooLargeError, TooSlowError, WebError, WebResponse, fetch
from hcep.errors import HCEPError

#: No answer that we ask for comes near; an endpoint that sends more is broken or hostile.
MAX_BODY = 16_000_000
OPENAI = "https://api.openai.com/v1"
#: Shorter "keys" are placeholders, which may well be words of an answer.
_SECRET = 8
Prices = tuple[float, float]


class LLMError(HCEPError):
    """No usable answer came from the language model; the message says why and what to do."""


class TransientError(LLMError):
    """A failure that may pass: `wait` is how many seconds the server asked for, if it did."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class Answer:
    """One answer of a chat model; `cached` is whether it came from disk.

    The model is named, and the tokens are counted (0 where it does not say), as by the endpoint. The reason it finished
    is "stop", "length" (cut off at the limit of tokens), or what else the endpoint says.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    model: str
    finish_reason: str
    cached: bool = False

    @property
    def truncated(self) -> bool:
        """Whether the text stops where the tokens ran out."""
        return self.finish_reason == "length"


@dataclass(frozen=True)
class Usage:
    """What a chat model was asked and what that took: answers from disk are calls, and cost nothing.

    `retries` counts requests that were repeated; `cost` is in the currency of the prices, None where none are known.

    >>> str(Usage(calls=3, cached_calls=1, prompt_tokens=1200, completion_tokens=300, cost=0.0021))
    '3 calls (1 from disk), 1,200 prompt + 300 completion tokens, cost 0.0021'
    """

    calls: int = 0
    cached_calls: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None

    def with_answer(self, answer: Answer, prices: Prices | None) -> Self:
        """The usage after one more answer."""
        calls = self.calls + 1
        if answer.cached:
            return replace(self, calls=calls, cached_calls=self.cached_calls + 1)
        n_in, n_out = answer.prompt_tokens, answer.completion_tokens
        price_in, price_out = prices or (0.0, 0.0)
        cost = None if self.cost is None else self.cost + (price_in * n_in + price_out * n_out) / 1e6
        n_in, n_out = self.prompt_tokens + n_in, self.completion_tokens + n_out
        return replace(self, calls=calls, prompt_tokens=n_in, completion_tokens=n_out, cost=cost)

    def __sub__(self, before: Self) -> Self:
        """What came on top of an earlier state."""
        then = asdict(before)
        since: Any = {k: None if None in (now, then[k]) else now - then[k] for k, now in asdict(self).items()}
        return replace(self, **since)

    def __str__(self) -> str:
        calls = f"{self.calls:,} call{'' if self.calls == 1 else 's'}"
        disk = f" ({self.cached_calls:,} from disk)" if self.cached_calls else ""
        tokens = f"{self.prompt_tokens:,} prompt + {self.completion_tokens:,} completion tokens"
        return f"{calls}{disk}, {tokens}" + ("" if self.cost is None else f", cost {self.cost:.4f}")


class UnsupportedParameterError(LLMError):
    """The model refuses one of our parameters."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class Endpoint:
    """A server that speaks the chat completions protocol."""

    def __init__(self, base_url: str | None, api_key: str | None, timeout: float) -> None:
        if api_key is None:
            told = "no API key: set OPENAI_API_KEY, pass api_key, or give the base_url of a server that needs none "
            raise LLMError(told + "(--base-url http://127.0.0.1:8080/v1 on the command line)")
        self._base_url, self._key, self._timeout = (base_url or OPENAI).rstrip("/"), api_key, timeout
        account = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
        own = {"Content-Type": "application/json", "User-Agent": f"hcep/{hcep.__version__}"}
        self._headers = {"Authorization": f"Bearer {api_key}", **own}
        self._headers |= {header: os.environ[name] for header, name in account.items() if os.environ.get(name)}

    def complete(self, request: Mapping[str, Any]) -> Answer:
        """Ask once; the key is in no message and in no answer.

        Raises a TransientError where asking again may help, an UnsupportedParameterError for a parameter that can be
        left out or renamed, and an LLMError for the rest.
        """
        try:
            answer = self._sent(json.dumps(request).encode())
            if len(self._key) >= _SECRET:  # before anything is cut to length, too
                answer = answer._replace(body=answer.body.replace(self._key.encode(), b"***"))
            if answer.status != 200:
                raise _status_error(answer)
            found = _completion(answer.body, answer.headers.get("content-type", ""), request["model"])
            text, model, finished = map(self._masked, (found.text, found.model, found.finish_reason))
            return replace(found, text=text, model=model, finish_reason=finished)
        except LLMError as error:
            error.args = tuple(map(self._masked, error.args))
            raise

    def _sent(self, data: bytes) -> WebResponse:
        url, seconds = f"{self._base_url}/chat/completions", self._timeout
        limits: Any = {"timeout": seconds, "max_seconds": seconds, "max_bytes": MAX_BODY}
        try:
            return fetch(url, data=data, headers=self._headers, **limits)
        except TooSlowError:
            told = f"no whole answer within {seconds:g} s; raise timeout, or ask for fewer tokens"
            raise TransientError(told) from None
        except TooLargeError:
            raise LLMError(f"the endpoint sent more than {MAX_BODY:,} bytes; stopped reading") from None
        except BrokenOffError as error:
            raise TransientError(f"the connection broke off before the whole answer came ({error})") from None
        except AddressError as error:
            message = f"base_url {self._base_url!r} is not an address: {error}; expected http://host:port/v1"
            raise LLMError(message) from None
        except WebError as error:
            raise TransientError(f"cannot reach {self._base_url}: {error}; is the server running?") from None

    def _masked(self, text: str) -> str:
        """Text without the key, which a server may send back."""
        return text if len(self._key) < _SECRET else text.replace(self._key, "***")


def _completion(body: bytes, content_type: str, asked_model: str) -> Answer:
    """The answer in the body of a chat completion; a TransientError for what is none."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        start = body[:80].decode("utf-8", "replace")
        told = f"the endpoint answered with {content_type or 'no content type'}, not JSON: {start!r}; "
        raise TransientError(told + "is base_url the address that ends in /v1?") from None
    try:
        choice = data["choices"][0]
        text = choice["message"].get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        told = f"the endpoint answered with JSON that is no chat completion: {json.dumps(data)[:80]}"
        raise TransientError(told) from None
    usage = data["usage"] if isinstance(data.get("usage"), dict) else {}
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    n_in, n_out = (n if isinstance(n, int) and n >= 0 else 0 for n in counts)
    model, finished = str(data.get("model") or asked_model), str(choice.get("finish_reason") or "unknown")
    return Answer(text if isinstance(text, str) else "", n_in, n_out, model, finished)


def _status_error(answer: WebResponse) -> LLMError:
    """What an answer that is an error says of it: the protocol's record, or whatever stands there."""
    try:
        told = json.loads(answer.body)
        told = told.get("error", told) if isinstance(told, dict) else told
    except (ValueError, RecursionError):
        told = answer.body[:1000].decode("utf-8", "replace").strip() or answer.reason
    record = told if isinstance(told, dict) else {}
    status, parameter = answer.status, record.get("param")
    reason = " ".join(str(record.get("message") or told).split())[:300]
    if status == 429 and record.get("code") != "insufficient_quota":
        return TransientError(f"too many requests (429): {reason}", retry_after(answer.headers))
    if status in (408, 409) or status >= 500:
        return TransientError(f"the server failed ({status}): {reason}", retry_after(answer.headers))
    if status == 400 and parameter in ("max_tokens", "temperature", "seed"):
        return UnsupportedParameterError(f"the model refuses {parameter}: {reason}", parameter)
    if status < 400:
        reason = f"it sends us on to {answer.headers.get('location', 'nowhere')!r:.200}"
    hints = {401: "; check the API key", 403: "; check the API key", 404: "; check base_url and model"}
    return LLMError(f"the endpoint refused the request ({status}): {reason}{hints.get(status, '')}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: a number, or a date, in its ``retry-after`` header."""
    value = headers.get("retry-after", "").strip()
    for seconds in (float, lambda text: parsedate_to_datetime(text).timestamp() - time.time()):
        try:
            return max(0.0, seconds(value))
        except (ValueError, TypeError, OverflowError):
            continue
    return None
