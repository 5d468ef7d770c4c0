"""Numbers and images from bytes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset
from stratagem.data.structure import objects
from stratagem.io import decode_image, decode_jpeg, decode_png, decode_raw, read_file


def encoded(pixels: np.ndarray, kind: str, mode: str | None = None) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(pixels, mode).save(file, kind)
    return file.getvalue()


COLOURS = np.random.default_rng(0).integers(0, 256, (5, 7, 4), np.uint8)


def test_the_contents_of_files(tmp_path: Path) -> None:
    (tmp_path / "größe 1").write_bytes(b"\0one\0")
    files = Dataset.list_files(tmp_path / "*")
    assert list(files.map(read_file).as_numpy_iterator()) == [b"\0one\0"]
    assert [read_file(name) for name in files] == [b"\0one\0"]
    with pytest.raises(InputError, match=r"none cannot be read: No such file"):
        read_file(tmp_path / "none")


def test_numbers() -> None:
    assert decode_raw(b"\1\0\2\0", "uint16").tolist() == [1, 2]
    assert decode_raw(b"\1\0\2\0", np.uint16, little_endian=False).tolist() == [256, 512]
    batch = decode_raw(objects([b"\1\0", b"\2\0"]), "uint8")
    assert (batch.tolist(), batch.dtype, batch.flags.writeable) == ([[1, 0], [2, 0]], np.uint8, True)
    with pytest.raises(InputError, match="decode_raw cannot read int32 numbers of 4 bytes"):
        decode_raw(b"abcde", "int32")
    with pytest.raises(InputError, match="decode_raw cannot read uint8"):
        decode_raw(objects([b"a", b"bc"]), "uint8")


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_keeps_its_channels(channels: int) -> None:
    pixels = COLOURS[..., 0] if channels == 1 else COLOURS[..., :channels]
    for contents in (encoded(pixels, "PNG"), np.array(encoded(pixels, "PNG"), object)):
        found = decode_png(contents)
        assert (found.shape, found.dtype, found.flags.writeable) == ((5, 7, channels), np.uint8, True)
        assert found.tolist() == pixels.reshape(5, 7, channels).tolist()


def test_channels_and_dtype_as_asked_for() -> None:
    png = encoded(COLOURS[..., 0], "PNG")
    assert decode_png(png, channels=3).tolist() == np.repeat(COLOURS[..., :1], 3, axis=-1).tolist()
    assert decode_png(encoded(COLOURS, "PNG"), channels=3).tolist() == COLOURS[..., :3].tolist()
    scaled = decode_image(png, dtype="float32")
    assert scaled.dtype == np.float32
    assert scaled.tolist() == (COLOURS[..., :1] / np.float32(255)).tolist()


def test_jpeg() -> None:
    grey = np.full((16, 16), 100, np.uint8)
    assert decode_jpeg(encoded(grey, "JPEG")).tolist() == grey[..., None].tolist()
    assert decode_jpeg(encoded(grey, "JPEG"), channels=3).shape == (16, 16, 3)


def test_gif_has_frames() -> None:
    file = io.BytesIO()
    frames = [PIL.Image.new("RGB", (4, 3), colour) for colour in ("red", "blue")]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    found = decode_image(file.getvalue())
    assert (found.shape, found[:, 0, 0].tolist()) == ((2, 3, 4, 3), [[255, 0, 0], [0, 0, 255]])
    assert decode_image(file.getvalue(), expand_animations=False).shape == (3, 4, 3)


def test_what_is_no_image() -> None:
    png = encoded(COLOURS, "PNG")
    with pytest.raises(InputError, match=r"Bytes that begin with b'\\x89PNG.* are not an image, or a damaged one"):
        decode_png(png[: len(png) // 2])
    with pytest.raises(InputError, match="Bytes that begin with b'garbage' are not an image"):
        decode_image(b"garbage")
    with pytest.raises(InputError, match="channels=2 and dtype=uint8"):
        decode_image(png, channels=2)
    with pytest.raises(InputError, match="dtype=int64"):
        decode_image(png, dtype="int64")
