"""What the server must never do: believe a stranger, wait for one, or fail for one."""

import json
import logging
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from PIL import Image

from hcep.explain.corrections import Corrections
from hcep.models.opening import builtin_model
from hcep.web import decoding
from tests.web.hostile import hostile_files

pytestmark = pytest.mark.slow
httpx = pytest.importorskip("httpx", reason="httpx is not installed (extra test-web)")
security = pytest.importorskip("hcep.web.security", reason="uvicorn is not installed (extra web)", exc_type=ImportError)
get, post = partial(httpx.get, timeout=60), partial(httpx.post, timeout=60)
HASH = "0" * 64


def raw(server, text: bytes, seconds: float = 30) -> bytes:
    """What the server answers to bytes, until it closes."""
    place = urlsplit(server.url)
    with closing(socket.create_connection((place.hostname, place.port), timeout=seconds)) as connection:
        connection.sendall(text)
        return connection.recv(65536)


@pytest.fixture(scope="module")
def guarded(start_server):
    """A server that others can reach, by the name of this machine."""
    server = start_server("--host", "0.0.0.0")
    server.url = f"http://127.0.0.1:{urlsplit(server.url).port}/"
    return server


def test_fifty_hostile_uploads(server, photos):
    files = hostile_files()
    assert len(files) >= 50
    good = photos[7].read_bytes()

    def send(name, data):
        return post(server.url + "api/v1/explain", files={"photo": (name, data, "image/jpeg")}, timeout=120)

    assert send("good.jpg", good).status_code == 200
    before, start = server.memory(), time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = {name: pool.submit(send, name, data) for name, data in files.items()}
        between = [pool.submit(send, f"good {i}.jpg", path.read_bytes()) for i, path in enumerate(photos[20:24])]
    assert {name: one.result().status_code for name, one in answers.items() if one.result().status_code != 422} == {
        "a" * 5000 + ".jpg": 400  # its name is longer than a head may be
    }
    assert all("error" in one.result().json() for one in answers.values())
    assert [one.result().status_code for one in between] == [200] * 4
    assert time.monotonic() - start < 60
    assert server.memory() - before < 300e6
    assert server.process.poll() is None


@pytest.mark.parametrize("name", ["../../up.jpg", "/tmp/hcep-evil.jpg", "..\\up.jpg", "a\r\nSet-Cookie: x=1.jpg"])
def test_file_names_are_never_used_as_paths(server, photos, name):
    answer = post(server.url + "api/v1/explain", files={"photo": (name, photos[3].read_bytes(), "image/jpeg")})
    assert answer.status_code == 200
    assert answer.json()[0]["image"].count("/") == 0
    assert "set-cookie" not in answer.headers


def test_a_declared_length_of_two_gigabytes_is_refused_at_once(server):
    head = b"POST /api/v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    start = time.monotonic()
    assert raw(server, head + b"Content-Length: 2000000000\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert raw(server, head + b"Transfer-Encoding: chunked\r\n\r\n").startswith(b"HTTP/1.1 411")
    assert raw(server, head + b"Content-Length: -5\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(server, head + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n").startswith(b"HTTP/1.1 4")
    assert time.monotonic() - start < 5


def test_slow_clients_are_disconnected(server):
    """Heads and bodies that come drop by drop; others are answered meanwhile."""
    place = urlsplit(server.url)
    slow = [socket.create_connection((place.hostname, place.port)) for _ in range(40)]
    for i, connection in enumerate(slow):
        length = b"Content-Length: 5000\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n" if i % 2 else b""
        connection.sendall(b"POST /api/v1/explain HTTP/1.1\r\nHost: localhost\r\n" + length)
    assert get(server.url + "api/v1/health").json()["status"] == "ok"
    time.sleep(6)
    for connection in slow:
        connection.sendall(b"-")
    answers = []
    for connection in slow:
        connection.settimeout(15)
        answers.append(connection.recv(100))
        connection.close()
    assert all(one.startswith(b"HTTP/1.1 408") for one in answers[1::2])
    assert set(answers[::2]) == {b""}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1].evil"])
def test_a_local_server_answers_to_no_other_name(server, host):
    """A site that gives its name the address of this machine gets nothing."""
    assert raw(server, f"GET /api/v1/model HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).startswith(b"HTTP/1.1 421")


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://["}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_other_sites_change_nothing(server, headers):
    correction = {"image": HASH, "class": "tabby"}
    assert post(server.url + "api/v1/corrections", json=correction, headers=headers).status_code == 403
    assert httpx.delete(server.url + f"api/v1/corrections/{HASH}", headers=headers).status_code == 403
    assert get(server.url + "api/v1/corrections").json() == []


def test_other_sites_get_no_socket(server):
    """The pages talk through a socket, which browsers open across sites."""
    place = "_nicegui_ws/socket.io/?EIO=4&transport="
    upgrade = f"GET /{place}websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    upgrade += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    assert raw(server, f"{upgrade}Origin: http://evil.example\r\n\r\n".encode()).startswith(b"HTTP/1.1 403")
    polled = get(f"{server.url}{place}polling", headers={"Origin": "http://evil.example"})
    assert polled.status_code == 403
    assert get(f"{server.url}{place}polling").status_code == 400  # limits and checks are those of sockets
    assert raw(server, f"{upgrade}Origin: http://localhost\r\n\r\n".encode()).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize(
    "path", ["", "api", "openapi.json", "api/v1/model", "_nicegui_ws/socket.io/?EIO=4&transport=polling"]
)
def test_without_the_token_every_request_is_refused(guarded, path):
    assert get(guarded.url + path).status_code == 401
    wrong = {"Authorization": f"Bearer {guarded.token[:-1]}"}
    assert get(guarded.url + path, headers=wrong).status_code == 401
    assert get(guarded.url + path, params={"token": "é" + guarded.token}).status_code == 401


def test_the_token_in_the_address_becomes_a_cookie(guarded):
    """In a header, or in the address, from where it goes into a cookie and vanishes."""
    assert get(guarded.url + "api/v1/health").status_code == 200
    known = {"Authorization": f"Bearer {guarded.token}"}
    assert get(guarded.url + "api/v1/model", headers=known).status_code == 200
    with httpx.Client() as client:
        moved = client.get(guarded.url + "api/v1/model", params={"token": guarded.token, "a": "b"})
        assert (moved.status_code, moved.headers["location"]) == (303, "/api/v1/model?a=b")
        assert {"HttpOnly", "SameSite=Strict"} <= set(moved.headers["set-cookie"].split("; "))
        assert client.get(guarded.url + "api/v1/model").status_code == 200
    away = get(guarded.url + "/evil.example/", params={"token": guarded.token}).headers["location"]
    assert away == "/evil.example/"


def test_a_browser_with_the_token_gets_pages_and_their_socket(guarded, page):
    page.goto(f"{guarded.url}api?token={guarded.token}")
    assert page.url == guarded.url + "api"
    page.wait_for_function("window.socket?.connected")


@pytest.mark.parametrize("path", ["", "api", "api/v1/health", "no/such/page", "explorer/frame.css"])
def test_every_response_has_security_headers(server, path):
    headers = get(server.url + path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert policy["object-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe-inline" not in policy["script-src"]
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert "server" not in headers


def test_an_injected_script_does_not_run(server, browser):
    """The policy lets only scripts with the nonce of the answer run, and that is another one each time."""
    page = browser.new_page()
    page.goto(server.url + "api")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('div'), {innerHTML: '<img src=x onerror=evil=1>'}))"
    )
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'evil = 2'}))")
    page.wait_for_timeout(200)
    assert page.evaluate("typeof evil") == "undefined"
    page.close()
    first, second = (get(server.url).headers["content-security-policy"] for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    "path",
    ["explorer/../../engine.py", "explorer/%2e%2e/%2e%2e/engine.py", "%2e%2e/%2e%2e/etc/passwd", "explorer//etc/passwd",
     "_nicegui/3.18.0/static/../../../../etc/passwd", "explorer/%2fetc%2fpasswd", "examples/..%2f..%2fengine.py"],
)  # fmt: skip
def test_no_path_leads_out_of_the_folders(server, path):
    answer = raw(server, f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 403", b"HTTP/1.1 400"))
    assert b"root:" not in answer
    assert b"class Engine" not in answer


def test_the_log_contains_no_names_and_no_token(server, guarded, photos):
    secret = f"private name {time.time_ns()}.jpg"
    post(server.url + "api/v1/explain", files={"photo": (secret, photos[9].read_bytes(), "image/jpeg")})
    post(server.url + "api/v1/explain", files={"photo": (secret, b"bad", "image/jpeg")})
    get(guarded.url, params={"token": guarded.token})
    assert "private name" not in server.log.read_text()
    after_start = guarded.log.read_text().partition("(press Ctrl-C to stop)")[2]
    assert guarded.token not in after_start


MALFORMED = [
    "",
    "9",
    "4",
    "49",
    "42",
    '42["event"]',
    '42["event",1]',
    '42["event",{}]',
    '42["nothing",{}]',
    "42[[[",
    '42["ack",{"client_id":1}]',
]
MALFORMED += [
    '42["event",{"client_id":"a","id":"x","listener_id":"b"}]',
    '42["event",{"client_id":"a","id":1,"listener_id":"b","args":[1]}]',
]


MALFORMED += ['451-["event",{"_placeholder":true,"num":0}]', b"\x04\x05"]


def test_malformed_socket_messages_close_with_one_line(server):
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
    place = server.url.replace("http", "ws") + "_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    before = server.log.read_text()
    for message in MALFORMED * 4:
        with client.connect(place, origin=server.url.rstrip("/")) as socket:
            socket.recv(timeout=10)
            socket.send("40")
            socket.send(message)
            with pytest.raises(Exception, match="1007"):
                list(socket)
    added = server.log.read_text()[len(before) :]
    assert "Traceback" not in added
    assert 1 <= len(added.splitlines()) <= 2 * security.MAX_LINES
    assert get(server.url + "api/v1/health").status_code == 200


def test_what_a_page_logs_is_one_short_line(server):
    before = server.log.read_text()
    with socket_of(server, get(server.url + "api").text) as (socket, page):
        fields = {"client_id": page, "level": "warning", "message": "forged\nlines\x1b[31m " + "long " * 1000}
        socket.send("42" + json.dumps(["log", fields]))
        end = time.monotonic() + 20
        while "forged" not in (added := server.log.read_text()[len(before) :]):
            assert time.monotonic() < end
    assert added.count("\n") == 1
    assert len(added) < security.MAX_LINE + 50
    assert "\x1b" not in added


def test_an_address_gets_so_many_sockets(server):
    """Beyond that it gets 429 and when to try again, and others are answered."""
    place = urlsplit(server.url)
    upgrade = (
        b"GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    heads = []
    with ExitStack() as stack:
        for _ in range(security.MAX_SOCKETS_EACH + 2):
            connection = stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=30))
            connection.sendall(upgrade)
            heads.append(connection.recv(4096).decode("latin-1").lower())
        assert get(server.url + "api/v1/health").status_code == 200
    statuses = Counter(head.split()[1] for head in heads)
    assert statuses["429"] >= 2
    assert statuses["101"] == len(heads) - statuses["429"]
    assert "retry-after: 2" in heads[-1]


@pytest.fixture
def certificate(tmp_path) -> tuple[Path, Path]:
    """A certificate of this machine's address that it has signed itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-out", *files[:1]]
    subprocess.run([*make, "-keyout", files[1], *name], check=True, capture_output=True)
    return files


def test_https_with_a_certificate(start_server, certificate):
    server = start_server("--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1])
    assert server.url.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=certificate[0])
    answer = get(server.url, verify=trusting, timeout=60)
    assert answer.status_code == 200
    with socket_of(server, answer.text, ssl=trusting):
        pass
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        get(server.url)
    with pytest.raises(httpx.HTTPError):
        get(server.url.replace("https", "http"))


def test_corrections_of_another_process_apply_at_once(server, photos):
    photo = photos[12]
    corrections = Corrections(server.log.with_name("corrections.jsonl"), builtin_model().hierarchy, missing=True)

    def name():
        answer = post(server.url + "api/v1/explain", files={"photo": photo.read_bytes()}, timeout=60)
        return answer.json()[0]["name"]

    before = name()
    corrections.add(photo, label="tabby")
    assert (before == "tabby", name()) == (False, "tabby")
    corrections.add(photo, undo=True)
    assert name() == before


def test_a_socket_or_upload_too_many_is_refused_with_retry_after(monkeypatch):
    monkeypatch.setattr(security, "MAX_SOCKETS_EACH", 2)
    monkeypatch.setattr(security, "MAX_SOCKETS", 3)
    monkeypatch.setattr(security, "MAX_UPLOADS_EACH", 1)
    guard = security.Guard(lambda *_: None, seen=Counter())

    def refusal(kind, address, length="0"):
        headers = {"host": "localhost", "content-length": length}
        return guard._refused({"type": kind, "path": "/", "client": (address, 1), "method": "POST"}, headers)

    guard._sockets.update({"a": 2, "b": 1})
    guard._uploads.update({"a": 1})
    assert [refusal("websocket", who)[0] for who in "ab"] == [429, 503]
    assert refusal("http", "a", "10")[0] == 429
    assert refusal("http", "b", "10") is None
    assert refusal("http", "a") is None
    assert refusal("websocket", "b")[2] == {"Retry_After": "2"}


def test_the_log_is_brief_and_limited(caplog):
    logger = logging.getLogger("brief")
    logger.addFilter(security.BriefLog())
    for i in range(100):
        try:
            raise KeyError(i)
        except KeyError:
            logger.exception("a handler failed")
    assert len(caplog.records) == security.MAX_LINES
    assert caplog.records[0].getMessage() == "a handler failed (KeyError: 0)"
    assert caplog.records[0].exc_info is None
    assert "are omitted" in caplog.records[-1].getMessage()


def test_a_photo_is_decoded_where_open_files_have_no_path(photos, tmp_path):
    with decoding._as_file(b"abc", tmp_path / "none") as path:
        assert path.read_bytes() == b"abc"
    assert not path.exists()
    with decoding._as_file(photos[0].read_bytes()) as path, Image.open(path) as one, Image.open(photos[0]) as other:
        assert one.size == other.size


@contextmanager
def socket_of(server, html: str, **options):
    """Connect to a page as its own script does; the page is open until the socket closes."""
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
    page = re.search(r"'client_id': '([^']+)'", html)[1]
    query = f"client_id={page}&next_message_id=0&implicit_handshake=true&document_id={uuid4()}&tab_id={uuid4()}"
    place = f"{server.url.replace('http', 'ws')}_nicegui_ws/socket.io/?EIO=4&transport=websocket&{query}"
    with client.connect(place, origin=server.url.rstrip("/"), max_size=None, open_timeout=60, **options) as socket:
        socket.recv(timeout=60)
        socket.send("40")
        assert socket.recv(timeout=60).startswith("40")
        yield socket, page


def visit(server, client, path: str, photo: bytes = b"") -> None:
    """Open a page in a new tab, drop a photo on it if there is one and wait for the answer, and close the tab."""
    html = client.get(server.url + path).raise_for_status().text
    with socket_of(server, html) as (socket, page):
        if photo:
            key, zone, listener = re.search(
                r'"(\d+)":{"tag":"nicegui-drop".*?"url":"/([^"]+)".*?"listener_id":"([^"]+)"', html
            ).groups()
            client.post(server.url + zone, content=photo, headers={"X-Name": "photo.jpg"}).raise_for_status()
            event = {"id": int(key), "client_id": page, "listener_id": listener, "args": ["[]"]}
            socket.send("42" + json.dumps(["event", event]))
            while "The path to the answer" not in socket.recv(timeout=60):
                pass


def forget_pages(server, most: int = 0, seconds: float = 120) -> None:
    """Wait until the server remembers few pages; it keeps those that are closed for 20 seconds."""
    end = time.monotonic() + seconds
    while int(re.search(r"hcep_pages (\d+)", get(server.url + "api/v1/metrics").text)[1]) > most:
        assert time.monotonic() < end
        time.sleep(1)


@pytest.mark.alone
def test_memory_stays_flat_over_many_visits_and_uploads(start_server, photos):
    """After 200 visits, all others together need less than a tenth more memory; every eighth drops a photo."""
    server, n_visits = start_server("-P", "photos=16"), int(os.environ.get("HCEP_VISITS", "400"))
    pages, memory = ("", "collection", "hierarchy", "api"), []
    together = [("photo", photo.read_bytes()) for photo in photos[:16]]  # until the encoder's buffers have their size
    post(server.url + "api/v1/predict", files=together, timeout=120).raise_for_status()
    for visits in (range(200), range(200, n_visits)):
        brief = httpx.Limits(keepalive_expiry=2)  # the server closes an idle connection after five seconds
        with httpx.Client(timeout=60, limits=brief) as client, ThreadPoolExecutor(4) as pool:

            def one(i, client=client):
                photo = photos[i // 8 % len(photos)].read_bytes() if i % 8 == 0 else b""  # on the first page
                visit(server, client, pages[i % len(pages)], photo)

            list(pool.map(one, visits))
        forget_pages(server)
        memory.append(server.memory())
        print(f"{visits[-1] + 1} visits: {memory[-1] / 1e6:.0f} MB")
    assert memory[1] < 1.1 * memory[0]


def test_pages_that_nobody_connects_to_are_soon_forgotten(server):
    """Requests without a browser leave a page each; more than 100 of them do not stay for the usual minute."""
    with httpx.Client(timeout=60) as client:
        assert {client.get(server.url + "no/such/page").status_code for _ in range(300)} == {404}
    forget_pages(server, most=100, seconds=30)
