"""One request to a chat endpoint: its answer read within a limit of bytes and of time, whatever its status."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException, InvalidURL
from typing import Any

import hcep
from hcep import _web
from hcep.llm.answer import Answer, LLMError, TransientError, read_completion

#: No answer that we ask for comes near; an endpoint that sends more is broken or hostile.
MAX_BODY = 16_000_000
OPENAI = "https://api.openai.com/v1"
#: Shorter "keys" are placeholders, which may well be words of an answer.
_SECRET = 8


class UnsupportedParameterError(LLMError):
    """The model refuses one of our parameters."""

    def __init__(self, message: str, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class Endpoint:
    """A server that speaks the chat completions protocol."""

    def __init__(self, base_url: str | None, api_key: str | None, timeout: float) -> None:
        if api_key is None:
            raise LLMError(
                "no API key: set OPENAI_API_KEY, pass api_key, or give the base_url of a server that needs none "
                "(--base-url http://127.0.0.1:8080/v1 on the command line)"
            )
        self._base_url, self._key, self._timeout = (base_url or OPENAI).rstrip("/"), api_key, timeout
        account = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
        self._headers = {
            "Authorization": f"Bearer {api_key}",
            "Content-Type": "application/json",
            "User-Agent": f"hcep/{hcep.__version__}",
            **{header: os.environ[name] for header, name in account.items() if os.environ.get(name)},
        }

    def complete(self, request: Mapping[str, Any]) -> Answer:
        """Ask once.

        Raises
        ------
        TransientError
            Too many requests, a fault of the server, a time-out, a lost connection, a body that is no completion.
        UnsupportedParameterError
            The model does not take a parameter that can be left out or renamed.
        LLMError
            Anything else: asking again would not help. The key is in no message and in no answer.
        """
        try:
            answer = self._sent(json.dumps(request).encode())
            if len(self._key) >= _SECRET:  # before anything is cut to length, too
                answer = answer._replace(body=answer.body.replace(self._key.encode(), b"***"))
            if answer.status != 200:
                raise _status_error(answer)
            found = read_completion(answer.body, answer.headers.get("content-type", ""), request["model"])
            return found.mapped(self._masked)
        except LLMError as error:
            error.args = tuple(map(self._masked, error.args))
            raise

    def _sent(self, data: bytes) -> _web.Answer:
        url, seconds = f"{self._base_url}/chat/completions", self._timeout
        try:
            return _web.exchange(
                url, data=data, headers=self._headers, timeout=seconds, seconds=seconds, max_bytes=MAX_BODY
            )
        except _web.TooSlowError:
            raise TransientError(
                f"no whole answer within {seconds:g} s; raise timeout, or ask for fewer tokens"
            ) from None
        except _web.TooLargeError:
            raise LLMError(f"the endpoint sent more than {MAX_BODY:,} bytes; stopped reading") from None
        except _web.BrokenOffError as error:
            raise TransientError(f"the connection broke off in the middle of the answer ({error})") from None
        except (InvalidURL, ValueError) as error:
            raise LLMError(
                f"base_url {self._base_url!r} is no address: {error}; expected http://host:port/v1"
            ) from None
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise TransientError(f"cannot reach {self._base_url}: {reason}; is the server running?") from None

    def _masked(self, text: str) -> str:
        """Text without the key, which a server may send back."""
        return text if len(self._key) < _SECRET else text.replace(self._key, "***")


def _status_error(answer: _web.Answer) -> LLMError:
    status, told = answer.status, _told(answer)
    if isinstance(told, dict):
        code, parameter = told.get("code"), told.get("param")
        reason = " ".join(str(told.get("message") or told).split())[:300]
    else:
        code, parameter, reason = None, None, " ".join(str(told).split())[:300]
    if status == 429 and code != "insufficient_quota":
        return TransientError(f"too many requests (429): {reason}", retry_after(answer.headers))
    if status in (408, 409) or status >= 500:
        return TransientError(f"the server failed ({status}): {reason}", retry_after(answer.headers))
    if status == 400 and parameter in ("max_tokens", "temperature", "seed"):
        return UnsupportedParameterError(f"the model refuses {parameter}: {reason}", parameter)
    if status < 400:
        reason = f"it sends us on to {answer.headers.get('location', 'nowhere')!r:.200}"
    hints = {401: "; check the API key", 403: "; check the API key", 404: "; check base_url and model"}
    return LLMError(f"the endpoint refused the request ({status}): {reason}{hints.get(status, '')}")


def _told(answer: _web.Answer) -> Any:
    """What an answer that is an error says of it: the protocol's record, or whatever stands there."""
    try:
        data = json.loads(answer.body)
        return data.get("error", data) if isinstance(data, dict) else data
    except (ValueError, RecursionError):
        return answer.body[:1000].decode("utf-8", "replace").strip() or answer.reason


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
