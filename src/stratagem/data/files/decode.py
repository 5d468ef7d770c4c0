"""Files, and arrays from encoded bytes (`tf.io.read_file`, `tf.io.decode_jpeg`, ...). Images through Pillow."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from stratagem.core import optional
from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.data.files.byte_file import unreadable
from stratagem.data.files.names import paths_of

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's names for the numbers of channels."""

_NATURAL = {"1": "L", "L": "L", "LA": "LA", "RGBA": "RGBA"}
"""Modes that an image keeps, under the name they get; all others become RGB."""


def read_file(filename: Any) -> bytes:
    """Return the contents of a file (`tf.io.read_file`).

    Args:
        filename: A str, bytes, path, or an element of `Dataset.list_files`.

    Raises:
        InputError: The file cannot be read.

    Example:
        >>> read_file("/dev/null")
        b''
    """
    (path,) = paths_of(filename)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


def decode_raw(input_bytes: Any, out_type: Any, little_endian: bool = True) -> np.ndarray:
    r"""Return the numbers in bytes (`tf.io.decode_raw`).

    Args:
        input_bytes: Bytes, or an array of shape (...) of bytes of equal length.
        out_type: The dtype of the numbers.
        little_endian: Whether the lowest byte of a number comes first.

    Returns:
        An array of shape (..., n).

    Raises:
        InputError: The bytes do not divide into such numbers, or differ in length.

    Example:
        >>> decode_raw(b"\x01\x00\x02\x00", "int16")
        EagerArray([1, 2], dtype=int16)
    """
    dtype = np.dtype(getattr(out_type, "as_numpy_dtype", out_type))
    stored = dtype.newbyteorder("<" if little_endian else ">")
    items = np.asarray(input_bytes, object)
    try:
        rows = [np.frombuffer(item, stored) for item in items.flat]
        return np.array(rows, dtype).reshape(*items.shape, -1).view(EagerArray)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"decode_raw cannot read {dtype} numbers of {dtype.itemsize} bytes: {error}.",
            "Correct out_type. If elements differ in length, decode them one by one, before batch().",
        ) from None


def decode_image(
    contents: Any, channels: int | None = None, dtype: Any = np.uint8, expand_animations: bool = True
) -> np.ndarray:
    r"""Return the pixels of an image in any format of Pillow, such as JPEG, PNG, GIF, BMP (`tf.io.decode_image`).

    Args:
        contents: The bytes of the file.
        channels: 1 for grey, 3 for colour, 4 for colour and opacity; None and 0 keep the channels of the image.
        dtype: uint8; or float32, from 0 to 1.
        expand_animations: Whether a GIF has an axis for its frames, even if it has only one frame.

    Returns:
        An array of shape (height, width, channels), or (frames, height, width, channels).

    Raises:
        InputError: The bytes are not an image, the image is damaged, or an argument has another value.

    Example:
        >>> decode_image(b"P5 2 1 255 \x07\x09").tolist()
        [[[7], [9]]]
    """
    dtype = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if channels not in (None, 0, 1, 3, 4) or dtype not in (np.uint8, np.float32):
        raise InputError(
            f"An image is decoded with channels={channels!r} and dtype={dtype}.",
            "Write channels=0, 1, 3 or 4, and dtype uint8 or float32.",
        )
    content = contents if isinstance(contents, bytes) else np.asarray(contents).item()
    pillow = optional.load("PIL.Image", "files", "decode_image")
    try:
        with pillow.open(io.BytesIO(content)) as image:
            if image.format == "GIF" and expand_animations:
                pixels = np.stack([_pixels(image, channels or 3, frame) for frame in range(image.n_frames)])
            else:
                pixels = _pixels(image, channels)
    except (OSError, SyntaxError, TypeError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        raise InputError(
            f"Bytes that begin with {content[:8]!r} are not an image, or a damaged one: {error}.",
            "Give the whole contents of an image file.",
        ) from None
    return (pixels if dtype == np.uint8 else pixels.astype(np.float32) / np.float32(255)).view(EagerArray)


def _pixels(image: Any, channels: int | None, frame: int = 0) -> np.ndarray:
    if frame:
        image.seek(frame)
    mode = MODES[channels] if channels else _NATURAL.get(image.mode, "RGB")
    pixels = np.array(image if image.mode == mode else image.convert(mode))
    return pixels.reshape(*pixels.shape[:2], -1)


def decode_jpeg(contents: Any, channels: int = 0) -> np.ndarray:
    """Return the pixels of a JPEG image (`tf.io.decode_jpeg`). As in TensorFlow, other formats are read too.

    Args:
        contents: The bytes of the file.
        channels: 1 for grey, 3 for colour, 0 keeps the channels of the image.

    Returns:
        A uint8 array of shape (height, width, channels).

    Raises:
        InputError: The bytes are not an image, the image is damaged, or `channels` has another value.
    """
    return decode_image(contents, channels, expand_animations=False)


def decode_png(contents: Any, channels: int = 0) -> np.ndarray:
    """Return the pixels of a PNG image with 8 bits a channel (`tf.io.decode_png`).

    Args:
        contents: The bytes of the file.
        channels: 1 for grey, 3 for colour, 4 for colour and opacity, 0 keeps the channels of the image.

    Returns:
        A uint8 array of shape (height, width, channels).

    Raises:
        InputError: The bytes are not an image, the image is damaged, or `channels` has another value.
    """
    return decode_image(contents, channels, expand_animations=False)
