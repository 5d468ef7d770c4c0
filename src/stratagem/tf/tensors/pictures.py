"""Images (`tf.image`), of shape (height, width, channels) or (rows, height, width, channels).

In functions of datasets NumPy computes: images of a thousand sizes compile nothing. Source of the semantics:
https://www.tensorflow.org/api_docs/python/tf/image
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.files.resize import resize as resized_on_host
from stratagem.program.tracing import is_traced
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.colours import convert_image_dtype, images_of
from stratagem.tf.tensors.draws import stateless_uniform, uniform
from stratagem.tf.tensors.marks import Tensor
from stratagem.tf.tensors.operation import integers, on_host, operation, refusal, tensor, xp
from stratagem.tf.tensors.reductions import reduce_mean, reduce_std


class ResizeMethod:
    """Names of the ways to resize (`tf.image.ResizeMethod`)."""

    BILINEAR: Final = "bilinear"
    NEAREST_NEIGHBOR: Final = "nearest"
    BICUBIC: Final = "bicubic"
    AREA: Final = "area"
    LANCZOS3: Final = "lanczos3"
    LANCZOS5: Final = "lanczos5"
    GAUSSIAN: Final = "gaussian"
    MITCHELLCUBIC: Final = "mitchellcubic"


_METHODS: Final = ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5")
"""Those that Keras has too."""


def _mitchell(x: np.ndarray) -> np.ndarray:
    near = ((7 / 6 * x - 2) * x) * x + 8 / 9
    far = ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x < 1, near, np.where(x < 2, far, 0))


_KERNELS: Final = {
    "gaussian": (1.5, lambda x: np.where(x < 1.5, np.exp(-2 * x * x), 0)),
    "mitchellcubic": (2.0, _mitchell),
}
"""For each other method how far it looks, and what an element at a distance counts.

Source: tensorflow/core/kernels/image/sampling_kernels.h
"""


def _shares(have: int, want: int, method: str, antialias: bool) -> np.ndarray:
    """Return the weight of each old element of an axis in each new one, of shape (have, want)."""
    scale = have / want
    first = np.arange(want) * scale
    if method == "area":
        places = np.arange(have)[:, None]
        return np.clip(np.minimum(places + 1, first + scale) - np.maximum(places, first), 0, None) / scale
    radius, kernel = _KERNELS[method]
    wide = max(scale, 1.0) if antialias else 1.0
    apart = np.abs(np.arange(have)[:, None] + 0.5 - (first + scale / 2))
    counts = np.where(apart <= radius * wide, kernel(apart / wide), 0)
    return counts / counts.sum(axis=0)


@operation
def resize(
    images: Tensor,
    size: Any,
    method: str = ResizeMethod.BILINEAR,
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
) -> Any:
    """Return images of another size (`tf.image.resize`).

    Args:
        images: One image or a batch of images, of any numeric dtype.
        size: The new (height, width).
        method: "bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area", "gaussian" or "mitchellcubic".
        preserve_aspect_ratio: Whether to keep the aspect ratio of the image, within the size.
        antialias: Whether to smooth an image that gets smaller.

    Returns:
        The images as float32; with "nearest" they keep their dtype.

    Raises:
        InputError: There is no such method, or the argument does not hold images.

    Example:
        >>> resize(np.ones((2, 2, 1), np.float32), [4, 3]).shape
        (4, 3, 1)
    """
    others = ("area", *_KERNELS)
    if method not in (*_METHODS, *others) or images.ndim not in (3, 4) or np.size(size) != 2:
        raise InputError(
            f"method is {method!r}, the shape of the images is {tuple(images.shape)}, and size is {size}.",
            f"Write one of {', '.join((*_METHODS, *others))} as method, and size as (height, width), for images "
            "of three or four axes.",
        )
    height, width = integers(size)
    if preserve_aspect_ratio:
        scale = min(height / images.shape[-3], width / images.shape[-2])
        height, width = round(images.shape[-3] * scale), round(images.shape[-2] * scale)
    made: Any
    if method in others:
        rows, columns = (
            _shares(have, want, method, antialias)
            for have, want in zip(images.shape[-3:-1], (height, width), strict=True)
        )
        kind = np.float32
        parts = (images.astype(kind), rows.astype(kind), columns.astype(kind))
        return xp(images).einsum("...hwc,hH,wW->...HWc", *parts)
    if on_host(images) and not antialias:
        batch = images if images.ndim == 4 else images[None]
        made = np.stack([resized_on_host(np.asarray(image), (height, width), method) for image in batch])
        made = made if images.ndim == 4 else made[0]
    elif (height, width) == images.shape[-3:-1]:
        made = jnp.asarray(images, jnp.float32) if jnp.issubdtype(images.dtype, jnp.integer) else jnp.asarray(images)
    else:
        made = keras.ops.image.resize(
            jnp.asarray(images, jnp.float32),
            (height, width),
            interpolation=method,
            antialias=antialias,
            data_format="channels_last",
        )
    return made.astype(images.dtype) if method == "nearest" else made


@operation
def flip_left_right(image: Any) -> Any:
    """Return images mirrored from left to right (`tf.image.flip_left_right`)."""
    x = images_of(image)
    return xp(x).flip(x, -2)


@operation
def flip_up_down(image: Any) -> Any:
    """Return images upside down (`tf.image.flip_up_down`)."""
    x = images_of(image)
    return xp(x).flip(x, -3)


@operation
def transpose(image: Any) -> Any:
    """Return images with rows and columns exchanged (`tf.image.transpose`)."""
    x = images_of(image)
    return xp(x).swapaxes(x, -3, -2)


@operation
def rot90(image: Any, k: int = 1) -> Any:
    """Return images turned by 90 degrees to the left, `k` times (`tf.image.rot90`)."""
    x = images_of(image)
    return xp(x).rot90(x, k, axes=(-3, -2))


def _sometimes(image: Any, change: Callable[[Any], Any], draws: Callable[[tuple[int, ...]], Any]) -> Any:
    x = tensor(image)
    rows = (x.shape[0], 1, 1, 1) if x.ndim == 4 else ()
    return xp(x).where(draws(rows) < 0.5, change(x), x)


@operation
def random_flip_left_right(image: Any, seed: int | None = None) -> Any:
    """Return images, each mirrored or not at random (`tf.image.random_flip_left_right`)."""
    return _sometimes(image, flip_left_right, lambda rows: uniform(rows, seed=seed))


@operation
def random_flip_up_down(image: Any, seed: int | None = None) -> Any:
    """Return images, each turned upside down or not at random (`tf.image.random_flip_up_down`)."""
    return _sometimes(image, flip_up_down, lambda rows: uniform(rows, seed=seed))


@operation
def stateless_random_flip_left_right(image: Any, seed: Any) -> Any:
    """Return images mirrored or not; a seed of two numbers decides (`tf.image.stateless_random_flip_left_right`)."""
    return _sometimes(image, flip_left_right, lambda rows: stateless_uniform(rows, seed))


@operation
def stateless_random_flip_up_down(image: Any, seed: Any) -> Any:
    """Return images upside down or not; a seed of two numbers decides (`tf.image.stateless_random_flip_up_down`)."""
    return _sometimes(image, flip_up_down, lambda rows: stateless_uniform(rows, seed))


@operation
def per_image_standardization(image: Any) -> Any:
    """Return images, each scaled to mean 0 and variance 1 (`tf.image.per_image_standardization`)."""
    x = images_of(image).astype(np.float32)
    axes = (-3, -2, -1)
    mean, spread = reduce_mean(x, axes, True), reduce_std(x, axes, True)
    least = np.float32(1 / np.sqrt(np.prod(x.shape[-3:])))
    return (x - mean) / xp(x).maximum(spread, least)


def _cut(x: Any, top: Any, left: Any, height: int, width: int) -> Any:
    if on_host(x) or not any(isinstance(start, jax.Array) for start in (top, left)):
        return x[..., int(top) : int(top) + height, int(left) : int(left) + width, :]
    starts = [0] * (x.ndim - 3) + [top, left, 0]
    return jax.lax.dynamic_slice(x, starts, (*x.shape[:-3], height, width, x.shape[-1]))


@operation
def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Any:
    """Return a part of images (`tf.image.crop_to_bounding_box`).

    Raises:
        InputError: The part does not lie within the images.
    """
    x = tensor(image)
    height, width = int(target_height), int(target_width)
    known = not any(is_traced(start) for start in (offset_height, offset_width))
    if known and not (
        0 <= offset_height <= x.shape[-3] - height and 0 <= offset_width <= x.shape[-2] - width and height and width
    ):
        raise InputError(
            f"A box of {height}x{width} at ({offset_height}, {offset_width}) was asked of an image of "
            f"{x.shape[-3]}x{x.shape[-2]}.",
            "It does not lie within the image.",
            "Correct the box, or pad the image first: tf.image.resize_with_crop_or_pad.",
        )
    return _cut(x, offset_height, offset_width, height, width)


@operation
def pad_to_bounding_box(
    image: Tensor, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Any:
    """Return images with zeros around them (`tf.image.pad_to_bounding_box`)."""
    below = int(target_height) - int(offset_height) - image.shape[-3]
    right = int(target_width) - int(offset_width) - image.shape[-2]
    widths = [(0, 0)] * (image.ndim - 3) + [(int(offset_height), below), (int(offset_width), right), (0, 0)]
    return xp(image).pad(image, widths)


@operation
def resize_with_crop_or_pad(image: Tensor, target_height: Any, target_width: Any) -> Any:
    """Return images cut or padded with zeros to a size, around the middle (`tf.image.resize_with_crop_or_pad`)."""
    height, width = int(target_height), int(target_width)
    top, left = max((image.shape[-3] - height) // 2, 0), max((image.shape[-2] - width) // 2, 0)
    image = image[..., top : top + height, left : left + width, :]
    above, before = (height - image.shape[-3]) // 2, (width - image.shape[-2]) // 2
    return pad_to_bounding_box(image, above, before, height, width)


@operation
def resize_with_pad(
    image: Tensor, target_height: Any, target_width: Any, method: str = ResizeMethod.BILINEAR, antialias: bool = False
) -> Any:
    """Return images resized with their aspect ratio, with zeros around them (`tf.image.resize_with_pad`)."""
    height, width = int(target_height), int(target_width)
    ratio = max(image.shape[-3] / height, image.shape[-2] / width)
    tall, wide = image.shape[-3] / ratio, image.shape[-2] / ratio
    small = resize(image, [int(tall), int(wide)], method, antialias=antialias)
    return pad_to_bounding_box(small, int((height - tall) / 2), int((width - wide) / 2), height, width)


@operation
def central_crop(image: Tensor, central_fraction: Any) -> Any:
    """Return the middle of images: a fraction of each side (`tf.image.central_crop`).

    Raises:
        InputError: The fraction is not between 0 and 1.
    """
    if not is_traced(central_fraction) and not 0 < central_fraction <= 1:
        raise refusal(f"central_fraction is {central_fraction}.", "Give a number above 0 and at most 1.")
    top = int((image.shape[-3] - image.shape[-3] * central_fraction) / 2)
    left = int((image.shape[-2] - image.shape[-2] * central_fraction) / 2)
    return image[..., top : image.shape[-3] - top, left : image.shape[-2] - left, :]


def _wanted(x: Any, size: Any) -> tuple[int, ...]:
    """Return the size of a part along each axis; -1 takes the whole axis.

    Raises:
        InputError: The tensor is smaller.
    """
    wanted = tuple(have if want == -1 else want for have, want in zip(x.shape, integers(size), strict=True))
    if any(have < want for have, want in zip(x.shape, wanted, strict=True)):
        raise InputError(
            f"random_crop was given size {wanted} for a tensor of shape {tuple(x.shape)}.",
            "Resize or pad the image first.",
        )
    return wanted


def _random_place(x: Any, size: tuple[int, ...], draws: Callable[[int, int], Any]) -> Any:
    starts = [draws(i, have - want + 1) for i, (have, want) in enumerate(zip(x.shape, size, strict=True))]
    if on_host(x):
        return x[tuple(slice(int(start), int(start) + want) for start, want in zip(starts, size, strict=True))]
    return jax.lax.dynamic_slice(jnp.asarray(x), starts, size)


@operation
def random_crop(value: Tensor, size: Any, seed: int | None = None) -> Any:
    """Return a random part of a tensor (`tf.image.random_crop`).

    Args:
        value: The tensor.
        size: The size of the part along each axis; -1 for the whole axis.
        seed: See `tf.random.uniform`.

    Raises:
        InputError: The tensor is smaller.
    """
    return _random_place(value, _wanted(value, size), lambda _, places: uniform([], 0, places, "int32", seed=seed))


@operation
def stateless_random_crop(value: Tensor, size: Any, seed: Any) -> Any:
    """Return a part of a tensor that a seed of two numbers chooses (`tf.image.stateless_random_crop`)."""
    first, second = np.asarray(seed).tolist()
    return _random_place(
        value, _wanted(value, size), lambda i, places: stateless_uniform([], [first + i, second], 0, places, "int32")
    )


@operation
def psnr(a: Any, b: Any, max_val: Any) -> Any:
    """Return the peak signal-to-noise ratio of images, in decibels (`tf.image.psnr`)."""
    x, y = (convert_image_dtype(tensor(value), "float32") for value in (a, b))
    peak = max_val / 255 if as_dtype(tensor(a).dtype).is_integer else max_val
    error = jnp.mean(jnp.square(jnp.asarray(x) - jnp.asarray(y)), axis=(-3, -2, -1))
    return 20 * jnp.log10(jnp.asarray(peak, jnp.float32)) - 10 * jnp.log10(error)


@operation
def total_variation(images: Tensor) -> Any:
    """Return the sums of differences of neighbouring pixels (`tf.image.total_variation`)."""
    numpy = xp(images)
    down = numpy.abs(images[..., 1:, :, :] - images[..., :-1, :, :]).sum(axis=(-3, -2, -1))
    across = numpy.abs(images[..., :, 1:, :] - images[..., :, :-1, :]).sum(axis=(-3, -2, -1))
    return down + across


@operation
def image_gradients(image: Tensor) -> Any:
    """Return the difference of each pixel to the one below and to the one on the right (`tf.image.image_gradients`).

    Raises:
        InputError: The argument is not a batch of images.
    """
    if image.ndim != 4:
        raise refusal(f"Images of shape {tuple(image.shape)} were given.", "Give (rows, height, width, channels).")
    numpy = xp(image)
    down, across = image[:, 1:] - image[:, :-1], image[:, :, 1:] - image[:, :, :-1]
    last = ((0, 0), (0, 1), (0, 0), (0, 0)), ((0, 0), (0, 0), (0, 1), (0, 0))
    return numpy.pad(down, last[0]), numpy.pad(across, last[1])


@operation
def sobel_edges(image: Tensor) -> Any:
    """Return the vertical and horizontal edges of images, on a new last axis (`tf.image.sobel_edges`)."""
    wide = xp(image).pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
    tall, long = image.shape[1:3]
    parts = [[wide[:, i : i + tall, j : j + long] for j in range(3)] for i in range(3)]
    down = sum(weight * (parts[2][j] - parts[0][j]) for j, weight in enumerate((1, 2, 1)))
    across = sum(weight * (parts[i][2] - parts[i][0]) for i, weight in enumerate((1, 2, 1)))
    return xp(image).stack([down, across], -1)


@operation
def extract_patches(images: Any, sizes: Any, strides: Any, rates: Any, padding: str) -> Any:
    """Return the windows of images, each as one row of channels (`tf.image.extract_patches`).

    Args:
        images: Shape (rows, height, width, channels).
        sizes: The size of the windows: [1, height, width, 1].
        strides: The distance between windows: [1, down, across, 1].
        rates: The distance between pixels of a window: [1, down, across, 1].
        padding: "SAME" or "VALID".
    """
    x = tensor(images)
    (tall, wide), (down, across), (far, apart) = (integers(each)[1:3] for each in (sizes, strides, rates))
    reach = [(tall - 1) * far + 1, (wide - 1) * apart + 1]
    pads = jax.lax.padtype_to_pads(x.shape[1:3], reach, (down, across), padding.upper())
    x = xp(x).pad(x, ((0, 0), *pads, (0, 0)))
    high, long = ((n - r) // s + 1 for n, r, s in zip(x.shape[1:3], reach, (down, across), strict=True))
    parts = [
        x[:, i : i + (high - 1) * down + 1 : down, j : j + (long - 1) * across + 1 : across]
        for i in range(0, tall * far, far)
        for j in range(0, wide * apart, apart)
    ]
    return xp(x).concatenate(parts, -1)
