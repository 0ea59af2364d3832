"""Hierarchies fetched from a real server on loopback, which answers well and badly."""

import asyncio
import gzip
import threading
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hcep import HierarchyError
from hcep.hierarchy import read_hierarchy

CSV = b"r,a\nr,b\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        getattr(self, self.path.split("?")[0].strip("/").split(".")[0].replace("-", "_"), self.absent)()

    def answer(self, content, *, length=None, code=200, **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def good(self):
        self.answer(CSV)

    def packed(self):
        self.answer(gzip.compress(CSV))

    def moved(self):
        self.answer(b"", code=302, Location="/good.csv")

    def moved_to_a_file(self):
        self.answer(b"", code=302, Location="file:///etc/passwd")

    def round(self):
        self.answer(b"", code=302, Location="/round.csv")

    def moved_with_an_endless_body(self):
        self.answer(b"", code=302, length=1_000_000_000, Location="/good.csv")
        for _ in range(10):
            self.wfile.write(1_000_000 * b"x")

    def large(self):
        self.answer(100_000 * b"x")

    def cut(self):
        self.answer(CSV, length=1_000)

    def slow(self):
        time.sleep(1.5)

    def drip(self):
        self.answer(b"", length=10_000)
        for _ in range(200):
            self.wfile.write(b"x")
            time.sleep(0.05)

    def broken(self):
        self.wfile.write(b"nonsense\r\n\r\n")

    def absent(self):
        self.answer(b"not here", code=404)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["good.csv", "good.csv?version=2#top", "packed.csv.gz", "moved.csv"])
def test_good_answers(server, path):
    assert read_hierarchy(f"{server}/{path}").leaves == ("a", "b")


def test_the_body_of_a_redirect_is_not_read(server):
    tracemalloc.start()
    assert read_hierarchy(f"{server}/moved-with-an-endless-body.csv").leaves == ("a", "b")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_running_event_loop_does_not_matter(server):
    async def in_a_notebook():
        return read_hierarchy(f"{server}/good.csv")

    assert asyncio.run(in_a_notebook()).leaves == ("a", "b")


def test_a_format_by_name(server):
    assert read_hierarchy(f"{server}/good", format="csv").leaves == ("a", "b")
    with pytest.raises(
        HierarchyError, match=r"its ending does not name a format that can be read; .* or pass -O format="
    ):
        read_hierarchy(f"{server}/good")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent.csv", r"cannot fetch 'http://.*/absent\.csv': the server answered 404 Not Found"),
        (
            "moved-to-a-file.csv",
            r"cannot fetch .*: it redirects to 'file:///etc/passwd', which is not a web address",
        ),
        ("round.csv", r"cannot fetch .*: it redirects more than 10 times"),
        ("large.csv", r"large\.csv has more than 50,000 bytes; pass max_bytes="),
        ("cut.csv", r"cannot fetch .*: .* \(received 8 bytes, expected 1000\); try again"),
        ("slow.csv", r"cannot fetch .*: timed out"),
        ("broken.csv", r"cannot fetch .*: illegal status line: .*nonsense"),
    ],
)
def test_bad_answers(server, path, message):
    with pytest.raises(HierarchyError, match=message):
        read_hierarchy(f"{server}/{path}", max_bytes=50_000, timeout=0.5)


def test_a_server_that_sends_byte_by_byte(server):
    with pytest.raises(HierarchyError, match=r"cannot fetch .*: it takes longer than 1 s; pass a longer timeout="):
        read_hierarchy(f"{server}/drip.csv", timeout=0.1)


def test_connection_refused():
    with pytest.raises(HierarchyError, match=r"cannot fetch 'http://127\.0\.0\.1:9/h\.csv': .*refused"):
        read_hierarchy("http://127.0.0.1:9/h.csv")
