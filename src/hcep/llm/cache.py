"""Answers on disk, one readable JSON file per request, named by the hash of what was asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from hcep._files import write_text
from hcep.errors import HCEPError
from hcep.llm.answer import Answer

FORMAT = "hcep-chat-answer"
Request = Mapping[str, Any]


class Entry(msgspec.Struct):
    """What one file holds."""

    format: str
    request: dict[str, Any]
    answer: Answer


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
            kept = msgspec.json.decode(self.path(request).read_bytes(), type=Entry)
        except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
            return None
        same = kept.format == FORMAT and kept.request == request
        return replace(kept.answer, cached=True) if same else None

    def put(self, request: Request, answer: Answer) -> None:
        kept = {key: value for key, value in asdict(answer).items() if key != "cached"}
        record = {"format": FORMAT, "request": request, "answer": kept}
        write_text(self.path(request), json.dumps(record, indent=2, ensure_ascii=False))
