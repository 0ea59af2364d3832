"""Many at once, and the end: whatever happens to the process, what was acknowledged is on disk."""

import hashlib
import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.alone]
httpx = pytest.importorskip("httpx", reason="httpx is not installed (extra test-web)")


def new_copies(photos):
    """Photos that the server has never seen: bytes after a JPEG's end change nothing but its hash."""
    for i in range(1 << 30):
        yield photos[i % len(photos)].read_bytes() + i.to_bytes(8, "big")


def under_load(url, copies, n_clients, n):
    """Statuses of the answers that clients get who ask, all at once, until n photos are sent."""
    left, lock, seen = iter(range(n)), threading.Lock(), Counter()

    def asks():
        with httpx.Client(timeout=60) as client:
            while True:
                with lock:
                    if next(left, None) is None:
                        return
                    data = next(copies)
                answer = client.post(url + "api/v1/predict", files={"photo": ("a.jpg", data, "image/jpeg")})
                seen[answer.status_code] += 1
                if answer.status_code == 503:
                    assert int(answer.headers["retry-after"]) > 0
                    time.sleep(0.2)

    with ThreadPoolExecutor(n_clients) as pool:
        for one in [pool.submit(asks) for _ in range(n_clients)]:
            one.result()
    return seen


@pytest.fixture(scope="module")
def small(start_server):
    """A server that remembers sixteen photos and encodes four together."""
    return start_server("-P", "photos=16", "-P", "batch=4")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("said") / "corrections.jsonl"


@pytest.fixture(scope="module")
def narrow(start_server, file):
    """A server at which two may wait."""
    return start_server("-P", "queue=2", "-P", "batch=1", "--corrections", str(file))


def test_thirty_two_clients_are_answered_together(small, photos):
    copies = new_copies(photos)
    under_load(small.url, copies, 32, 96)  # until its buffers have their size
    before = small.memory()
    seen = under_load(small.url, copies, 32, 128)
    assert set(seen) <= {200, 503}
    assert seen[200] > 64
    assert small.memory() - before < 60e6
    counts = httpx.get(small.url + "api/v1/metrics").text
    n_calls, n_items = (
        float(counts.partition(f"\nhcep_{name} ")[2].split()[0])
        for name in ("encode_runs_total", "encode_photos_total")
    )
    assert n_items > 1.5 * n_calls


def test_too_many_clients_get_503_with_retry_after(narrow, photos):
    assert set(under_load(narrow.url, new_copies(photos), 16, 48)) == {200, 503}


def test_a_kill_loses_no_acknowledged_correction(start_server, narrow, file):
    acknowledged = {}

    def says(worker):
        with httpx.Client(base_url=narrow.url + "api/v1", timeout=30) as client, suppress(httpx.HTTPError):
            for i in count():  # until the server is gone
                key = hashlib.sha256(f"{worker} {i}".encode()).hexdigest()
                answer = client.post("/corrections", json={"image": key, "class": ("tabby", "tench", "church")[i % 3]})
                if answer.status_code == 201:
                    acknowledged[key] = answer.json()["class"]

    threads = [threading.Thread(target=says, args=[worker]) for worker in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    while len(acknowledged) < 40 and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(narrow.process.pid, signal.SIGKILL)
    narrow.process.wait()
    for thread in threads:
        thread.join()
    assert len(acknowledged) >= 40
    server = start_server("--corrections", str(file))
    kept = {one["image"]: one["class"] for one in httpx.get(server.url + "api/v1/corrections").json()}
    assert {key: kept[key] for key in acknowledged} == acknowledged


def n_inside(server):
    """Photos that the server has taken and not yet answered."""
    lines = httpx.get(server.url + "api/v1/metrics").text.splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    states = [
        name for name in counts if name in ("hcep_decoding", "hcep_running") or name.startswith("hcep_waiting_to_")
    ]
    return sum(float(counts[name]) for name in states)


def test_a_stopped_server_finishes_running_requests(small, photos):
    answers = []

    def ask(path):
        answer = httpx.post(small.url + "api/v1/predict", files={"photo": path.read_bytes()}, timeout=60)
        answers.append(answer.status_code)

    threads = [threading.Thread(target=ask, args=[path]) for path in photos[50:58]]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 20
    while n_inside(small) + len(answers) < 8 and time.monotonic() < end:
        time.sleep(0.01)
    start = time.monotonic()
    small.stop()
    for thread in threads:
        thread.join()
    assert answers == [200] * 8
    assert time.monotonic() - start < 20
    assert "Traceback" not in small.log.read_text()
