"""A hub on the loopback interface: repositories in memory behind the endpoints that `huggingface_hub` calls.

Create a repository and a branch, check a card's front matter, say how files are to be uploaded, take large files by the
LFS protocol (basic transfer) and small ones in the commit, list a revision, serve files. No Xet, no pull requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

Commit = dict[str, bytes]


class Hub:
    """The state of the server: branches of repositories, their commits, large files, and the requests that came."""

    def __init__(self) -> None:
        self.branches: dict[str, dict[str, str]] = {}
        self.commits: dict[str, Commit] = {}
        self.large: dict[str, bytes] = {}
        self.large_names: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.agents: set[str] = set()
        self.token: str | None = None
        self.url = ""

    def files(self, repo: str, revision: str = "main") -> Commit | None:
        branch = self.branches.get(repo, {}).get(revision, revision)
        return self.commits.get(branch)

    def put(self, repo: str, files: Commit, branch: str = "main") -> str:
        """Commit files on top of a branch; the id of the commit."""
        content = {**(self.files(repo, branch) or {}), **files}
        text = repr([(name, hashlib.sha1(data).hexdigest()) for name, data in sorted(content.items())])
        commit = hashlib.sha1(f"{repo} {branch} {len(self.commits)} {text}".encode()).hexdigest()
        self.branches.setdefault(repo, {})[branch] = commit
        self.commits[commit] = content
        return commit


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def handle_any(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append((self.command, path))
        self.hub.agents.add(self.headers.get("User-Agent", ""))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # The address of a large upload is a secret in itself; the client sends no token there.
        open_to_all = self.hub.token is None or path.startswith("lfs-upload/")
        authorised = open_to_all or self.headers.get("Authorization") == f"Bearer {self.hub.token}"
        if not authorised:
            self.answer(401, {"error": "Invalid credentials"})
            return
        parts = path.split("/")
        route: Callable[..., None] = getattr(self, f"{self.command.lower()}_{self.kind(parts)}", self.unknown)
        route(parts, body)

    do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815

    @staticmethod
    def kind(parts: list[str]) -> str:
        if parts[:1] != ["api"]:
            return {"info": "lfs_batch", "resolve": "file"}.get(parts[2] if len(parts) > 2 else "", parts[0])
        return {"models": parts[4] if len(parts) > 4 else "revision"}.get(parts[1], parts[1].replace("-", "_"))

    def answer(self, status: int, content: Any = None, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else data)

    def unknown(self, parts: list[str], body: bytes) -> None:
        self.answer(404, {"error": f"no such endpoint: {self.command} {'/'.join(parts)}"})

    # -- writing -----------------------------------------------------------------------------------

    def post_repos(self, parts: list[str], body: bytes) -> None:
        asked = json.loads(body)
        repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if repo in self.hub.branches:
            self.answer(409, {"error": "You already created this model repo", "url": f"{self.hub.url}/{repo}"})
            return
        self.hub.put(repo, {".gitattributes": b"*.safetensors filter=lfs"})
        self.answer(200, {"url": f"{self.hub.url}/{repo}", "name": repo})

    def post_branch(self, parts: list[str], body: bytes) -> None:
        branches = self.hub.branches["/".join(parts[2:4])]
        status = 409 if parts[5] in branches else 200
        branches.setdefault(parts[5], branches["main"])
        self.answer(status, {})

    def post_validate_yaml(self, parts: list[str], body: bytes) -> None:
        valid = json.loads(body)["content"].startswith("---\nlicense: ")
        self.answer(200 if valid else 400, {"warnings": [], "errors": [] if valid else [{"message": "no licence"}]})

    def post_preupload(self, parts: list[str], body: bytes) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self.answer(200, {"files": files})

    def post_lfs_batch(self, parts: list[str], body: bytes) -> None:
        objects = [
            {**asked, "actions": {"upload": {"href": f"{self.hub.url}/lfs-upload/{asked['oid']}"}}}
            for asked in json.loads(body)["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects})

    def put_lfs_upload(self, parts: list[str], body: bytes) -> None:
        status = 200 if hashlib.sha256(body).hexdigest() == parts[1] else 400
        self.hub.large[parts[1]] = body
        self.answer(status, {})

    def post_commit(self, parts: list[str], body: bytes) -> None:
        repo, branch = "/".join(parts[2:4]), parts[5]
        lines = [json.loads(line) for line in body.splitlines()]
        values = [(line["key"], line["value"]) for line in lines]
        small = {value["path"]: base64.b64decode(value["content"]) for key, value in values if key == "file"}
        large = {value["path"]: self.hub.large[value["oid"]] for key, value in values if key == "lfsFile"}
        self.hub.large_names |= set(large)
        commit = self.hub.put(repo, {**small, **large}, branch)
        self.answer(200, {"commitUrl": f"{self.hub.url}/{repo}/commit/{commit}", "commitOid": commit, "success": True})

    # -- reading -----------------------------------------------------------------------------------

    def get_revision(self, parts: list[str], body: bytes) -> None:
        repo, revision = "/".join(parts[2:4]), (parts[5:] or ["main"])[0]
        files = self.hub.files(repo, revision)
        if files is None:
            code = "RevisionNotFound" if repo in self.hub.branches else "RepoNotFound"
            self.answer(404, {"error": code}, {"X-Error-Code": code})
            return
        commit = self.hub.branches[repo].get(revision, revision)
        siblings = [{"rfilename": name} for name in files]
        self.answer(200, {"id": repo, "modelId": repo, "sha": commit, "siblings": siblings, "tags": []})

    def get_tree(self, parts: list[str], body: bytes) -> None:
        files = self.hub.files("/".join(parts[2:4]), parts[5]) or {}
        entries = [self.entry(name, data) for name, data in files.items()]
        self.answer(200, entries)

    def entry(self, name: str, data: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
        lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return {**entry, "lfs": lfs} if name in self.hub.large_names else entry

    def get_file(self, parts: list[str], body: bytes) -> None:
        repo, revision, name = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
        data = (self.hub.files(repo, revision) or {}).get(name)
        if data is None:
            self.answer(404, {"error": "EntryNotFound"}, {"X-Error-Code": "EntryNotFound"})
            return
        commit = self.hub.branches[repo].get(revision, revision)
        algorithm = hashlib.sha256 if name in self.hub.large_names else hashlib.sha1
        self.answer(200, data, {"ETag": f'"{algorithm(data).hexdigest()}"', "X-Repo-Commit": commit})

    head_file = get_file


setattr(Handler, "put_lfs-upload", Handler.put_lfs_upload)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that answers until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def reachable_hub(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Hub]:
    """A running hub that the installed client talks to, without its Xet storage and with its cache in a folder."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "secret")
    with running_hub() as hub:
        # What HF_ENDPOINT sets when it is there at import.
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE
        path = template[template.index("/{repo_id}") :]
        for module in ("constants", "file_download"):  # older clients have a copy in the second
            name = f"huggingface_hub.{module}.HUGGINGFACE_CO_URL_TEMPLATE"
            monkeypatch.setattr(name, hub.url + path, raising=False)
        yield hub
