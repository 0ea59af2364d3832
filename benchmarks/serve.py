"""`hcep serve` under load, on this machine: ``python benchmarks/serve.py [--clients 32] [--seconds 60]``.

Every request brings a photo that the server has not seen. First one client asks, then all with photos handled one by
one (``--batch 1``), then all with photos encoded together. Servers remember 32 photos, so that memory does not grow by
what they are meant to keep. Needs the extras web and photos, and httpx.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

import httpx
import numpy as np

SHARED = Path(os.environ.get("HCEP_SHARED", Path(__file__).parents[2] / "shared"))
NUMBERS = count()


def start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server, and return its process and address when it answers."""
    log = folder / "log.txt"
    command = [sys.executable, "-c", "from hcep.cli import main; main()", "serve", "--port", "0", "--no-browser"]
    with log.open("wb") as file:
        kept = ["--photos", "32", "--corrections", str(folder / "corrections.jsonl")]
        process = subprocess.Popen([*command, *arguments, *kept], stdout=file, stderr=file)
    for _ in range(1200):
        if found := re.search(r"open (http://\S+)", log.read_text()):
            try:
                httpx.get(found[1] + "api/v1/health").raise_for_status()
                return process, found[1]
            except httpx.HTTPError:
                pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit(log.read_text())


def memory(process: subprocess.Popen[bytes]) -> float:
    """Return the resident memory in megabytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def cpu(process: subprocess.Popen[bytes]) -> float:
    """Return the processor seconds of the server, which encodes and searches; other processes decode."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(url: str, photos: list[bytes], n_clients: int, seconds: float) -> tuple[list[float], Counter[str]]:
    """Return the seconds of each answer, and the number of answers by status."""
    times, kinds, end = [], Counter(), time.monotonic() + seconds

    async def ask(client: httpx.AsyncClient) -> None:
        while time.monotonic() < end:
            number = next(NUMBERS)
            # Bytes after the end of a JPEG change only its hash.
            data = photos[number % len(photos)] + number.to_bytes(8, "big")
            start = time.monotonic()
            try:
                answer = await client.post(url + "api/v1/predict", files={"photo": ("a.jpg", data)})
            except httpx.HTTPError as error:
                kinds[type(error).__name__] += 1
                continue
            kinds[str(answer.status_code)] += 1
            if answer.status_code == 200:
                times.append(time.monotonic() - start)
            else:
                await asyncio.sleep(int(answer.headers.get("retry-after", 1)))

    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=n_clients)) as client:
        await asyncio.gather(*(ask(client) for _ in range(n_clients)))
    return times, kinds


def report(title: str, arguments: list[str], photos: list[bytes], n_clients: int, seconds: float) -> float:
    """Run one load, print a line about it, and return photos per second."""
    with tempfile.TemporaryDirectory() as folder:
        process, url = start(Path(folder), *arguments)
        try:
            asyncio.run(load(url, photos, n_clients, min(10.0, seconds)))  # until its buffers have their size
            before, started, computed = memory(process), time.monotonic(), cpu(process)
            times, kinds = asyncio.run(load(url, photos, n_clients, seconds))
            rate, each = len(times) / (time.monotonic() - started), 1000 * (cpu(process) - computed) / len(times)
            p50, p95 = np.percentile(times, [50, 95])
            counts = httpx.get(url + "api/v1/metrics").text
            calls, items = (
                float(re.findall(rf"^hcep_{name} (\d+)", counts, re.M)[0])
                for name in ("encode_runs_total", "encode_photos_total")
            )
            print(
                f"{title:28} {rate:6.1f} photos/s  p50 {p50:.2f} s  p95 {p95:.2f} s  {each:.0f} ms of CPU per photo  "
                f"{items / calls:.1f} photos per run of the encoder  answers {dict(kinds)}  "
                f"memory {before:,.0f} -> {memory(process):,.0f} MB",
                flush=True,
            )
            return rate
        finally:
            process.terminate()
            process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="duration of the load with all clients",
    )
    given = parser.parse_args()
    photos = [path.read_bytes() for path in sorted((SHARED / "data/imagenette_images").rglob("*.JPEG"))]
    if not photos:
        sys.exit("needs data/imagenette_images in HCEP_SHARED (default ../shared)")
    n, third = given.clients, given.seconds / 3
    report("1 client", [], photos, 1, third)
    alone = report(f"{n} clients, one by one", ["--batch", "1"], photos, n, third)
    together = report(f"{n} clients, together", [], photos, n, given.seconds)
    print(f"together / one at a time: {together / alone:.2f}")


if __name__ == "__main__":
    main()
