"""One request to a chat endpoint: its body read within a limit of bytes and of time."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any

from hcep.errors import MissingExtraError
from hcep.llm.answer import Answer, LLMError, read_completion

#: No answer that we ask for comes near; an endpoint that sends more is broken or hostile.
MAX_BODY = 16_000_000


class TransientError(LLMError):
    """A failure that may pass: `wait` is how many seconds the server asked for, if it did."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class UnsupportedParameterError(LLMError):
    """The model refuses one of our parameters."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


def load_openai() -> Any:
    """The client library.

    Raises
    ------
    MissingExtraError
        With the command that installs it.
    """
    try:
        return import_module("openai")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f'a language model needs {error.name}, which is not installed: pip install "hcep[llm]"'
        ) from error


class Endpoint:
    """A server that speaks the chat completions protocol."""

    def __init__(self, base_url: str | None, api_key: str | None, timeout: float) -> None:
        self._openai = load_openai()
        self._timeout = timeout
        try:
            # Repeating is our business: the library's own would hide how often, and wait without a bound.
            self._client = self._openai.OpenAI(base_url=base_url, api_key=api_key, timeout=timeout, max_retries=0)
        except self._openai.OpenAIError:
            raise LLMError(
                "no API key: set OPENAI_API_KEY, pass api_key, or give the base_url of a server that needs none "
                "(--base-url http://127.0.0.1:8080/v1 on the command line)"
            ) from None
        except Exception as error:
            raise LLMError(f"base_url {base_url!r} is no address: {error}; expected http://host:port/v1") from None
        # Connections are kept open between questions; they go with the endpoint, not whenever memory is swept.
        weakref.finalize(self, self._client.close)

    def complete(self, request: Mapping[str, Any]) -> Answer:
        """Ask once.

        Raises
        ------
        TransientError
            Too many requests, a fault of the server, a time-out, a lost connection.
        UnsupportedParameterError
            The model does not take a parameter that can be left out or renamed.
        LLMError
            Anything else: asking again would not help.
        """
        openai = self._openai
        deadline = time.monotonic() + self._timeout
        try:
            with self._client.chat.completions.with_streaming_response.create(**request) as response:
                body = self._body(response, deadline)
                return read_completion(body, response.headers.get("content-type", ""), request["model"])
        except openai.APITimeoutError:
            raise TransientError(self._too_slow) from None
        except openai.APIConnectionError as error:
            reason = str(error.__cause__ or error)
            raise TransientError(f"cannot reach {self._client.base_url}: {reason}; is the server running?") from None
        except openai.APIStatusError as error:
            raise _status_error(error) from None

    def _body(self, response: Any, deadline: float) -> bytes:
        parts, size = [], 0
        try:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MAX_BODY:
                    raise LLMError(f"the endpoint sent more than {MAX_BODY:,} bytes; stopped reading")
                if time.monotonic() > deadline:
                    raise TransientError(self._too_slow)
        except LLMError:
            raise
        except Exception as error:  # the transport's own errors, which differ between its versions
            if "Timeout" in type(error).__name__:
                raise TransientError(self._too_slow) from None
            raise TransientError(f"the connection broke off in the middle of the answer ({error})") from None
        return b"".join(parts)

    @property
    def _too_slow(self) -> str:
        return f"no whole answer within {self._timeout:g} s; raise timeout, or ask for fewer tokens"


def _status_error(error: Any) -> LLMError:
    status = error.status_code
    reason = " ".join(str(error.message).split())[:300]
    if status == 429 and getattr(error, "code", None) != "insufficient_quota":
        return TransientError(f"too many requests (429): {reason}", retry_after(error.response.headers))
    if status in (408, 409) or status >= 500:
        return TransientError(f"the server failed ({status}): {reason}", retry_after(error.response.headers))
    parameter = getattr(error, "param", None)
    if status == 400 and parameter in ("max_tokens", "temperature", "seed"):
        return UnsupportedParameterError(f"the model refuses {parameter}: {reason}", parameter)
    hints = {401: "; check the API key", 403: "; check the API key", 404: "; check base_url and model"}
    return LLMError(f"the endpoint refused the request ({status}): {reason}{hints.get(status, '')}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: a number, or a date, in its ``retry-after`` header."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
