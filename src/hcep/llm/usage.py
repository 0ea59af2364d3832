"""Calls and tokens, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hcep.errors import HCEPError
from hcep.llm.answer import Answer

Prices = tuple[float, float]


@dataclass(frozen=True)
class Usage:
    """What a chat model was asked and what that took; answers from disk cost nothing.

    Attributes
    ----------
    calls : int
        Answers given, those from disk among them.
    cached_calls : int
    retries : int
        Requests that were repeated.
    prompt_tokens, completion_tokens : int
        Of answers that were not on disk.
    cost : float or None
        In the currency of the prices; None where no prices are known.

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
        spent = 0.0
        if prices is not None:
            spent = (prices[0] * answer.prompt_tokens + prices[1] * answer.completion_tokens) / 1e6
        return replace(
            self,
            calls=self.calls + 1,
            prompt_tokens=self.prompt_tokens + answer.prompt_tokens,
            completion_tokens=self.completion_tokens + answer.completion_tokens,
            cost=None if self.cost is None else self.cost + spent,
        )

    def with_retry(self) -> Usage:
        return replace(self, retries=self.retries + 1)

    def __sub__(self, before: Usage) -> Usage:
        """What came on top of an earlier state."""
        known = self.cost is not None and before.cost is not None
        return Usage(
            self.calls - before.calls,
            self.cached_calls - before.cached_calls,
            self.retries - before.retries,
            self.prompt_tokens - before.prompt_tokens,
            self.completion_tokens - before.completion_tokens,
            (self.cost or 0.0) - (before.cost or 0.0) if known else None,
        )

    def __str__(self) -> str:
        calls = f"{self.calls:,} call{'' if self.calls == 1 else 's'}"
        disk = f" ({self.cached_calls:,} from disk)" if self.cached_calls else ""
        tokens = f"{self.prompt_tokens:,} prompt + {self.completion_tokens:,} completion tokens"
        cost = "" if self.cost is None else f", cost {self.cost:.4f}"
        return f"{calls}{disk}, {tokens}{cost}"


def checked_prices(prices: object) -> Prices | None:
    """Prices per million prompt and completion tokens.

    Raises
    ------
    HCEPError
        For anything but two numbers of at least 0.
    """
    if prices is None:
        return None
    try:
        prompt, completion = (float(price) for price in prices)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        prompt = completion = -1.0
    if not (0 <= prompt < float("inf") and 0 <= completion < float("inf")):
        raise HCEPError(
            "prices must be two numbers of at least 0, the price of a million prompt tokens and of a million "
            f"completion tokens; got {prices!r}"
        )
    return prompt, completion
