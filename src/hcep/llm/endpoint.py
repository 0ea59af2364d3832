"""One request to a chat endpoint: its body read within a limit of bytes and of time."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from hcep._optional import require
from hcep.llm.answer import Answer, LLMError, TransientError, read_completion

#: No answer that we ask for comes near; an endpoint that sends more is broken or hostile.
MAX_BODY = 16_000_000


class UnsupportedParameterError(LLMError):
    """The model refuses one of our parameters."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class Endpoint:
    """A server that speaks the chat completions protocol."""

    def __init__(self, base_url: str | None, api_key: str | None, timeout: float) -> None:
        self._openai = require("openai", "llm", "a language model")
        self._timeout = timeout
        self._too_slow = f"no whole answer within {timeout:g} s; raise timeout, or ask for fewer tokens"
        try:
            # Not the library's own retries: they are not counted, wait without a bound in sum, and end with a body
            # that is no completion, as servers behind a proxy send while they load.
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
            Too many requests, a fault of the server, a time-out, a lost connection, a body that is no completion.
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
        body = bytearray()
        try:
            for part in response.iter_bytes():
                body += part
                if len(body) > MAX_BODY:
                    raise LLMError(f"the endpoint sent more than {MAX_BODY:,} bytes; stopped reading")
                if time.monotonic() > deadline:
                    raise TransientError(self._too_slow)
        except LLMError:
            raise
        except Exception as error:  # the transport's own errors, which differ between its versions
            slow = "Timeout" in type(error).__name__
            broken = f"the connection broke off in the middle of the answer ({error})"
            raise TransientError(self._too_slow if slow else broken) from None
        return bytes(body)


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
