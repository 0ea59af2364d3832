"""A folder on this machine, or at a URL that pyarrow or fsspec knows: files read whole and written whole."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyarrow import fs as arrow_fs

from hcep._optional import require
from hcep.embeddings.store.manifest import write_atomically
from hcep.errors import HCEPError

#: Also with one slash: a path object has swallowed the other.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,2}(?=[^/]|/)", re.IGNORECASE)


def is_url(where: str | os.PathLike[str]) -> bool:
    """Whether this is the address of a folder or file, not a path."""
    return bool(_URL.match(str(where)))


@dataclass(frozen=True)
class Place:
    """A folder by path or URL (``s3://bucket/store``, ``gs://…``, ``file:///…``); what it holds is picked by name."""

    address: str

    @classmethod
    def of(cls, where: str | os.PathLike[str]) -> Place:
        """The folder at a path or URL."""
        found = _URL.match(str(where))
        if not found:
            return cls(str(Path(where).resolve()))
        rest = str(where)[found.end() :].rstrip("/")
        return cls(f"/{rest.lstrip('/')}" if found[1].lower() == "file" else f"{found[1]}://{rest.lstrip('/')}")

    @property
    def local(self) -> Path | None:
        """The folder as a path, where it is on this machine (or on a file system that all machines share)."""
        return None if is_url(self.address) else Path(self.address)

    @cached_property
    def _system(self) -> tuple[Any, str]:
        if self.local is not None:
            return arrow_fs.LocalFileSystem(), self.address
        try:
            opened: tuple[Any, str] = arrow_fs.FileSystem.from_uri(self.address)
        except pa.ArrowInvalid:  # not one of pyarrow's own
            fsspec = require("fsspec", "ray", f"{self.address!r}")
            try:
                other, root = fsspec.core.url_to_fs(self.address)
            except (ValueError, ImportError) as error:
                raise HCEPError(f"cannot open {self.address!r}: {error}") from None
            opened = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(other)), root
        return opened

    def __getstate__(self) -> dict[str, str]:
        return {"address": self.address}  # a connection stays where it was made

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.address}/{name}")

    def read(self, name: str) -> bytes | None:
        """What a file holds; None where there is none."""
        with suppress(FileNotFoundError), self.opened(name) as file:
            content: bytes = file.read()
            return content
        return None

    def opened(self, name: str) -> Any:
        """A file to read pieces of."""
        system, root = self._system
        return system.open_input_file(f"{root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file; others see all of it or nothing."""
        if self.local is not None:
            write_atomically(self.local / name, content)
            return
        system, root = self._system
        system.create_dir(root, recursive=True)  # object stores have none, others need it
        with system.open_output_stream(f"{root}/{name}") as stream:
            stream.write(content)

    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its name below the folder."""
        system, root = self._system
        below = system.get_file_info(arrow_fs.FileSelector(root, allow_not_found=True, recursive=True))
        cut = len(root.strip("/")) + 1
        return {one.path.strip("/")[cut:]: one.size for one in below if one.type == arrow_fs.FileType.File}

    def publish(self, name: str, target: Place) -> None:
        """Give a file a second name, in another folder of the same place."""
        if self.local is not None and target.local is not None:
            with suppress(OSError):  # it is there already, or this file system has no second names
                os.link(self.local / name, target.local / name)
            if not (target.local / name).exists():
                target.write(name, (self.local / name).read_bytes())
            return
        system, root = self._system
        system.copy_file(f"{root}/{name}", f"{target._system[1]}/{name}")

    def remove(self) -> None:
        """Delete the folder, where there is one."""
        system, root = self._system
        with suppress(FileNotFoundError):
            system.delete_dir(root)

    @contextmanager
    def at_hand(self, name: str) -> Iterator[Path]:
        """A folder of this machine that holds the file: this one, or one for the time being."""
        if self.local is not None:
            yield self.local
            return
        with TemporaryDirectory(prefix="hcep-") as scratch:
            Path(scratch, name).write_bytes(self.read(name) or b"")
            yield Path(scratch)
