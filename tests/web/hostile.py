"""Files that nobody should send: each makes some decoder, somewhere, suffer."""

from __future__ import annotations

import random
import struct
import zlib
from io import BytesIO

from PIL import Image


def png(width: int, height: int, *chunks: tuple[bytes, bytes], depth: int = 8, color: int = 0) -> bytes:
    """A PNG of given chunks, whatever they say."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunk(*one) for one in chunks) + chunk(b"IEND", b"")


def zeros(n: int) -> bytes:
    """Compressed zeros, made without holding them."""
    squeeze, out = zlib.compressobj(1), []
    for _ in range(n >> 20):
        out.append(squeeze.compress(bytes(1 << 20)))
    return b"".join([*out, squeeze.flush()])


def saved(kind: str, size: tuple[int, int] = (64, 48), mode: str = "RGB", **options) -> bytes:
    file = BytesIO()
    Image.new(mode, size).save(file, kind, **options)
    return file.getvalue()


def slow_jpeg(side: int = 6400, n: int = 1500) -> bytes:
    """A progressive JPEG whose last scan comes again and again: small, within the limits, and hours to decode."""
    data = saved("JPEG", (side, side), progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * n + data[-2:]


def huge_jpeg() -> bytes:
    data = bytearray(saved("JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", 65500, 65500)
    return bytes(data)


def bmp(side: int) -> bytes:
    return b"BM" + struct.pack("<IIIIiiHHIIIIII", 54, 0, 54, 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0)


def tiff(side: int) -> bytes:
    tags = {256: side, 257: side, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: side, 279: side}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


def hostile_files() -> dict[str, bytes]:
    """By what is wrong with them."""
    rng = random.Random(0)
    good, drawn = saved("JPEG"), b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    files = {
        "empty.jpg": b"",
        "one byte.jpg": b"\xff",
        "text.jpg": b"some words",
        "svg with script.svg": drawn,
        "svg called png.png": drawn,
        "svg with entities.svg": b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>' + drawn,
        "page.html": b"<!doctype html><script>alert(1)</script>",
        "document.pdf": b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj",
        "ghostscript.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file",
        "archive.zip": b"PK\x03\x04" + bytes(100),
        "program.jpg": b"\x7fELF" + bytes(100),
        "pickle.jpg": b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",
        "cut.jpg": saved("JPEG", (640, 480))[:400],
        "cut.png": saved("PNG", (640, 480))[:60],
        "cut.gif": saved("GIF")[:20],
        "cut.webp": saved("WEBP")[:30],
        "cut.bmp": saved("BMP")[:80],
        "cut.tiff": saved("TIFF")[:60],
        "jpeg of 65500 x 65500.jpg": huge_jpeg(),
        "slow scans.jpg": slow_jpeg(),
        "png that says 100000 x 100000.png": png(100_000, 100_000, (b"IDAT", zeros(1 << 20))),
        "png of 160 megapixels.png": png(20_000, 8_000, (b"IDAT", zeros(160 << 20))),
        "png of 60 megapixels.png": png(60_000, 1000, (b"IDAT", zeros(60 << 20))),
        "png of 2^31.png": png(2**31 - 1, 2**31 - 1, (b"IDAT", b"")),
        "png of no size.png": png(0, 0, (b"IDAT", b"")),
        "png without pixels.png": png(64, 64),
        "png of wrong sums.png": saved("PNG").replace(b"IDAT", b"IDAX"),
        "png with a text bomb.png": png(8, 8, (b"zTXt", b"a\0\0" + zeros(64 << 20)), (b"IDAT", zeros(1 << 20))),
        "png with a profile bomb.png": png(8, 8, (b"iCCP", b"a\0\0" + zeros(64 << 20)), (b"IDAT", zeros(1 << 20))),
        "bmp that says 60000 x 60000.bmp": bmp(60_000),
        "bmp of less than nothing.bmp": bmp(-9),
        "gif of 65535 x 65535.gif": b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0xF0, 0, 0) + bytes(6) + b";",
        "ppm of 10^9.ppm": b"P6 1000000000 1000000000 255\n",
        "ppm of words.ppm": b"P3 9 9 255\nred green blue",
        "tiff whose pages go round.tiff": b"II*\0" + struct.pack("<IHI", 8, 0, 8),
        "tiff of floats.tiff": saved("TIFF", mode="F"),
        "tiff of 60000 x 60000.tiff": tiff(60_000),
        "icon in an icon.ico": b"\0\0\1\0\1\0" + struct.pack("<BBBBHHII", 0, 0, 0, 0, 1, 32, 2**31, 22),
        "../../../etc/passwd": b"root",
        "..\\..\\windows\\system32\\drivers\\etc\\hosts": b"127.0.0.1",
        "/etc/cron.d/evil": b"* * * * * root sh",
        "%2e%2e%2f%2e%2e%2fetc%2fshadow": b"x",
        "<img src=x onerror=alert(1)>.jpg": b"x",
        "a" * 5000 + ".jpg": good[:50],
        "file:///etc/passwd": b"x",
        "http://127.0.0.1:22/": b"x",
        "CON.jpg": good[:100],
    }  # fmt: skip
    return files | {f"noise {i}.jpg": good[:2] * (i % 2) + rng.randbytes(2000) for i in range(6)}
