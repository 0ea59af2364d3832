"""Options of commands that may ask a language model, and the model that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.llm import ChatModel

BaseUrl = Annotated[str | None, typer.Option(help="Its server, as a rule ending in /v1; OpenAI's by default.")]
Cache = Annotated[Path | None, typer.Option(help="Folder that keeps its answers; a second run replays them.")]
Offline = Annotated[bool, typer.Option(help="Answers from the cache alone.")]


def chat_model(model: str | None, base_url: str | None, refusal: str, **options: Any) -> ChatModel | None:
    """The model of that name; without one, other options about it are refused."""
    if model is not None:
        from hcep.llm import ChatModel

        return ChatModel(model, base_url, **options)
    if base_url or any(options.get(name) for name in ("cache", "offline", "prices")):
        raise HCEPError(refusal)
    return None
