"""Untrusted uploads are decoded in separate processes with limits on time and memory.

Run as a program, this module is such a process: it reads frames of bytes, one per file, and writes one frame for each.
"""

import asyncio
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hcep.embeddings.images import ImageProblem, open_image, small_jpeg
from hcep.embeddings.preprocessing import Preprocessing, PreprocessingError

#: Bytes of address space for a decoding process.
MEMORY = 3 << 30
#: Pixels on the longer side of the copy to show.
SHOWN = 1280


class Decoded(Struct):
    """A decoded photo: a JPEG to show and, if its preprocessing is one of ours, the encoder's input."""

    jpeg: bytes = b""
    pixels: bytes = b""
    shape: tuple[int, ...] = ()
    problem: str = ""

    def array(self) -> NDArray[np.float32] | None:
        return np.frombuffer(self.pixels, dtype=np.float32).reshape(self.shape) if self.shape else None


class Decoders:
    """Two decoding processes; each file is limited to `seconds` and `max_pixels`.

    They also prepare the encoder's input if its `preprocessing` is one of ours.
    """

    def __init__(self, preprocessing: Mapping[str, Any], max_pixels: int, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self._options = json.dumps({"preprocessing": dict(preprocessing), "max_pixels": max_pixels}, default=str)
        self._free: asyncio.Queue[asyncio.subprocess.Process | None] = asyncio.Queue()
        self._all: list[asyncio.subprocess.Process] = []
        for _ in range(2):
            self._free.put_nowait(None)

    async def __call__(self, data: bytes) -> Decoded:
        """Decode a file; raises ImageProblem, also if it takes too long."""
        process, answer = await self._free.get(), None
        try:
            process = process or await self._start()
            answer = await asyncio.wait_for(_exchange(process, data), self.seconds)
        except TimeoutError:
            raise ImageProblem(f"decoding takes longer than {self.seconds:g} seconds") from None
        except (asyncio.IncompleteReadError, OSError):
            raise ImageProblem("decoding needs more memory than allowed") from None
        finally:
            if answer is None and process is not None:  # also when the client has left
                with suppress(ProcessLookupError):
                    process.kill()
                self._all.remove(process)
                process = None
            self._free.put_nowait(process)
        decoded = msgspec.msgpack.decode(answer, type=Decoded)
        if decoded.problem:
            raise ImageProblem(decoded.problem)
        return decoded

    async def _start(self) -> asyncio.subprocess.Process:
        command, pipe = (sys.executable, "-m", "hcep.web.decoding", self._options), asyncio.subprocess.PIPE
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=env)
        self._all.append(process)
        return process

    async def close(self) -> None:
        for process in self._all:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _exchange(process: asyncio.subprocess.Process, data: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(len(data).to_bytes(8, "big") + data)
    await process.stdin.drain()
    n = int.from_bytes(await process.stdout.readexactly(8), "big")
    return await process.stdout.readexactly(n)


@contextmanager
def _as_file(data: bytes, descriptors: Path = Path("/dev/fd")) -> Iterator[Path]:
    """The path of a file with this content, which is gone afterwards.

    Where the system has paths for open files, the file has no name, so that nothing is left behind however the process
    ends; elsewhere it is in a temporary folder.
    """
    if not descriptors.is_dir():
        with TemporaryDirectory() as folder:
            path = Path(folder) / "photo"
            path.write_bytes(data)
            yield path
        return
    with TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield descriptors / str(file.fileno())


def decoded(data: bytes, steps: Preprocessing | None, max_pixels: int) -> Decoded:
    """Decode a file in this process."""
    with _as_file(data) as path:
        try:
            image = open_image(path, max_pixels=max_pixels)
        except ImageProblem as problem:
            return Decoded(problem=problem.reason)
    array = np.empty(0) if steps is None else steps(image)
    return Decoded(small_jpeg(image, SHOWN, 90), array.tobytes(), array.shape if steps else ())


def _main() -> None:
    with suppress(ImportError):  # not on every platform
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends it once all requests are answered
    warnings.simplefilter("ignore")
    options, steps, target = json.loads(sys.argv[1]), None, sys.stdout.buffer
    with suppress(PreprocessingError, TypeError):
        steps = Preprocessing.from_dict(options["preprocessing"])
    while head := sys.stdin.buffer.read(8):
        data = sys.stdin.buffer.read(int.from_bytes(head, "big"))
        answer = msgspec.msgpack.encode(decoded(data, steps, options["max_pixels"]))
        target.write(len(answer).to_bytes(8, "big") + answer)
        target.flush()


if __name__ == "__main__":
    _main()
