"""Images as bytes (`tf.io.encode_jpeg`, ...), through Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from stratagem.core import optional
from stratagem.core.eager import EagerText
from stratagem.core.errors import InputError
from stratagem.data.files.decode import decode_image


def encode_jpeg(image: Any, format: str = "", quality: int = 95, **tuning: Any) -> EagerText:
    """Return an image as a JPEG file (`tf.io.encode_jpeg`).

    Args:
        image: uint8, of shape (height, width, 1 or 3).
        format: "grayscale", "rgb", or "" to choose by the number of channels.
        quality: 0 to 100.
        tuning: TensorFlow's other arguments; they have no effect.

    Raises:
        InputError: The image has another dtype or shape.

    Example:
        >>> is_jpeg(encode_jpeg(np.zeros((2, 2, 3), np.uint8)))
        True
    """
    return _encoded(image, "JPEG", (1, 3), quality=quality)


def encode_png(image: Any, compression: int = -1, name: str | None = None) -> EagerText:
    """Return an image as a PNG file (`tf.io.encode_png`).

    Args:
        image: uint8, of shape (height, width, 1, 3 or 4).
        compression: 0 to 9, -1 for zlib's default.
        name: Accepted as in TensorFlow.

    Raises:
        InputError: The image has another dtype or shape.

    Example:
        >>> decode_image(encode_png(np.full((1, 1, 3), 7, np.uint8))).tolist()
        [[[7, 7, 7]]]
    """
    return _encoded(image, "PNG", (1, 3, 4), **({} if compression < 0 else {"compress_level": compression}))


def decode_bmp(contents: Any, channels: int = 0, name: str | None = None) -> np.ndarray:
    """Return the pixels of a BMP image, of shape (height, width, channels) (`tf.io.decode_bmp`)."""
    return decode_image(contents, channels, expand_animations=False)


def decode_gif(contents: Any, name: str | None = None) -> np.ndarray:
    """Return the pixels of a GIF, of shape (frames, height, width, 3) (`tf.io.decode_gif`)."""
    return decode_image(contents, 3)


def is_jpeg(contents: Any, name: str | None = None) -> bool:
    r"""Return whether bytes begin as a JPEG file does (`tf.io.is_jpeg`).

    Example:
        >>> is_jpeg(b"\xff\xd8\xff\xe0"), is_jpeg(b"\x89PNG")
        (True, False)
    """
    return bytes(np.asarray(contents, object).item()[:3]) == b"\xff\xd8\xff"


def extract_jpeg_shape(contents: Any, output_type: Any = np.int32, name: str | None = None) -> np.ndarray:
    """Return height, width and channels of a JPEG file (`tf.io.extract_jpeg_shape`).

    Example:
        >>> extract_jpeg_shape(encode_jpeg(np.zeros((2, 5, 3), np.uint8))).tolist()
        [2, 5, 3]
    """
    return np.array(decode_image(contents).shape, getattr(output_type, "as_numpy_dtype", output_type))


def _encoded(image: Any, format: str, channels: tuple[int, ...], **options: Any) -> EagerText:
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[-1] not in channels:
        raise InputError(
            f"An image of shape {pixels.shape} and dtype {pixels.dtype} cannot be written as a {format} file.",
            f"Such a file holds uint8 pixels of shape (height, width, {' or '.join(map(str, channels))}).",
            "Convert values from 0 to 1 with tf.cast(tf.clip_by_value(image * 255, 0, 255), tf.uint8).",
        )
    stream = io.BytesIO()
    pillow = optional.load("PIL.Image", "files", f"Writing a {format} file")
    pillow.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(stream, format, **options)
    return EagerText(stream.getvalue())
