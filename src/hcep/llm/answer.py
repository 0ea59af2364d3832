"""What a chat endpoint answered, read from a body that nobody vouches for; calls and tokens, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from hcep.errors import HCEPError

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
    """One answer of a chat model.

    Attributes
    ----------
    text : what the model wrote; empty where it wrote nothing
    prompt_tokens, completion_tokens : as the endpoint counted them; 0 where it does not say
    model : the model as the endpoint names it
    finish_reason : "stop", "length" (cut off at the limit of tokens), or what else the endpoint says
    cached : whether the answer came from disk
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    model: str
    finish_reason: str
    cached: bool = False

    def mapped(self, change: Callable[[str], str]) -> Answer:
        """The answer with its texts changed."""
        return replace(self, text=change(self.text), model=change(self.model), finish_reason=change(self.finish_reason))

    @property
    def truncated(self) -> bool:
        """Whether the text stops where the tokens ran out."""
        return self.finish_reason == "length"


@dataclass(frozen=True)
class Usage:
    """What a chat model was asked and what that took; answers from disk cost nothing.

    Attributes
    ----------
    calls : answers given, those from disk among them
    cached_calls : answers from disk
    retries : requests that were repeated
    prompt_tokens, completion_tokens : of answers that were not on disk
    cost : in the currency of the prices; None where no prices are known

    Examples
    --------
    >>> from hcep.llm import Usage
    >>> str(Usage(calls=3, cached_calls=1, prompt_tokens=1200, completion_tokens=300, cost=0.0021))
    '3 calls (1 from disk), 1,200 prompt + 300 completion tokens, cost 0.0021'
    """

    calls: int = 0
    cached_calls: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None

    def with_answer(self, answer: Answer, prices: Prices | None) -> Usage:
        """The usage after one more answer."""
        if answer.cached:
            return replace(self, calls=self.calls + 1, cached_calls=self.cached_calls + 1)
        tokens = answer.prompt_tokens, answer.completion_tokens
        spent = sum(price * n for price, n in zip(prices or (0.0, 0.0), tokens, strict=True)) / 1e6
        return replace(
            self,
            calls=self.calls + 1,
            prompt_tokens=self.prompt_tokens + tokens[0],
            completion_tokens=self.completion_tokens + tokens[1],
            cost=None if self.cost is None else self.cost + spent,
        )

    def __sub__(self, before: Usage) -> Usage:
        """What came on top of an earlier state."""
        since: Any = {}
        for field in fields(self):
            now, then = getattr(self, field.name), getattr(before, field.name)
            since[field.name] = None if now is None or then is None else now - then
        return Usage(**since)

    def __str__(self) -> str:
        calls = f"{self.calls:,} call{'' if self.calls == 1 else 's'}"
        disk = f" ({self.cached_calls:,} from disk)" if self.cached_calls else ""
        tokens = f"{self.prompt_tokens:,} prompt + {self.completion_tokens:,} completion tokens"
        cost = "" if self.cost is None else f", cost {self.cost:.4f}"
        return f"{calls}{disk}, {tokens}{cost}"


def read_completion(body: bytes, content_type: str, asked_model: str) -> Answer:
    """Read the body of a chat completion.

    Raises
    ------
    TransientError
        For a body that is not JSON, or JSON without a choice that has a message; asking again may help.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        start = body[:80].decode("utf-8", "replace")
        raise TransientError(
            f"the endpoint answered with {content_type or 'no content type'}, not JSON: {start!r}; "
            "is base_url the address that ends in /v1?"
        ) from None
    try:
        choice = data["choices"][0]
        text = choice["message"].get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise TransientError(
            f"the endpoint answered with JSON that is no chat completion: {json.dumps(data)[:80]}"
        ) from None
    return Answer(
        text if isinstance(text, str) else "",
        _count(data.get("usage"), "prompt_tokens"),
        _count(data.get("usage"), "completion_tokens"),
        str(data.get("model") or asked_model),
        str(choice.get("finish_reason") or "unknown"),
    )


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else 0
