"""Download public image archives, check them and unpack them safely."""

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from hcep._files import WebResponse, cache_folder, fetch as fetch_url
from hcep._progress import progress as progress_bar
from hcep.datasets.cifar import FORMS, write_images
from hcep.datasets.image_dataset import DatasetError
from hcep.errors import near_matches, quote, quoted

#: Environment variable with the URL of a mirror that has the archives under their file names.
MIRROR = "HCEP_DATA_MIRROR"
#: Seconds without data after which a download fails.
TIMEOUT = 60
CHUNK = 1 << 20
#: Limits on unpacking: how many times the published size, and how many files.
MAX_RATIO, MAX_FILES = 20, 2_000_000


class Archive(NamedTuple):
    """A published archive: its hash with the algorithm ("md5:…"), its size, and the folder that it unpacks to."""

    url: str
    hash: str
    n_bytes: int
    folder: str
    title: str

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


_FASTAI = "https://s3.amazonaws.com/fast-ai-imageclas/"
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
#: To add one, give its URL, its published hash, its size and the folder in it.
ARCHIVES = {
    name: Archive(url, f"md5:{digest}", n_bytes, folder, title)
    for name, url, digest, n_bytes, folder, title in (
        ("imagenette", f"{_FASTAI}imagenette2.tgz", "fe2fc210e6bb7c5664d602c3cd71e612", 1_557_161_267,
         "imagenette2", "ImageNette, ten classes of ImageNet in full size"),
        ("imagenette-320", f"{_FASTAI}imagenette2-320.tgz", "3df6f0d01a2c9592104656642f5e78a3", 341_663_724,
         "imagenette2-320", "ImageNette, shorter side 320 pixels"),
        ("imagenette-160", f"{_FASTAI}imagenette2-160.tgz", "e793b78cc4c9e9a4ccc0c1155377a412", 99_003_388,
         "imagenette2-160", "ImageNette, shorter side 160 pixels"),
        ("tiny-imagenet", "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de",
         248_100_043, "tiny-imagenet-200", "Tiny-ImageNet, 200 classes of ImageNet at 64 x 64 pixels"),
        ("cifar10", f"{_TORONTO}cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171,
         "cifar-10-batches-bin", "CIFAR-10, ten classes at 32 x 32 pixels"),
        ("cifar100", f"{_TORONTO}cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733,
         "cifar-100-binary", "CIFAR-100, a hundred classes at 32 x 32 pixels")
    )
}  # fmt: skip


def fetch(
    name: str, folder: str | os.PathLike[str] | None = None, *, mirror: str | None = None, progress: bool = False
) -> Path:
    """Download a public image dataset and unpack it, unless it is there already; return the folder of its images.

    Parameters
    ----------
    name : one of `ARCHIVES`. "imagenet" is not downloaded, because everybody must accept its terms: give the `folder`
        where you unpacked it.
    folder : where to unpack it, and where to look for an archive that was copied by hand; the user's cache by default
    mirror : URL of a folder with the archives under their published names; ``HCEP_DATA_MIRROR`` by default
    progress : show a progress bar
    """
    if name == "imagenet":
        return _own_imagenet(folder)
    if name not in ARCHIVES:
        raise DatasetError(
            f"there is no dataset {quote(name)}; the datasets are {quoted(ARCHIVES, 10)}.{near_matches(name, ARCHIVES)}"
        )
    archive = ARCHIVES[name]
    target = Path(folder) if folder is not None else cache_folder("data")
    place, images = target / archive.folder, target / name
    is_cifar = archive.folder in FORMS
    if is_cifar and images.is_dir():
        return images
    if not place.is_dir():
        packed = download(archive, target, mirror=mirror or os.environ.get(MIRROR), progress=progress)
        unpack(packed, target, archive.folder, max_bytes=MAX_RATIO * archive.n_bytes)
        packed.unlink()
    if not is_cifar:
        return place
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=target) as temporary:
        write_images(place, Path(temporary, name))
        os.replace(Path(temporary, name), images)
    return images


def _own_imagenet(folder: str | os.PathLike[str] | None) -> Path:
    from hcep.datasets.layouts import imagenet

    if folder is None or not Path(folder).is_dir():
        raise DatasetError(
            "ImageNet cannot be fetched, because you must accept the terms of image-net.org: download it there, unpack "
            f"it and give its folder; got {None if folder is None else str(folder)!r}"
        )
    if not imagenet.detect(Path(folder)):
        raise DatasetError(f"{str(folder)!r} is not ImageNet: looked for {imagenet.LOOKS_FOR}")
    return Path(folder)


def download(
    archive: Archive, folder: str | os.PathLike[str], *, mirror: str | None = None, progress: bool = False
) -> Path:
    """Download an archive into a folder and check its hash; an interrupted download is resumed. See `fetch`."""
    url = f"{mirror.rstrip('/')}/{archive.file}" if mirror else archive.url
    packed = Path(folder, archive.file)
    if packed.is_file() and _has_hash(packed, archive.hash):
        return packed
    part = packed.with_name(f"{archive.file}.part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        _fetch(url, part, 2 * archive.n_bytes, progress)
    except OSError as error:
        raise DatasetError(f"cannot fetch {url}: {error}; run the command again to resume") from error
    if not _has_hash(part, archive.hash):
        part.unlink()
        raise DatasetError(
            f"{url} is not the published archive: its {archive.hash.partition(':')[0]} differs from {archive.hash}; "
            "it was deleted. Try again, or use another mirror"
        )
    part.replace(packed)
    return packed


def _has_hash(path: Path, expected: str) -> bool:
    algorithm, _, digest = expected.partition(":")
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest() == digest


def _fetch(url: str, part: Path, max_bytes: int, show_progress: bool) -> None:
    """Download a file, continuing the part of it that an earlier run left."""
    n_before = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={n_before}-"} if n_before else {}
    with ExitStack() as resources:

        def save(response: WebResponse) -> Callable[[bytes], object]:
            if response.status == 416:  # nothing is left to send, or the part is of another file: see its hash
                return lambda chunk: None
            if response.status not in (200, 206):
                raise DatasetError(f"cannot fetch {url}: the server answers {response.status} {response.reason}")
            start = n_before if response.status == 206 else 0
            total = start + int(response.headers.get("Content-Length", 0))
            if total > max_bytes:
                raise DatasetError(f"{url} has {total:,} bytes, too many to be the published archive")
            file = resources.enter_context(part.open("ab" if start else "wb"))
            bar = progress_bar(f"fetching {part.stem}", total, show_progress, "bytes")
            advance = resources.enter_context(bar)
            advance(start)
            return lambda chunk: advance(file.write(chunk))

        fetch_url(url, timeout=TIMEOUT, max_bytes=max_bytes, headers=headers, follow=True, save=save)


def unpack(
    archive: str | os.PathLike[str], folder: str | os.PathLike[str], inner: str, *, max_bytes: int = 1 << 36
) -> Path:
    """Unpack the folder `inner` of a .zip or .tar file; it appears only when it is complete."""
    target = Path(folder, inner)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
        try:
            _extract(Path(archive), Path(temporary), max_bytes)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
            raise DatasetError(f"{os.fspath(archive)!r} cannot be unpacked: {error}") from error
        unpacked = Path(temporary, inner)
        if not unpacked.is_dir():
            raise DatasetError(f"{os.fspath(archive)!r} has no folder {quote(inner)}")
        os.replace(unpacked, target)
    return target


def _members(archive: Path) -> Iterator[tuple[str, int, bool, bool, Callable[[], Any]]]:
    """Name and size of each member, whether it is a folder, whether it is a file or folder, and how to open it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for i in packed.infolist():
                is_plain = stat.S_IFMT(i.external_attr >> 16) in (0, stat.S_IFREG, stat.S_IFDIR)
                yield i.filename, i.file_size, i.is_dir(), is_plain, partial(packed.open, i)
    else:
        with tarfile.open(archive) as packed_tar:
            for info in packed_tar:
                is_plain = info.isreg() or info.isdir()
                yield info.name, info.size, info.isdir(), is_plain, partial(packed_tar.extractfile, info)


def _extract(archive: Path, folder: Path, most: int) -> None:
    def refusal(member: str, what: str) -> DatasetError:
        return DatasetError(f"{str(archive)!r} is refused: {quote(member)} in it {what}; nothing was unpacked")

    left, n_files = most, 0
    for member, n_bytes, is_folder, is_plain, opened in _members(archive):
        name, left = member.replace("\\", "/"), left - n_bytes
        if not is_plain:
            raise refusal(member, "is a link or device")
        if is_folder:
            continue
        parts = [part for part in PurePosixPath(name).parts if part != "."]
        if name.startswith("/") or ".." in parts or not parts or ":" in parts[0] or "\0" in name:
            raise refusal(name, "points outside the archive")
        n_files += 1
        if left < 0 or n_files > MAX_FILES:
            raise DatasetError(f"{str(archive)!r} unpacks to more than {most:,} bytes or {MAX_FILES:,} files")
        place = folder.joinpath(*parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        with opened() as packed, place.open("xb") as file:
            shutil.copyfileobj(packed, file, CHUNK)
