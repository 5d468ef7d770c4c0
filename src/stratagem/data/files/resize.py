"""Resizing of one image, with the pixels that `keras.ops.image.resize` gives on JAX.

JAX compiles a program for each size of image, 0.1 s every time, and a folder has thousands of sizes. The same sums in
NumPy take 2 ms for 500x375 pixels. They agree up to the rounding of float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(0, 1 - x)


def _cubic(x: np.ndarray) -> np.ndarray:
    near = ((1.5 * x - 2.5) * x) * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x >= 2, 0, np.where(x >= 1, far, near))


def _lanczos(x: np.ndarray, radius: int) -> np.ndarray:
    return np.where(x > radius, 0, np.sinc(x) * np.sinc(x / radius))


_KERNELS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "bilinear": (1, _triangle),
    "bicubic": (2, _cubic),
    "lanczos3": (3, functools.partial(_lanczos, radius=3)),
    "lanczos5": (5, functools.partial(_lanczos, radius=5)),
}
"""For each kind, how far a pixel reaches and the weight at each distance."""

INTERPOLATIONS = ("nearest", *_KERNELS)


def resize(image: np.ndarray, size: tuple[int, int], interpolation: str) -> np.ndarray:
    """Return an image of another size. Without antialiasing, as Keras and TensorFlow do by default.

    Args:
        image: Shape (height, width, channels), any numeric dtype.
        size: The new (height, width).
        interpolation: One of `INTERPOLATIONS`.

    Returns:
        The image as float32.
    """
    for axis in (0, 1):
        if image.shape[axis] != size[axis]:
            taps, weights = _taps(image.shape[axis], size[axis], interpolation)
            weights = weights[..., None, None] if axis == 0 else weights[:, None, :, None]
            parts = [image.take(tap, axis) * weight for tap, weight in zip(taps, weights, strict=True)]
            image = functools.reduce(np.add, parts)
    return image.astype(np.float32, copy=False)


@functools.lru_cache(maxsize=1024)
def _taps(old: int, new: int, interpolation: str) -> tuple[np.ndarray, np.ndarray]:
    """Return which pixels a new pixel is made of, and their weights; both of shape (pixels, `new`)."""
    # The centres of the new pixels in the old image, in float32 as JAX computes them.
    if interpolation == "nearest":
        index = np.floor((np.arange(new, dtype=np.float32) + np.float32(0.5)) * np.float32(old) / np.float32(new))
        return index.astype(np.intp)[None], np.ones((1, new), np.float32)
    radius, kernel = _KERNELS[interpolation]
    centres = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * (1 / np.float32(new / old)) - np.float32(0.5)
    index = np.floor(centres).astype(np.intp) + np.arange(1 - radius, 1 + radius)[:, None]
    weights = kernel(np.abs(centres - index)) * ((index >= 0) & (index < old))
    return index.clip(0, old - 1), (weights / weights.sum(axis=0)).astype(np.float32)
