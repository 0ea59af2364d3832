"""What the server must never do: believe a stranger, wait for one, or fail for one."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.web.hostile import hostile_files

pytestmark = pytest.mark.slow
httpx = pytest.importorskip("httpx", reason="httpx is not installed (extra test-web)")
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
        return httpx.post(server.url + "api/v1/explain", files={"photo": (name, data, "image/jpeg")}, timeout=120)

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
    answer = httpx.post(server.url + "api/v1/explain", files={"photo": (name, photos[3].read_bytes(), "image/jpeg")})
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
    assert httpx.get(server.url + "api/v1/health").json()["status"] == "ok"
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
    said = {"image": HASH, "class": "tabby"}
    assert httpx.post(server.url + "api/v1/corrections", json=said, headers=headers).status_code == 403
    assert httpx.delete(server.url + f"api/v1/corrections/{HASH}", headers=headers).status_code == 403
    assert httpx.get(server.url + "api/v1/corrections").json() == []


def test_other_sites_get_no_socket(server):
    """The pages talk through a socket, which browsers open across sites."""
    asked = "_nicegui_ws/socket.io/?EIO=4&transport="
    upgrade = f"GET /{asked}websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    upgrade += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    assert raw(server, f"{upgrade}Origin: http://evil.example\r\n\r\n".encode()).startswith(b"HTTP/1.1 403")
    polled = httpx.get(f"{server.url}{asked}polling", headers={"Origin": "http://evil.example"})
    assert polled.status_code == 403
    assert raw(server, f"{upgrade}Origin: http://localhost\r\n\r\n".encode()).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize(
    "path", ["", "api", "openapi.json", "api/v1/model", "_nicegui_ws/socket.io/?EIO=4&transport=polling"]
)
def test_without_the_token_every_request_is_refused(guarded, path):
    assert httpx.get(guarded.url + path).status_code == 401
    wrong = {"Authorization": f"Bearer {guarded.token[:-1]}"}
    assert httpx.get(guarded.url + path, headers=wrong).status_code == 401
    assert httpx.get(guarded.url + path, params={"token": "é" + guarded.token}).status_code == 401


def test_the_token_in_the_address_becomes_a_cookie(guarded):
    """In a header, or in the address, from where it goes into a cookie and vanishes."""
    assert httpx.get(guarded.url + "api/v1/health").status_code == 200
    known = {"Authorization": f"Bearer {guarded.token}"}
    assert httpx.get(guarded.url + "api/v1/model", headers=known).status_code == 200
    with httpx.Client() as client:
        moved = client.get(guarded.url + "api/v1/model", params={"token": guarded.token, "a": "b"})
        assert (moved.status_code, moved.headers["location"]) == (303, "/api/v1/model?a=b")
        assert {"HttpOnly", "SameSite=Strict"} <= set(moved.headers["set-cookie"].split("; "))
        assert client.get(guarded.url + "api/v1/model").status_code == 200
    away = httpx.get(guarded.url + "/evil.example/", params={"token": guarded.token}).headers["location"]
    assert away == "/evil.example/"


def test_a_browser_with_the_token_gets_pages_and_their_socket(guarded, page):
    page.goto(f"{guarded.url}api?token={guarded.token}")
    assert page.url == guarded.url + "api"
    page.wait_for_function("window.socket?.connected")


@pytest.mark.parametrize("path", ["", "api", "api/v1/health", "no/such/page", "explorer/frame.css"])
def test_every_response_has_security_headers(server, path):
    headers = httpx.get(server.url + path).headers
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
    first, second = (httpx.get(server.url).headers["content-security-policy"] for _ in range(2))
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
    httpx.post(server.url + "api/v1/explain", files={"photo": (secret, photos[9].read_bytes(), "image/jpeg")})
    httpx.post(server.url + "api/v1/explain", files={"photo": (secret, b"bad", "image/jpeg")})
    httpx.get(guarded.url, params={"token": guarded.token})
    assert "private name" not in server.log.read_text()
    after_start = guarded.log.read_text().partition("(press Ctrl-C to stop)")[2]
    assert guarded.token not in after_start
