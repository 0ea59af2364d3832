"""A folder of fifty awkward files: the run ends well, good pictures are encoded upright, the rest is listed."""

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hcep.embeddings.images import ImageItem
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.embeddings.vectors import StoreError
from tests.embeddings.tiny import TinyEncoder, encode

# Left half red, right half blue, so that a rotation shows.
PICTURE = Image.new("RGB", (40, 30), "blue")
PICTURE.paste((255, 0, 0), (0, 0, 20, 30))
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))

TURNED_BACK = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
}


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def turned(orientation):
    """The picture lying on its side, with the EXIF tag that sets it upright."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(PICTURE.transpose(TURNED_BACK[orientation]), "PNG", exif=exif)


def png(width, height, pixels, depth=8, colour=2):
    """A PNG that says it is this large, whatever its pixels are."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("cat.jpg", "no")
    return buffer.getvalue()


def good_files():
    palette = PICTURE.quantize(8)
    cmyk = PICTURE.convert("CMYK")
    grey16 = Image.fromarray(np.full((30, 40), 40_000, dtype=np.uint16))
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("blue", "green")]
    return {
        **{f"exif-{orientation}.png": turned(orientation) for orientation in TURNED_BACK},
        "cmyk.jpg": encoded(cmyk, "JPEG"),
        "cmyk.tif": encoded(cmyk, "TIFF"),
        "16-bit.png": encoded(grey16, "PNG"),
        "16-bit.tif": encoded(grey16, "TIFF"),
        "animated.gif": encoded(PICTURE.quantize(4), "GIF", save_all=True, append_images=frames),
        "progressive.jpg": encoded(PICTURE, "JPEG", progressive=True),
        "palette.png": encoded(palette, "PNG", transparency=0),
        "grey.jpg": encoded(PICTURE.convert("L"), "JPEG"),
        "grey-alpha.png": encoded(PICTURE.convert("LA"), "PNG"),
        "alpha.png": encoded(PICTURE.convert("RGBA"), "PNG"),
        "bilevel.png": encoded(PICTURE.convert("1"), "PNG"),
        "one-pixel.png": encoded(PICTURE.crop((0, 0, 1, 1)), "PNG"),
        "thread.png": encoded(Image.new("RGB", (9000, 1), "red"), "PNG"),
        "picture.bmp": encoded(PICTURE, "BMP"),
        "picture.webp": encoded(PICTURE, "WEBP", lossless=True),
        "png-named.jpg": encoded(PICTURE, "PNG"),
        "appended.jpg": encoded(PICTURE, "JPEG") + b"<script>alert(1)</script>",
        "ÄÖ 猫 🐈.png": encoded(PICTURE, "PNG"),
        "two\nlines.png": encoded(PICTURE, "PNG"),
        "-rf ; $(touch x) '\".png": encoded(PICTURE, "PNG"),
    }


def bad_files():
    jpeg, whole_png = encoded(NOISE, "JPEG", quality=95), encoded(NOISE, "PNG")
    return {
        "empty.jpg": b"",
        "empty.png": b"",
        "text.jpg": b"I am not a picture.",
        "page.jpg": b"<!doctype html><title>404</title>",
        "zeros.jpg": bytes(1000),
        "random.jpg": np.random.default_rng(1).bytes(5000),
        "archive.jpg": zipped(),
        "drawing.jpg": b"<svg xmlns='http://www.w3.org/2000/svg'><rect width='1' height='1'/></svg>",
        "program.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        "document.jpg": b"%PDF-1.7\n",
        "header.jpg": jpeg[:20],
        "half.jpg": jpeg[: len(jpeg) // 2],
        "most.jpg": jpeg[: len(jpeg) * 9 // 10],
        "header.png": whole_png[:33],
        "half.png": whole_png[: len(whole_png) // 2],
        "flipped.png": whole_png[:60] + bytes(40) + whole_png[100:],
        "header.gif": b"GIF89a\x10\x00\x10\x00",
        "header.bmp": encoded(PICTURE, "BMP")[:40],
        "float.tif": encoded(Image.fromarray(np.ones((5, 5), np.float32)), "TIFF"),
        "20000x20000.png": png(20_000, 20_000, zlib.compress(b"")),
        "bomb.png": png(40_000, 40_000, zlib.compress(bytes(5001 * 2000), 9), depth=1, colour=0),
    }


def make_unopenable(folder):
    (folder / "symlink.jpg").symlink_to("nowhere.jpg")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "device.jpg").symlink_to("/dev/zero")
    (folder / "folder.jpg").mkdir()
    os.mkfifo(folder / "pipe.jpg")


@pytest.fixture
def hostile(tmp_path):
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name, content in {**good_files(), **bad_files()}.items():
        (folder / name).write_bytes(content)
    make_unopenable(folder)
    return sorted(folder.iterdir())


def by_name(folder):
    opened = EmbeddingStore(folder)
    return dict(zip((Path(path).name for path in opened.paths), opened.to_numpy(), strict=True))


def test_fifty_hostile_files(hostile, tmp_path):
    report = encode([ImageItem(path) for path in hostile], tmp_path / "store", batch_size=1)
    assert len(hostile) >= 50
    assert set(by_name(tmp_path / "store")) == set(good_files())
    assert report.n_encoded == len(good_files())
    listed = {Path(image.path).name: image.reason for image in EmbeddingStore(tmp_path / "store").skipped}
    unopenable = {"symlink.jpg", "loop.jpg", "device.jpg", "folder.jpg", "pipe.jpg"}
    assert set(listed) == set(bad_files()) | unopenable
    assert all(listed.values())
    assert listed["20000x20000.png"].startswith("too large")
    assert listed["bomb.png"].startswith("too large")
    assert (listed["symlink.jpg"], listed["folder.jpg"]) == ("broken symlink", "is a directory")
    assert listed["empty.jpg"] == "empty file"


def test_rotation_is_respected(hostile, tmp_path):
    encode([ImageItem(path) for path in hostile], tmp_path / "store", batch_size=1)
    found = by_name(tmp_path / "store")
    upright = TinyEncoder().encode_images(TinyEncoder().preprocess(PICTURE)[None])[0].astype(np.float16)
    for name in (*(f"exif-{orientation}.png" for orientation in TURNED_BACK), "png-named.jpg", "two\nlines.png"):
        np.testing.assert_array_equal(found[name], upright, err_msg=name)
    np.testing.assert_allclose(found["cmyk.tif"], upright, atol=0.02)
    np.testing.assert_allclose(found["animated.gif"], upright, atol=0.02)
    np.testing.assert_allclose(found["16-bit.png"], 40_000 / 65_536 * (1 + 1 / 16), atol=0.01)


def test_a_second_run_has_nothing_to_do(hostile, tmp_path):
    items = [ImageItem(path) for path in hostile]
    first = encode(items, tmp_path / "store")
    second = encode(items, tmp_path / "store")
    assert (second.n_encoded, second.n_reused) == (0, first.n_encoded)
    assert {(i.id, i.reason) for i in second.skipped} == {(i.id, i.reason) for i in first.skipped}


def test_strict_names_the_first(hostile, tmp_path):
    items = [ImageItem(path) for path in hostile if path.name not in good_files()]
    with pytest.raises(StoreError, match=r"20000x20000.png' cannot be encoded: too large"):
        encode(items, tmp_path / "store", strict=True)
