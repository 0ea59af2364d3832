"""Good images of every kind come out upright and RGB; each bad file has its reason."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hcep.embeddings import images
from hcep.embeddings.images import ImageProblem, content_hash, not_used, open_image

RED, WHITE, BLUE = (255, 0, 0), (255, 255, 255), (0, 0, 255)


def saved(path, image, **options):
    image.save(path, **options)
    return path


def half_and_half(mode="RGB", size=(40, 20)):
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, "blue")
    image.paste(RED, (0, 0, size[0] // 2, size[1]))
    return image.convert(mode)


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width, height):
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(bytes(1000)))


def near(pixel, colour, tolerance=12):
    return max(abs(a - b) for a, b in zip(pixel, colour, strict=True)) <= tolerance


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.tif", "a.webp", "a.gif", "a.ppm", "a.ico", "a.tga"])
def test_formats(tmp_path, name):
    found = open_image(saved(tmp_path / name, half_and_half()))
    assert found.mode == "RGB"
    middle = found.height // 2
    assert near(found.getpixel((2, middle)), RED)
    assert near(found.getpixel((found.width - 3, middle)), BLUE)


@pytest.mark.parametrize(("mode", "name"), [("CMYK", "a.jpg"), ("CMYK", "a.tif"), ("P", "a.png"), ("YCbCr", "a.jpg")])
def test_modes_with_colour(tmp_path, mode, name):
    found = open_image(saved(tmp_path / name, half_and_half(mode)))
    assert found.mode == "RGB"
    assert near(found.getpixel((2, 10)), RED, 20)
    assert near(found.getpixel((37, 10)), BLUE, 20)


@pytest.mark.parametrize(("mode", "value", "expected"), [("L", 128, 128), ("1", 1, 255)])
def test_grey(tmp_path, mode, value, expected):
    found = open_image(saved(tmp_path / "a.png", Image.new(mode, (5, 4), value)))
    assert found.getpixel((0, 0)) == (expected,) * 3


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path, name):
    grey = np.array([[0, 256, 32768, 65535]], dtype=np.uint16)
    found = np.asarray(open_image(saved(tmp_path / name, Image.fromarray(grey))))
    assert found[0, :, 0].tolist() == [0, 1, 128, 255]


def test_integers_of_32_bits_are_read_as_16(tmp_path):
    grey = np.array([[-5, 512, 65535, 10**6]], dtype=np.int32)
    found = np.asarray(open_image(saved(tmp_path / "a.tif", Image.fromarray(grey))))
    assert found[0, :, 0].tolist() == [0, 2, 255, 255]


@pytest.mark.parametrize(("mode", "transparent"), [("RGBA", (255, 0, 0, 0)), ("LA", (0, 0))])
def test_transparent_pixels_are_white(tmp_path, mode, transparent):
    assert open_image(saved(tmp_path / "a.png", Image.new(mode, (5, 4), transparent))).getpixel((0, 0)) == WHITE


def test_half_transparent_pixels_are_mixed_with_white(tmp_path):
    found = open_image(saved(tmp_path / "a.png", Image.new("RGBA", (5, 4), (255, 0, 0, 128))))
    assert near(found.getpixel((0, 0)), (255, 127, 127), 1)


def test_a_transparent_palette_entry_is_white(tmp_path):
    found = open_image(saved(tmp_path / "a.gif", half_and_half("P"), transparency=half_and_half("P").getpixel((0, 0))))
    assert found.getpixel((2, 10)) == WHITE
    assert near(found.getpixel((37, 10)), BLUE)


def test_of_an_animation_the_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "white")]
    path = saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    assert near(open_image(path).getpixel((0, 0)), RED)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tif"])
def test_exif_rotation_is_applied(tmp_path, name, orientation):
    stored = {
        1: lambda i: i,
        2: lambda i: i.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: lambda i: i.transpose(Image.Transpose.ROTATE_180),
        4: lambda i: i.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: lambda i: i.transpose(Image.Transpose.TRANSPOSE),
        6: lambda i: i.transpose(Image.Transpose.ROTATE_90),
        7: lambda i: i.transpose(Image.Transpose.TRANSVERSE),
        8: lambda i: i.transpose(Image.Transpose.ROTATE_270),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = half_and_half()
    upright.paste(WHITE, (0, 0, 20, 10))
    found = open_image(saved(tmp_path / name, stored(upright), exif=exif.tobytes()))
    assert found.size == (40, 20)
    assert near(found.getpixel((4, 3)), WHITE, 25)
    assert near(found.getpixel((4, 16)), RED, 25)
    assert near(found.getpixel((36, 16)), BLUE, 25)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("exif", [b"Exif\x00\x00garbage that is no TIFF", b"Exif\x00\x00II*\x00\xff\xff\xff\xff"])
def test_damaged_exif_does_not_matter(tmp_path, exif):
    assert open_image(saved(tmp_path / "a.jpg", half_and_half(), exif=exif)).size == (40, 20)


def test_a_large_jpeg_is_decoded_small_but_large_enough(tmp_path):
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 255, (24, 36, 3), dtype=np.uint8))
    path = saved(tmp_path / "a.jpg", coarse.resize((3600, 2400), Image.Resampling.BICUBIC), quality=95)
    small, whole = open_image(path, shorter_side=224), open_image(path)
    assert small.size == (900, 600)
    assert whole.size == (3600, 2400)
    pictures = [np.asarray(image.resize((336, 224), Image.Resampling.BICUBIC), dtype=float) for image in (small, whole)]
    assert np.abs(pictures[0] - pictures[1]).mean() < 1


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_a_small_image_is_decoded_in_full(tmp_path, name):
    assert open_image(saved(tmp_path / name, half_and_half()), shorter_side=224).size == (40, 20)


BAD = {
    "text.jpg": (b"I am not an image\n", "not an image"),
    "zeros.png": (bytes(5000), "not an image"),
    "html.gif": (b"<html><body>404</body></html>", "not an image"),
    "huge.png": (png_header(20_000, 20_000), "too large"),
    "bomb.png": (png_header(60_000, 60_000), "too large"),
    "big.png": (png_header(10_000, 10_000), "too large"),
    "empty.jpg": (b"", "empty file"),
    "eps.jpg": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n", "not an image"),
    "header.png": (png_header(50, 50)[:33], "."),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_content(tmp_path, name):
    content, reason = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ImageProblem, match=reason) as found:
        open_image(path)
    assert str(found.value) == f"{path}: {found.value.reason}"
    assert "\n" not in found.value.reason
    assert str(path) not in found.value.reason


def test_floating_point_pixels(tmp_path):
    with pytest.raises(ImageProblem, match="floating-point pixels, whose range is unknown"):
        open_image(saved(tmp_path / "a.tif", Image.new("F", (4, 4), 0.5)))


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.bmp", "a.tif"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_truncated_files(tmp_path, name, share):
    rng = np.random.default_rng(0)
    path = saved(tmp_path / name, Image.fromarray(rng.integers(0, 255, (80, 80, 3), dtype=np.uint8)))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ImageProblem, match=r"a\.\w+: \w+"):
        open_image(path)


def test_the_size_is_checked_before_anything_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    with pytest.raises(ImageProblem, match="too large: 40 x 20 pixels, at most 100 in all"):
        open_image(saved(tmp_path / "a.png", half_and_half()), max_pixels=100)


@pytest.mark.filterwarnings("default::PIL.Image.DecompressionBombWarning")
def test_the_size_is_named_where_pillow_only_warns(tmp_path):
    (tmp_path / "a.png").write_bytes(png_header(10_000, 10_000))
    with (
        pytest.warns(Image.DecompressionBombWarning),
        pytest.raises(ImageProblem, match=r"10,000 x 10,000 pixels, at most 89,478,485 in all"),
    ):
        open_image(tmp_path / "a.png")


BOTH = pytest.mark.parametrize("function", [open_image, content_hash])


@BOTH
def test_a_missing_file(tmp_path, function):
    with pytest.raises(ImageProblem, match="no such file") as found:
        function(tmp_path / "a.jpg")
    assert found.value.reason == "no such file"
    assert found.value.path == str(tmp_path / "a.jpg")


@BOTH
def test_a_broken_symlink(tmp_path, function):
    (tmp_path / "a.jpg").symlink_to(tmp_path / "gone.jpg")
    with pytest.raises(ImageProblem, match="broken symlink"):
        function(tmp_path / "a.jpg")


@BOTH
def test_a_symlink_to_itself(tmp_path, function):
    (tmp_path / "a.jpg").symlink_to(tmp_path / "a.jpg")
    with pytest.raises(ImageProblem, match=r"(?i)symbolic links"):
        function(tmp_path / "a.jpg")


@BOTH
def test_a_directory(tmp_path, function):
    with pytest.raises(ImageProblem, match="is a directory"):
        function(tmp_path)


@BOTH
def test_a_pipe_is_not_waited_for(tmp_path, function):
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(ImageProblem, match="not a regular file"):
        function(tmp_path / "a.jpg")


@BOTH
def test_a_file_name_with_a_null_character_is_refused(function):
    with pytest.raises(ImageProblem, match="null"):
        function("a\0.jpg")


@BOTH
def test_an_unreadable_file(tmp_path, function, monkeypatch):
    # Permissions do not stop root, who may run the tests.
    path = saved(tmp_path / "a.png", half_and_half())

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ImageProblem, match="Permission denied"):
        function(path)


def test_a_problem_without_a_path_is_its_reason():
    assert str(ImageProblem("empty file")) == "empty file"


def test_content_hash_follows_the_content(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"cat")
    second.write_bytes(b"cat")
    assert content_hash(first) == content_hash(str(second))
    assert content_hash(first) == "77af778b51abd4a3c51c5ddd97204a9c3ae614ebccb75a606c3b6865aed6744e"
    second.write_bytes(b"car")
    assert content_hash(first) != content_hash(second)


def test_a_file_can_be_removed_after_it_was_opened(tmp_path):
    path = saved(tmp_path / "a.png", half_and_half())
    image = open_image(path)
    Path(path).unlink()
    assert image.getpixel((0, 0)) == RED


# -- photos as phones make them -----------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".heic", ".jpg"])
def test_heic_is_read_whatever_its_name(tmp_path, suffix):
    heif = pytest.importorskip("pillow_heif")
    heif.from_pillow(Image.new("RGB", (64, 32), "red")).save(tmp_path / "a.heic")
    (tmp_path / "a.heic").rename(tmp_path / f"a{suffix}")
    image = open_image(tmp_path / f"a{suffix}")
    assert (image.size, image.mode) == ((64, 32), "RGB")
    assert image.getpixel((10, 10))[0] > 240


def test_avif_is_read_and_both_are_found_in_folders(tmp_path):
    from hcep.datasets import read_images

    Image.new("RGB", (64, 32), "red").save(tmp_path / "a.avif")
    (tmp_path / "b.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    assert open_image(tmp_path / "a.avif").size == (64, 32)
    assert read_images(tmp_path).files == ("a.avif", "b.HEIC")


def test_heic_without_its_package_is_refused_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "_has_heif", lambda: False)
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    with pytest.raises(ImageProblem, match=r"HEIC \(pip install 'hcep\[photos\]'\)"):
        open_image(tmp_path / "a.heic")


def test_files_that_are_not_used_are_counted_by_reason():
    heic = "HEIC (pip install 'hcep[photos]')"
    reasons = [heic, "image file is truncated (5 bytes not processed)", heic]
    assert not_used(reasons, 225) == f"3 of 225 files not used: 2 {heic}, 1 truncated"
    assert not_used([], 225) == ""
    named = not_used(reasons, 225, names=["a", "b", "c", "d"])
    assert named == f"3 of 225 files not used: 2 {heic}, 1 truncated; files: 'a', 'b', 'c' and 1 more"
