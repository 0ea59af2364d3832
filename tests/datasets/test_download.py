"""Archives fetched from a server on this machine: resumed, refused, unpacked; small ones in the published layouts."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from experiments.command import app as experiments_app
from hcep.cli.app import app
from hcep.datasets import download, fetch, read_images
from hcep.datasets.download import ARCHIVES, Archive, unpack
from hcep.errors import DatasetError
from tests.datasets.tiny_files import cifar10, touch, write


class Server:
    """Serves bytes by file name, and remembers what was asked; `cut` ends every answer after so many bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str | None] = []
        self.cut: int | None = None
        self.ranges = True
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/files"


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, server: Server, *arguments: object) -> None:
        self.known = server
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.known.asked.append(asked)
        data = self.known.files.get(self.path.rpartition("/")[2])
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.known.ranges else 0
        if data is None or (start and start >= len(data)):
            self.send_error(404 if data is None else 416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start : self.known.cut])

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def tar_of(folder: Path, name: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, arcname=name)
    return packed.getvalue()


def zip_of(folder: Path, name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, f"{name}/{file.relative_to(folder)}")
    return packed.getvalue()


@pytest.fixture
def tiny_cifar(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """CIFAR-10 in small, on the server in place of the published archive."""
    data = tar_of(cifar10(tmp_path / "made"), "cifar-10-batches-bin")
    publish(server, "cifar10", data, monkeypatch)
    return data


def publish(server: Server, name: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ARCHIVES[name]
    server.files[known.file] = data
    small = known._replace(hash="md5:" + hashlib.md5(data).hexdigest(), n_bytes=len(data))
    monkeypatch.setitem(download.ARCHIVES, name, small)


# -- what can go wrong -----------------------------------------------------------------------------------


def test_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no dataset 'cifar-10'; the datasets are .* Near matches: 'cifar10'"):
        fetch("cifar-10", tmp_path)


def test_a_server_without_the_archive(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot fetch http://127.*cifar-10-binary.tar.gz: the server answers 404"):
        fetch("cifar10", tmp_path, mirror=server.address)


def test_an_unreachable_server_is_reported(server: Server, tmp_path: Path) -> None:
    address = server.address
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(DatasetError, match=r"cannot fetch http.*; run the command again to resume"):
        fetch("cifar10", tmp_path, mirror=address)


@pytest.mark.parametrize("mirror", ["nowhere", "://", "ftp://x"])
def test_an_invalid_address_is_refused(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot fetch"):
        fetch("cifar10", tmp_path, mirror=mirror)


def test_another_hash_is_refused_and_nothing_kept(server: Server, tiny_cifar: bytes, tmp_path: Path) -> None:
    server.files["cifar-10-binary.tar.gz"] = tiny_cifar[:-1] + b"x"
    with pytest.raises(
        DatasetError, match=r"is not the published archive: its md5 differs from md5:\w+; it was deleted"
    ):
        fetch("cifar10", tmp_path / "data", mirror=server.address)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.usefixtures("tiny_cifar")
def test_far_too_many_bytes_are_refused(server: Server, tmp_path: Path) -> None:
    server.files["cifar-10-binary.tar.gz"] *= 3
    with pytest.raises(DatasetError, match=r"has [\d,]+ bytes, too many to be the published archive"):
        fetch("cifar10", tmp_path / "data", mirror=server.address)


@pytest.mark.parametrize(
    ("folder", "match"),
    [
        (None, "ImageNet cannot be fetched, because you must accept"),
        (".", r"is not ImageNet: looked for train/<wnid>/"),
    ],
)
def test_imagenet_is_not_fetched(folder: str | None, match: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=match):
        fetch("imagenet", None if folder is None else tmp_path)


# -- resuming --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranges", [True, False], ids=["by range", "from the start"])
def test_an_interrupted_download_is_resumed(server: Server, tiny_cifar: bytes, tmp_path: Path, ranges: bool) -> None:
    part = tmp_path / "data" / "cifar-10-binary.tar.gz.part"
    part.parent.mkdir()
    part.write_bytes(tiny_cifar[:100])
    server.ranges = ranges
    fetch("cifar10", tmp_path / "data", mirror=server.address)
    assert server.asked == ["bytes=100-"]
    assert [path.name for path in sorted((tmp_path / "data").iterdir())] == ["cifar-10-batches-bin", "cifar10"]


@pytest.mark.usefixtures("tiny_cifar")
def test_an_answer_that_ends_early(server: Server, tmp_path: Path) -> None:
    server.cut = 1000
    with pytest.raises(DatasetError, match="run the command again to resume"):
        fetch("cifar10", tmp_path / "data", mirror=server.address)
    assert not (tmp_path / "data" / "cifar-10-batches-bin").exists()
    server.cut = None
    assert len(read_images(fetch("cifar10", tmp_path / "data", mirror=server.address))) == 12


def test_a_part_that_is_whole_is_checked_and_used(server: Server, tiny_cifar: bytes, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(tiny_cifar)
    assert fetch("cifar10", tmp_path, mirror=server.address).is_dir()


def test_a_part_of_another_file_is_refused_then_fetched_anew(server: Server, tiny_cifar: bytes, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(b"x" * (len(tiny_cifar) + 1))
    with pytest.raises(DatasetError, match="is not the published archive"):
        fetch("cifar10", tmp_path, mirror=server.address)
    assert fetch("cifar10", tmp_path, mirror=server.address).is_dir()


# -- fetching ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny_cifar")
def test_it_is_fetched_once_and_read(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCEP_DATA_MIRROR", server.address + "/")
    monkeypatch.setenv("HCEP_CACHE", str(tmp_path / "cache"))
    place = fetch("cifar10")
    assert place == tmp_path / "cache" / "data" / "cifar10"
    assert repr(read_images(place)) == "ImageDataset(12 images, 10 classes, layout 'folder', train 10, test 2)"
    assert fetch("cifar10") == place
    assert len(server.asked) == 1


def test_an_archive_copied_by_hand_is_used(server: Server, tiny_cifar: bytes, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(tiny_cifar)
    assert fetch("cifar10", tmp_path, mirror=server.address).is_dir()
    assert server.asked == []


def test_a_zip_in_the_layout_of_tiny_imagenet(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = touch(tmp_path / "made", "train/n01443537/images/n01443537_0.JPEG", "val/images/val_0.JPEG")
    write(made, "wnids.txt", "n01443537\n")
    write(made, "val/val_annotations.txt", "val_0.JPEG\tn01443537\t0\t0\t1\t1\n")
    publish(server, "tiny-imagenet", zip_of(made, "tiny-imagenet-200"), monkeypatch)
    dataset = read_images(fetch("tiny-imagenet", tmp_path / "data", mirror=server.address))
    assert (dataset.layout, len(dataset)) == ("tiny_imagenet", 2)


def test_imagenet_is_where_the_user_says(tmp_path: Path) -> None:
    touch(tmp_path, "train/n01440764/a.JPEG", "val/ILSVRC2012_val_00000001.JPEG")
    assert fetch("imagenet", tmp_path) == tmp_path


def test_every_archive_is_described() -> None:
    assert all(archive.url.startswith("http") and len(archive.hash) == 36 for archive in ARCHIVES.values())
    assert isinstance(ARCHIVES["cifar10"], Archive)


# -- archives that want more than their folder ------------------------------------------------------------


def tar_with(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def tar_member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "name", ["../outside.txt", "/outside.txt", "d/../../outside.txt", "d\\..\\..\\outside.txt", "C:/outside.txt"]
)
def test_paths_outside_the_archive_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr(name, "x")
    for path in (tmp_path / "odd.zip", tar_with(tmp_path, (tar_member(name), b"x"))):
        with pytest.raises(DatasetError, match=r"is refused: .*outside.txt' in it points outside the archive; nothing"):
            unpack(path, tmp_path / "in", "d")
    assert list((tmp_path / "in").iterdir()) == []
    assert not (tmp_path / "outside.txt").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar(kind: bytes, tmp_path: Path) -> None:
    path = tar_with(tmp_path, (tar_member("d/a"), b"x"), (tar_member("d/b", kind, "a"), b""))
    with pytest.raises(DatasetError, match=r"is refused: 'd/b' in it is a link or device"):
        unpack(path, tmp_path, "d")
    assert not (tmp_path / "d").exists()


def test_links_in_a_zip(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("d/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DatasetError, match=r"is refused: 'd/link' in it is a link or device"):
        unpack(tmp_path / "odd.zip", tmp_path, "d")


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("d/zeros", bytes(1 << 20))
    with pytest.raises(DatasetError, match=r"unpacks to more than 1,000 bytes or"):
        unpack(tmp_path / "bomb.zip", tmp_path, "d", max_bytes=1000)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b\x08\x00damaged"])
def test_a_damaged_archive(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(data)
    with pytest.raises(DatasetError, match=r"x.tgz' cannot be unpacked"):
        unpack(tmp_path / "x.tgz", tmp_path, "d")


def test_an_archive_cut_short_leaves_nothing(tmp_path: Path) -> None:
    whole = tar_of(cifar10(tmp_path / "made"), "d")
    (tmp_path / "x.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match=r"x.tgz' cannot be unpacked"):
        unpack(tmp_path / "x.tgz", tmp_path, "d")
    assert sorted(os.listdir(tmp_path)) == ["made", "x.tgz"]


def test_an_archive_of_something_else(tmp_path: Path) -> None:
    path = tar_with(tmp_path, (tar_member("other/a"), b"x"))
    with pytest.raises(DatasetError, match=r"has no folder 'd'"):
        unpack(path, tmp_path, "d")


# -- the command -------------------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_lists_what_there_is() -> None:
    assert "cifar100" in run("data")
    assert [record["name"] for record in json.loads(run("data", "--json"))] == list(ARCHIVES)


def colours(batch):  # type: ignore[no-untyped-def]
    """An encoder: mean colours."""
    return batch.mean(axis=(2, 3))


def test_the_command_fetches_and_encodes(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split in ("train", "val"):
        for wnid in ("n01440764", "n02979186"):
            file = tmp_path / "made" / split / wnid / "a.JPEG"
            file.parent.mkdir(parents=True)
            Image.new("RGB", (16, 16), "red").save(file)
    publish(server, "imagenette-160", tar_of(tmp_path / "made", "imagenette2-160"), monkeypatch)
    options = ["--folder", tmp_path / "data", "--mirror", server.address, "-o", tmp_path / "store", "--json"]
    encoder = "function:tests.datasets.test_download:colours"
    facts = json.loads(run("data", "imagenette-160", *options, "--encoder", encoder))
    assert facts["folder"] == str(tmp_path / "data" / "imagenette2-160")
    assert (facts["n_encoded"], facts["n_skipped"]) == (4, 0)


def test_an_encoder_needs_a_store() -> None:
    with pytest.raises(ValueError, match="--encoder and --output must be given together"):
        CliRunner().invoke(app, ["data", "cifar10", "--encoder", "x"], catch_exceptions=False)


@pytest.mark.usefixtures("tiny_cifar")
def test_experiments_run_on_what_is_fetched(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCEP_DATA_MIRROR", server.address)
    monkeypatch.setenv("HCEP_CACHE", str(tmp_path / "cache"))
    asked = []

    def user_task(*arguments: object) -> None:
        asked.extend(arguments)
        raise DatasetError("far enough")

    monkeypatch.setattr("experiments.command.user_task", user_task)
    with pytest.raises(DatasetError, match="far enough"):
        CliRunner().invoke(experiments_app, ["fewshot", "--download", "cifar10"], catch_exceptions=False)
    assert asked[:2] == [tmp_path / "cache" / "data" / "cifar10", "efficientnet-lite2"]
    with pytest.raises(ValueError, match="--data and --download exclude each other"):
        CliRunner().invoke(experiments_app, ["fewshot", "--download", "x", "--data", "y"], catch_exceptions=False)
