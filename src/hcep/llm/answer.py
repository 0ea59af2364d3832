"""What a chat model answers and what that took, and the errors of one that does not."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

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
