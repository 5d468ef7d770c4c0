"""Colours of images (`tf.image`), of shape (height, width, channels) or (rows, height, width, channels).

Integer images represent values from 0 to 1. Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/image
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from stratagem.program.tracing import is_traced
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.draws import stateless_uniform, uniform
from stratagem.tf.tensors.marks import Tensor
from stratagem.tf.tensors.operation import held, operation, refusal, tensor, xp


@operation
def convert_image_dtype(image: Tensor, dtype: Any, saturate: bool = False) -> Any:
    """Return an image of another dtype with scaled values: integers use their full range, others 0 to 1.

    (`tf.image.convert_image_dtype`)

    Example:
        >>> convert_image_dtype(np.array([0, 255], np.uint8), "float32").tolist()
        [0.0, 1.0]
    """
    kind = as_dtype(dtype)
    own = as_dtype(image.dtype)
    if own == kind:
        return image
    numpy = xp(image)
    if own.is_integer and kind.is_integer:
        if own.max > kind.max:
            return (image // ((own.max + 1) // (kind.max + 1))).astype(held(kind))
        return image.astype(held(kind)) * ((kind.max + 1) // (own.max + 1))
    if kind.is_floating:
        made = image.astype(held(kind))
        return made * made.dtype.type(1.0 / own.max) if own.is_integer else made
    scaled = image * (kind.max + 0.5)
    return numpy.clip(scaled, kind.min, kind.max).astype(held(kind)) if saturate else scaled.astype(held(kind))


def images_of(value: Any, channels: int | None = None) -> Any:
    """Return a tensor that holds one image or a batch of images, with a number of channels.

    Raises:
        InputError: The tensor has another shape.
    """
    x = tensor(value)
    if x.ndim not in (3, 4) or channels not in (None, x.shape[-1]):
        raise refusal(
            f"Images of shape {tuple(x.shape)} were given.",
            f"Give (height, width, {channels or 'channels'}), or a batch of them.",
        )
    return x


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
    """Return images with a factor for the distance of each channel from its mean (`tf.image.adjust_contrast`)."""

    def change(x: Any) -> Any:
        mean = xp(x).mean(x, axis=(-3, -2), keepdims=True)
        return (x - mean) * xp(x).asarray(contrast_factor, x.dtype) + mean

    return _in_floats(images, change)


@operation
def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Any:
    """Return the images to the power gamma, multiplied by gain (`tf.image.adjust_gamma`).

    Raises:
        InputError: gamma is negative.
    """
    if not is_traced(gamma) and gamma < 0:
        raise refusal(f"gamma is {gamma}.", "Give 0 or a greater number.")
    return _in_floats(image, lambda x: x**gamma * gain)


@operation
def rgb_to_grayscale(images: Any) -> Any:
    """Return images of one channel (`tf.image.rgb_to_grayscale`)."""

    def change(x: Any) -> Any:
        return xp(x).sum(x * np.array([0.2989, 0.587, 0.114], x.dtype), axis=-1, keepdims=True)

    return _in_floats(images_of(images, 3), change)


@operation
def grayscale_to_rgb(images: Any) -> Any:
    """Return images of three equal channels (`tf.image.grayscale_to_rgb`)."""
    x = images_of(images, 1)
    return xp(x).repeat(x, 3, axis=-1)


@operation
def rgb_to_hsv(images: Tensor) -> Any:
    """Return hue, saturation and value, all from 0 to 1 (`tf.image.rgb_to_hsv`)."""
    numpy = xp(images)
    red, green, blue = (images[..., i] for i in range(3))
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
    return numpy.stack([hue, saturation, value], axis=-1).astype(images.dtype)


@operation
def hsv_to_rgb(images: Tensor) -> Any:
    """Return red, green and blue of hue, saturation and value (`tf.image.hsv_to_rgb`)."""
    numpy = xp(images)
    hue, saturation, value = (images[..., i] for i in range(3))
    around = numpy.stack([numpy.abs(hue * 6 - 3) - 1, 2 - numpy.abs(hue * 6 - 2), 2 - numpy.abs(hue * 6 - 4)], axis=-1)
    colour = numpy.clip(around, 0, 1)
    return (((colour - 1) * saturation[..., None] + 1) * value[..., None]).astype(images.dtype)


@operation
def adjust_hue(image: Any, delta: Any) -> Any:
    """Return images with a number from -1 to 1 added to their hue (`tf.image.adjust_hue`).

    Raises:
        InputError: The number is outside this range.
    """
    if not is_traced(delta) and not -1 <= delta <= 1:
        raise refusal(f"delta is {delta}.", "Give a number from -1 to 1.")

    def change(x: Any) -> Any:
        hsv = rgb_to_hsv(x)
        hue = (hsv[..., :1] + delta) % 1
        return hsv_to_rgb(xp(x).concatenate([hue, hsv[..., 1:]], -1).astype(x.dtype))

    return _in_floats(image, change)


@operation
def adjust_saturation(image: Any, saturation_factor: Any) -> Any:
    """Return images with their saturation multiplied by a factor (`tf.image.adjust_saturation`)."""

    def change(x: Any) -> Any:
        hsv = rgb_to_hsv(x)
        saturation = xp(x).clip(hsv[..., 1:2] * saturation_factor, 0, 1)
        return hsv_to_rgb(xp(x).concatenate([hsv[..., :1], saturation, hsv[..., 2:]], -1).astype(x.dtype))

    return _in_floats(image, change)


def _most(max_delta: Any, limit: float = np.inf) -> Any:
    if not 0 <= max_delta <= limit:
        raise refusal(
            f"max_delta is {max_delta}.",
            f"Give {'0 or a greater number' if np.isinf(limit) else f'a number from 0 to {limit}'}.",
        )
    return max_delta


def _between(lower: Any, upper: Any) -> tuple[Any, Any]:
    if not 0 <= lower < upper:
        raise refusal(f"The factors lie between {lower} and {upper}.", "Give 0 <= lower < upper.")
    return lower, upper


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """Return images with a random number of up to `max_delta` added or subtracted (`tf.image.random_brightness`)."""
    return adjust_brightness(image, uniform([], -_most(max_delta), max_delta, seed=seed))


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Any:
    """Return images with a random factor for the contrast (`tf.image.random_contrast`)."""
    return adjust_contrast(image, uniform([], *_between(lower, upper), seed=seed))


def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """Return images with a hue changed at random by up to `max_delta`, at most 0.5 (`tf.image.random_hue`)."""
    return adjust_hue(image, uniform([], -_most(max_delta, 0.5), max_delta, seed=seed))


def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Any:
    """Return images with a random factor for the saturation (`tf.image.random_saturation`)."""
    return adjust_saturation(image, uniform([], *_between(lower, upper), seed=seed))


def stateless_random_brightness(image: Any, max_delta: float, seed: Any) -> Any:
    """Return images made brighter or darker by a seed of two numbers (`tf.image.stateless_random_brightness`)."""
    return adjust_brightness(image, stateless_uniform([], seed, -_most(max_delta), max_delta))


def stateless_random_contrast(image: Any, lower: float, upper: float, seed: Any) -> Any:
    """Return images with a contrast that a seed of two numbers chooses (`tf.image.stateless_random_contrast`)."""
    return adjust_contrast(image, stateless_uniform([], seed, *_between(lower, upper)))


def stateless_random_hue(image: Any, max_delta: float, seed: Any) -> Any:
    """Return images with a hue that a seed of two numbers chooses (`tf.image.stateless_random_hue`)."""
    return adjust_hue(image, stateless_uniform([], seed, -_most(max_delta, 0.5), max_delta))


def stateless_random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    """Return images with a saturation that a seed of two numbers chooses (`tf.image.stateless_random_saturation`)."""
    return adjust_saturation(image, stateless_uniform([], seed, *_between(lower, upper)))


def _of_matrix(name: str, other: str, matrix: list[list[float]]) -> Callable[..., Any]:
    def change(images: Tensor) -> Any:
        return images @ np.array(matrix, images.dtype)

    return operation(change, name, f"Return images of other colours, {other} (`tf.image.{name}`).")


rgb_to_yiq: Final = _of_matrix(
    "rgb_to_yiq",
    "of red, green and blue",
    [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]],
)
yiq_to_rgb: Final = _of_matrix(
    "yiq_to_rgb",
    "in red, green and blue",
    [[1, 1, 1], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]],
)
rgb_to_yuv: Final = _of_matrix(
    "rgb_to_yuv",
    "of red, green and blue",
    [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]],
)
yuv_to_rgb: Final = _of_matrix(
    "yuv_to_rgb",
    "in red, green and blue",
    [[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]],
)
# Source of the matrices: tensorflow/python/ops/image_ops_impl.py
