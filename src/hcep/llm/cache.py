"""Answers on disk, one readable JSON file a request, named by the hash of what was asked."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hcep.errors import HCEPError
from hcep.llm.answer import Answer

FORMAT = "hcep-chat-answer"
Request = Mapping[str, Any]


def request_hash(request: Request) -> str:
    """SHA-256 of a request: model, messages and parameters, not the address of the server.

    A recorded run thus replays wherever it is carried; two servers that give one name to different models need
    different folders.
    """
    canonical = json.dumps(request, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class AnswerCache:
    """A folder of answers. A file that is damaged, or that holds another request, counts as absent."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise HCEPError(f"cache must be a folder, and {str(self.folder)!r} is a file; name another place")

    def path(self, request: Request) -> Path:
        return self.folder / f"{request_hash(request)}.json"

    def get(self, request: Request) -> Answer | None:
        try:
            record = json.loads(self.path(request).read_text(encoding="utf-8"))
            if record["format"] != FORMAT or record["request"] != request:
                return None
            kept = record["answer"]
            return Answer(
                text=_typed(kept["text"], str),
                prompt_tokens=_typed(kept["prompt_tokens"], int),
                completion_tokens=_typed(kept["completion_tokens"], int),
                cached=True,
                model=_typed(kept["model"], str),
                finish_reason=_typed(kept["finish_reason"], str),
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, request: Request, answer: Answer) -> None:
        """Write an answer; a reader sees the whole file or none."""
        kept = {key: value for key, value in asdict(answer).items() if key != "cached"}
        record = {"format": FORMAT, "request": request, "answer": kept}
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=self.folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(record, file, indent=2, ensure_ascii=False)
            os.replace(temporary, self.path(request))
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value
