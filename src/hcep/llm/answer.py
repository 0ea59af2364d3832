"""What a chat endpoint answered, read from a body that nobody vouches for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hcep.errors import HCEPError


class LLMError(HCEPError):
    """No usable answer came from the language model; the message says why and what to do."""


class UnusableAnswerError(LLMError):
    """The endpoint answered with something that is no chat completion; asking again may help."""


@dataclass(frozen=True)
class Answer:
    """One answer of a chat model.

    Attributes
    ----------
    text : str
        What the model wrote; empty where it wrote nothing.
    prompt_tokens, completion_tokens : int
        As the endpoint counted them; 0 where it does not say.
    cached : bool
        Whether the answer came from disk.
    model : str
        The model as the endpoint names it.
    finish_reason : str
        "stop", "length" (cut off at the limit of tokens), or what else the endpoint says.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    cached: bool
    model: str
    finish_reason: str

    @property
    def truncated(self) -> bool:
        """Whether the text stops where the tokens ran out."""
        return self.finish_reason == "length"


def read_completion(body: bytes, content_type: str, asked_model: str) -> Answer:
    """Read the body of a chat completion.

    Raises
    ------
    UnusableAnswerError
        For a body that is not JSON, or JSON without a choice that has a message.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        start = body[:80].decode("utf-8", "replace")
        raise UnusableAnswerError(
            f"the endpoint answered with {content_type or 'no content type'}, not JSON: {start!r}; "
            "is base_url the address that ends in /v1?"
        ) from None
    try:
        choice = data["choices"][0]
        text = choice["message"].get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise UnusableAnswerError(
            f"the endpoint answered with JSON that is no chat completion: {json.dumps(data)[:80]}"
        ) from None
    usage = data.get("usage")
    return Answer(
        text=text if isinstance(text, str) else "",
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        cached=False,
        model=str(data.get("model") or asked_model),
        finish_reason=str(choice.get("finish_reason") or "unknown"),
    )


def _count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value >= 0 else 0
