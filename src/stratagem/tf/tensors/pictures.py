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

from stratagem.core.errors import InputError, explain
from stratagem.data.files.resize import resize as resized_on_host
from stratagem.replica.tracing import is_traced
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.draws import stateless_uniform, uniform
from stratagem.tf.tensors.operation import held, integers, on_host, operation, refusal, tensor, xp
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
    """Return what each element of an axis counts in each new one, of shape (have, want)."""
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
    images: Any,
    size: Any,
    method: str = ResizeMethod.BILINEAR,
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> Any:
    """Return images of another size (`tf.image.resize`).

    Args:
        images: One image or a batch of any numeric dtype.
        size: The new (height, width).
        method: "bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area", "gaussian" or "mitchellcubic".
        preserve_aspect_ratio: Whether to keep the shape of the picture, within the size.
        antialias: Whether to smooth when an image gets smaller.
        name: No effect.

    Returns:
        The images as float32; of the dtype they had with "nearest".

    Raises:
        InputError: There is no such method, or these are no images.

    Example:
        >>> resize(np.ones((2, 2, 1), np.float32), [4, 3]).shape
        (4, 3, 1)
    """
    x = tensor(images)
    others = ("area", *_KERNELS)
    if method not in (*_METHODS, *others) or x.ndim not in (3, 4) or np.size(size) != 2:
        raise InputError(
            explain(
                f"method is {method!r}, the images' shape {tuple(x.shape)}, the size {size}.",
                "Images could not be resized in this way.",
                f"Write one of {', '.join((*_METHODS, *others))}, and (height, width) for images.",
            )
        )
    height, width = integers(size)
    if preserve_aspect_ratio:
        scale = min(height / x.shape[-3], width / x.shape[-2])
        height, width = round(x.shape[-3] * scale), round(x.shape[-2] * scale)
    made: Any
    if method in others:
        rows, columns = (
            _shares(have, want, method, antialias) for have, want in zip(x.shape[-3:-1], (height, width), strict=True)
        )
        kind = np.float32
        parts = (x.astype(kind), rows.astype(kind), columns.astype(kind))
        return xp(x).einsum("...hwc,hH,wW->...HWc", *parts)
    if on_host(x) and not antialias:
        batch = x if x.ndim == 4 else x[None]
        made = np.stack([resized_on_host(np.asarray(image), (height, width), method) for image in batch])
        made = made if x.ndim == 4 else made[0]
    elif (height, width) == x.shape[-3:-1]:
        made = jnp.asarray(x, jnp.float32) if jnp.issubdtype(x.dtype, jnp.integer) else jnp.asarray(x)
    else:
        made = keras.ops.image.resize(
            jnp.asarray(x, jnp.float32),
            (height, width),
            interpolation=method,
            antialias=antialias,
            data_format="channels_last",
        )
    return made.astype(x.dtype) if method == "nearest" else made


@operation
def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> Any:
    """Return an image of another dtype, its values scaled: whole numbers to their bounds, others to 0 to 1.

    (`tf.image.convert_image_dtype`)

    Example:
        >>> convert_image_dtype(np.array([0, 255], np.uint8), "float32").tolist()
        [0.0, 1.0]
    """
    x, kind = tensor(image), as_dtype(dtype)
    own = as_dtype(x.dtype)
    if own == kind:
        return x
    numpy = xp(x)
    if own.is_integer and kind.is_integer:
        if own.max > kind.max:
            return (x // ((own.max + 1) // (kind.max + 1))).astype(held(kind))
        return x.astype(held(kind)) * ((kind.max + 1) // (own.max + 1))
    if kind.is_floating:
        made = x.astype(held(kind))
        return made * made.dtype.type(1.0 / own.max) if own.is_integer else made
    scaled = x * (kind.max + 0.5)
    return numpy.clip(scaled, kind.min, kind.max).astype(held(kind)) if saturate else scaled.astype(held(kind))


def _images(value: Any, channels: int | None = None) -> Any:
    x = tensor(value)
    if x.ndim not in (3, 4) or channels not in (None, x.shape[-1]):
        raise refusal(
            f"Images of shape {tuple(x.shape)} were given.",
            f"Give (height, width, {channels or 'channels'}), or a batch of them.",
        )
    return x


@operation
def flip_left_right(image: Any) -> Any:
    """Return images as in a mirror (`tf.image.flip_left_right`)."""
    x = _images(image)
    return xp(x).flip(x, -2)


@operation
def flip_up_down(image: Any) -> Any:
    """Return images upside down (`tf.image.flip_up_down`)."""
    x = _images(image)
    return xp(x).flip(x, -3)


@operation
def transpose(image: Any, name: str | None = None) -> Any:
    """Return images with rows for columns (`tf.image.transpose`)."""
    x = _images(image)
    return xp(x).swapaxes(x, -3, -2)


@operation
def rot90(image: Any, k: int = 1, name: str | None = None) -> Any:
    """Return images turned by 90 degrees to the left, `k` times (`tf.image.rot90`)."""
    x = _images(image)
    return xp(x).rot90(x, k, axes=(-3, -2))


def _sometimes(image: Any, change: Callable[[Any], Any], draws: Callable[[tuple[int, ...]], Any]) -> Any:
    x = tensor(image)
    rows = (x.shape[0], 1, 1, 1) if x.ndim == 4 else ()
    return xp(x).where(draws(rows) < 0.5, change(x), x)


@operation
def random_flip_left_right(image: Any, seed: int | None = None) -> Any:
    """Return images, each of them mirrored or not (`tf.image.random_flip_left_right`)."""
    return _sometimes(image, flip_left_right, lambda rows: uniform(rows, seed=seed))


@operation
def random_flip_up_down(image: Any, seed: int | None = None) -> Any:
    """Return images, each of them upside down or not (`tf.image.random_flip_up_down`)."""
    return _sometimes(image, flip_up_down, lambda rows: uniform(rows, seed=seed))


@operation
def stateless_random_flip_left_right(image: Any, seed: Any) -> Any:
    """Return images mirrored or not, as a seed of two numbers says (`tf.image.stateless_random_flip_left_right`)."""
    return _sometimes(image, flip_left_right, lambda rows: stateless_uniform(rows, seed))


@operation
def stateless_random_flip_up_down(image: Any, seed: Any) -> Any:
    """Return images upside down or not, as a seed of two numbers says (`tf.image.stateless_random_flip_up_down`)."""
    return _sometimes(image, flip_up_down, lambda rows: stateless_uniform(rows, seed))


@operation
def per_image_standardization(image: Any) -> Any:
    """Return images of mean 0 and variance 1, each by itself (`tf.image.per_image_standardization`)."""
    x = _images(image).astype(np.float32)
    axes = (-3, -2, -1)
    mean, spread = reduce_mean(x, axes, True), reduce_std(x, axes, True)
    least = np.float32(1 / np.sqrt(np.prod(x.shape[-3:])))
    return (x - mean) / xp(x).maximum(spread, least)


def _in_floats(image: Any, change: Callable[[Any], Any]) -> Any:
    """Change an image whose whole numbers stand for 0 to 1, and give it back in its own dtype."""
    x = tensor(image)
    made = change(convert_image_dtype(x, "float32") if as_dtype(x.dtype).is_integer else x)
    return convert_image_dtype(made, as_dtype(x.dtype), saturate=True)


@operation
def adjust_brightness(image: Any, delta: Any) -> Any:
    """Return images with a number added, in units of the full range (`tf.image.adjust_brightness`)."""
    return _in_floats(image, lambda x: x + xp(x).asarray(delta, x.dtype))


@operation
def adjust_contrast(images: Any, contrast_factor: Any) -> Any:
    """Return images with each channel's distance from its mean times a factor (`tf.image.adjust_contrast`)."""

    def change(x: Any) -> Any:
        mean = xp(x).mean(x, axis=(-3, -2), keepdims=True)
        return (x - mean) * xp(x).asarray(contrast_factor, x.dtype) + mean

    return _in_floats(images, change)


@operation
def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Any:
    """Return gain times images to the power gamma (`tf.image.adjust_gamma`).

    Raises:
        InputError: gamma is negative.
    """
    if not is_traced(gamma) and gamma < 0:
        raise refusal(f"gamma is {gamma}.", "Give a number from 0.")
    return _in_floats(image, lambda x: x**gamma * gain)


@operation
def rgb_to_grayscale(images: Any, name: str | None = None) -> Any:
    """Return images of one channel (`tf.image.rgb_to_grayscale`)."""

    def change(x: Any) -> Any:
        return xp(x).sum(x * np.array([0.2989, 0.587, 0.114], x.dtype), axis=-1, keepdims=True)

    return _in_floats(_images(images, 3), change)


@operation
def grayscale_to_rgb(images: Any, name: str | None = None) -> Any:
    """Return images of three equal channels (`tf.image.grayscale_to_rgb`)."""
    x = _images(images, 1)
    return xp(x).repeat(x, 3, axis=-1)


@operation
def rgb_to_hsv(images: Any, name: str | None = None) -> Any:
    """Return hue, saturation and value, all from 0 to 1 (`tf.image.rgb_to_hsv`)."""
    x = tensor(images)
    numpy = xp(x)
    red, green, blue = (x[..., i] for i in range(3))
    # Of equal colours the first is the greatest and the last the least, so that one of them has the derivative.
    most_red, most_green = (red >= green) & (red >= blue), (green > red) & (green >= blue)
    value = numpy.where(most_red, red, numpy.where(most_green, green, blue))
    least_red, least_green = (red < green) & (red < blue), (green <= red) & (green < blue)
    spread = value - numpy.where(least_red, red, numpy.where(least_green, green, blue))
    safe = numpy.where(spread > 0, spread, numpy.ones_like(spread))
    apart = numpy.where(most_red, green - blue, numpy.where(most_green, blue - red, red - green))
    hue = apart / safe + numpy.where(most_red, 0, numpy.where(most_green, 2, 4))
    hue = numpy.where(spread > 0, (hue / 6) % 1, numpy.zeros_like(hue))
    some = numpy.where(value > 0, value, numpy.ones_like(value))
    saturation = numpy.where(value > 0, spread / some, numpy.zeros_like(spread))
    return numpy.stack([hue, saturation, value], axis=-1).astype(x.dtype)


@operation
def hsv_to_rgb(images: Any, name: str | None = None) -> Any:
    """Return red, green and blue of hue, saturation and value (`tf.image.hsv_to_rgb`)."""
    x = tensor(images)
    numpy = xp(x)
    hue, saturation, value = (x[..., i] for i in range(3))
    around = numpy.stack([numpy.abs(hue * 6 - 3) - 1, 2 - numpy.abs(hue * 6 - 2), 2 - numpy.abs(hue * 6 - 4)], axis=-1)
    colour = numpy.clip(around, 0, 1)
    return (((colour - 1) * saturation[..., None] + 1) * value[..., None]).astype(x.dtype)


@operation
def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Any:
    """Return images with a number from -1 to 1 added to their hue (`tf.image.adjust_hue`).

    Raises:
        InputError: It is another.
    """
    if not is_traced(delta) and not -1 <= delta <= 1:
        raise refusal(f"delta is {delta}.", "Give a number from -1 to 1.")

    def change(x: Any) -> Any:
        hsv = rgb_to_hsv(x)
        hue = (hsv[..., :1] + delta) % 1
        return hsv_to_rgb(xp(x).concatenate([hue, hsv[..., 1:]], -1).astype(x.dtype))

    return _in_floats(image, change)


@operation
def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Any:
    """Return images with their saturation times a factor (`tf.image.adjust_saturation`)."""

    def change(x: Any) -> Any:
        hsv = rgb_to_hsv(x)
        saturation = xp(x).clip(hsv[..., 1:2] * saturation_factor, 0, 1)
        return hsv_to_rgb(xp(x).concatenate([hsv[..., :1], saturation, hsv[..., 2:]], -1).astype(x.dtype))

    return _in_floats(image, change)


def _most(max_delta: Any, limit: float = np.inf) -> Any:
    if not 0 <= max_delta <= limit:
        raise refusal(f"max_delta is {max_delta}.", f"Give a number from 0{'' if np.isinf(limit) else f' to {limit}'}.")
    return max_delta


def _between(lower: Any, upper: Any) -> tuple[Any, Any]:
    if not 0 <= lower < upper:
        raise refusal(f"The factors lie between {lower} and {upper}.", "Give 0 <= lower < upper.")
    return lower, upper


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """Return images with up to `max_delta` added or taken away (`tf.image.random_brightness`)."""
    return adjust_brightness(image, uniform([], -_most(max_delta), max_delta, seed=seed))


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Any:
    """Return images of a contrast drawn between two factors (`tf.image.random_contrast`)."""
    return adjust_contrast(image, uniform([], *_between(lower, upper), seed=seed))


def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """Return images of a hue drawn up to `max_delta`, at most 0.5, away (`tf.image.random_hue`)."""
    return adjust_hue(image, uniform([], -_most(max_delta, 0.5), max_delta, seed=seed))


def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Any:
    """Return images of a saturation drawn between two factors (`tf.image.random_saturation`)."""
    return adjust_saturation(image, uniform([], *_between(lower, upper), seed=seed))


def stateless_random_brightness(image: Any, max_delta: float, seed: Any) -> Any:
    """Return images brighter or darker, as a seed of two numbers says (`tf.image.stateless_random_brightness`)."""
    return adjust_brightness(image, stateless_uniform([], seed, -_most(max_delta), max_delta))


def stateless_random_contrast(image: Any, lower: float, upper: float, seed: Any) -> Any:
    """Return images of another contrast, as a seed of two numbers says (`tf.image.stateless_random_contrast`)."""
    return adjust_contrast(image, stateless_uniform([], seed, *_between(lower, upper)))


def stateless_random_hue(image: Any, max_delta: float, seed: Any) -> Any:
    """Return images of another hue, as a seed of two numbers says (`tf.image.stateless_random_hue`)."""
    return adjust_hue(image, stateless_uniform([], seed, -_most(max_delta, 0.5), max_delta))


def stateless_random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    """Return images of another saturation, as a seed of two numbers says (`tf.image.stateless_random_saturation`)."""
    return adjust_saturation(image, stateless_uniform([], seed, *_between(lower, upper)))


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
        InputError: It does not lie within the images.
    """
    x = tensor(image)
    height, width = int(target_height), int(target_width)
    known = not any(is_traced(start) for start in (offset_height, offset_width))
    if known and not (
        0 <= offset_height <= x.shape[-3] - height and 0 <= offset_width <= x.shape[-2] - width and height and width
    ):
        raise InputError(
            explain(
                f"A box of {height}x{width} at ({offset_height}, {offset_width}) was asked of an image of "
                f"{x.shape[-3]}x{x.shape[-2]}.",
                "It does not lie within the image.",
                "Correct the box, or pad the image first: tf.image.resize_with_crop_or_pad.",
            )
        )
    return _cut(x, offset_height, offset_width, height, width)


@operation
def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Any:
    """Return images with zeros around them (`tf.image.pad_to_bounding_box`)."""
    x = tensor(image)
    below = int(target_height) - int(offset_height) - x.shape[-3]
    right = int(target_width) - int(offset_width) - x.shape[-2]
    widths = [(0, 0)] * (x.ndim - 3) + [(int(offset_height), below), (int(offset_width), right), (0, 0)]
    return xp(x).pad(x, widths)


@operation
def resize_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Any:
    """Return the middle of images, or images in the middle of zeros (`tf.image.resize_with_crop_or_pad`)."""
    x = tensor(image)
    height, width = int(target_height), int(target_width)
    top, left = max((x.shape[-3] - height) // 2, 0), max((x.shape[-2] - width) // 2, 0)
    x = x[..., top : top + height, left : left + width, :]
    above, before = (height - x.shape[-3]) // 2, (width - x.shape[-2]) // 2
    return pad_to_bounding_box(x, above, before, height, width)


@operation
def resize_with_pad(
    image: Any, target_height: Any, target_width: Any, method: str = ResizeMethod.BILINEAR, antialias: bool = False
) -> Any:
    """Return images resized as they are shaped, with zeros around them (`tf.image.resize_with_pad`)."""
    x = tensor(image)
    height, width = int(target_height), int(target_width)
    ratio = max(x.shape[-3] / height, x.shape[-2] / width)
    tall, wide = x.shape[-3] / ratio, x.shape[-2] / ratio
    small = resize(x, [int(tall), int(wide)], method, antialias=antialias)
    return pad_to_bounding_box(small, int((height - tall) / 2), int((width - wide) / 2), height, width)


@operation
def central_crop(image: Any, central_fraction: Any) -> Any:
    """Return the middle of images, a part of each side (`tf.image.central_crop`).

    Raises:
        InputError: The part is not between 0 and 1.
    """
    x = tensor(image)
    if not is_traced(central_fraction) and not 0 < central_fraction <= 1:
        raise refusal(f"central_fraction is {central_fraction}.", "Give a number above 0, at most 1.")
    top = int((x.shape[-3] - x.shape[-3] * central_fraction) / 2)
    left = int((x.shape[-2] - x.shape[-2] * central_fraction) / 2)
    return x[..., top : x.shape[-3] - top, left : x.shape[-2] - left, :]


def _random_place(x: Any, size: tuple[int, ...], draws: Callable[[int, int], Any]) -> Any:
    starts = [draws(i, have - want + 1) for i, (have, want) in enumerate(zip(x.shape, size, strict=True))]
    if on_host(x):
        return x[tuple(slice(int(start), int(start) + want) for start, want in zip(starts, size, strict=True))]
    return jax.lax.dynamic_slice(jnp.asarray(x), starts, size)


@operation
def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Any:
    """Return a part of a tensor, drawn (`tf.image.random_crop`).

    Args:
        value: The tensor.
        size: The size of the part along each axis; -1 for all of it.
        seed: See `tf.random.uniform`.
        name: No effect.

    Raises:
        InputError: The tensor is smaller.
    """
    x = tensor(value)
    wanted = tuple(have if want == -1 else want for have, want in zip(x.shape, integers(size), strict=True))
    if any(have < want for have, want in zip(x.shape, wanted, strict=True)):
        raise InputError(
            explain(
                f"random_crop was asked for {wanted} of a tensor of shape {tuple(x.shape)}.",
                "The part would be greater than the whole.",
                "Resize or pad the image first.",
            )
        )
    return _random_place(x, wanted, lambda _, places: uniform([], 0, places, "int32", seed=seed))


@operation
def stateless_random_crop(value: Any, size: Any, seed: Any, name: str | None = None) -> Any:
    """Return a part of a tensor that a seed of two numbers chooses (`tf.image.stateless_random_crop`)."""
    x = tensor(value)
    first, second = np.asarray(seed).tolist()
    wanted = tuple(have if want == -1 else want for have, want in zip(x.shape, integers(size), strict=True))
    return _random_place(x, wanted, lambda i, places: stateless_uniform([], [first + i, second], 0, places, "int32"))


@operation
def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Any:
    """Return the peak signal-to-noise ratio of images, in decibels (`tf.image.psnr`)."""
    x, y = (convert_image_dtype(tensor(value), "float32") for value in (a, b))
    peak = max_val / 255 if as_dtype(tensor(a).dtype).is_integer else max_val
    error = jnp.mean(jnp.square(jnp.asarray(x) - jnp.asarray(y)), axis=(-3, -2, -1))
    return 20 * jnp.log10(jnp.asarray(peak, jnp.float32)) - 10 * jnp.log10(error)


@operation
def total_variation(images: Any, name: str | None = None) -> Any:
    """Return the sums of differences of neighbouring pixels (`tf.image.total_variation`)."""
    x = tensor(images)
    numpy = xp(x)
    down = numpy.abs(x[..., 1:, :, :] - x[..., :-1, :, :]).sum(axis=(-3, -2, -1))
    across = numpy.abs(x[..., :, 1:, :] - x[..., :, :-1, :]).sum(axis=(-3, -2, -1))
    return down + across
