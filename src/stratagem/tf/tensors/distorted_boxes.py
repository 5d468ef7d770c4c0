"""Crops of images, drawn by their size, their shape and what they cover (`tf.image.sample_distorted_bounding_box`).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/image/sample_distorted_bounding_box
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.core import Tracer

from stratagem.core.errors import InputError, UsageError
from stratagem.tf.tensors.operation import hosted
from stratagem.tf.tensors.seeds import drawing_on_host

Crop = tuple[int, int, int, int]
"""Top, left, height and width."""


def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: int = 0,
    min_object_covered: float = 0.1,
    aspect_ratio_range: Sequence[float] | None = None,
    area_range: Sequence[float] | None = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return a random crop of an image (`tf.image.sample_distorted_bounding_box`).

    Args:
        image_size: (height, width, channels), whole numbers.
        bounding_boxes: Objects in the image: float32 of shape (images, objects, 4) or (objects, 4), each as
            (top, left, bottom, right) from 0 to 1.
        seed: The seed of the stream of draws; 0 for the one of `tf.random.set_seed`.
        min_object_covered: The least part of one object that the crop must contain.
        aspect_ratio_range: Smallest and largest width divided by height; None for 0.75 and 1.33.
        area_range: Smallest and largest part of the image's area; None for 0.05 and 1.
        max_attempts: The number of crops to try before the whole image becomes the crop; None for 100.
        use_image_if_no_bounding_boxes: Whether the whole image is the object if no object is given.
        name: No effect.

    Returns:
        The arguments of `tf.slice`, (top, left, 0) and (height, width, -1), with the dtype of `image_size`; and the
        crop as one bounding box, float32 of shape (1, 1, 4).

    Raises:
        InputError: An argument cannot be used.
        UsageError: The call is in a compiled function, where the sizes of arrays must be known.

    Example:
        >>> begin, size, box = sample_distorted_bounding_box(
        ...     [40, 60, 3], [[[0.0, 0.0, 1.0, 1.0]]], area_range=(0.5, 0.5), aspect_ratio_range=(1.0, 1.0))
        >>> size.tolist(), box.shape
        ([35, 35, -1], (1, 1, 4))
    """
    generator, lock = drawing_on_host(seed or None)
    with lock:
        return _sampled(
            generator,
            image_size,
            bounding_boxes,
            min_object_covered,
            (0.75, 1.33) if aspect_ratio_range is None else aspect_ratio_range,
            (0.05, 1.0) if area_range is None else area_range,
            100 if max_attempts is None else max_attempts,
            bool(use_image_if_no_bounding_boxes),
        )


def stateless_sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: Any,
    min_object_covered: float = 0.1,
    aspect_ratio_range: Sequence[float] | None = None,
    area_range: Sequence[float] | None = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> tuple[Any, Any, Any]:
    """Return the crop that a seed of two numbers chooses; see `sample_distorted_bounding_box`.

    The same seed always chooses the same crop, but not the one that TensorFlow chooses.
    """
    return _sampled(
        np.random.default_rng(np.asarray(seed).astype(np.uint32).tolist()),
        image_size,
        bounding_boxes,
        min_object_covered,
        (0.75, 1.33) if aspect_ratio_range is None else aspect_ratio_range,
        (0.05, 1.0) if area_range is None else area_range,
        100 if max_attempts is None else max_attempts,
        bool(use_image_if_no_bounding_boxes),
    )


def _sampled(
    generator: np.random.Generator,
    image_size: Any,
    bounding_boxes: Any,
    covered: float,
    ratios: Sequence[float],
    areas: Sequence[float],
    attempts: int,
    whole_if_none: bool,
) -> tuple[Any, Any, Any]:
    if any(isinstance(each, Tracer) for each in (image_size, bounding_boxes, *np.atleast_1d(image_size))):
        raise UsageError(
            "sample_distorted_bounding_box was called in a compiled function.",
            "The size of the crop is random, but a compiled function must know all sizes before it runs.",
            "Call it in a function that is given to Dataset.map.",
        )
    sizes = np.asarray(image_size)
    boxes = np.asarray(bounding_boxes, np.float32).reshape(-1, 4)
    _check(sizes, boxes, ratios, areas, whole_if_none)
    height, width = sizes[:2].tolist()
    objects = boxes if len(boxes) else np.array([[0, 0, 1, 1]], np.float32)
    crop = (0, 0, height, width)
    for _ in range(attempts):
        drawn = _drawn(generator, height, width, ratios, areas)
        if drawn is not None and _covers(drawn, objects * [height, width, height, width], covered):
            crop = drawn
            break
    top, left, rows, columns = crop
    box = np.array([top / height, left / width, (top + rows) / height, (left + columns) / width], np.float32)
    dtype = sizes.dtype if isinstance(image_size, np.ndarray) else np.int32
    return (
        hosted(np.array([top, left, 0], dtype)),
        hosted(np.array([rows, columns, -1], dtype)),
        hosted(box.reshape(1, 1, 4)),
    )


def _drawn(
    generator: np.random.Generator, height: int, width: int, ratios: Sequence[float], areas: Sequence[float]
) -> Crop | None:
    """Return a crop; None where the drawn shape has no size that fits."""
    ratio = generator.uniform(ratios[0], ratios[1])
    smallest, largest = (part * height * width for part in areas)
    lowest = round(np.sqrt(smallest / ratio))
    highest = min(round(np.sqrt(largest / ratio)), height, int((width + 0.5) / ratio))
    if highest < max(lowest, 1):
        return None
    rows = int(generator.integers(max(lowest, 1), highest + 1))
    columns = round(rows * ratio)
    if not 0 < columns <= width:
        return None
    top, left = generator.integers(0, [height - rows + 1, width - columns + 1]).tolist()
    return top, left, rows, columns


def _covers(crop: Crop, objects: np.ndarray, part: float) -> bool:
    """Whether a crop holds so large a part of one of the objects, which are given in pixels."""
    top, left, rows, columns = crop
    inside = np.minimum(objects[:, 2:], [top + rows, left + columns]) - np.maximum(objects[:, :2], [top, left])
    held = np.prod(np.maximum(inside, 0), axis=1)
    own = np.prod(objects[:, 2:] - objects[:, :2], axis=1)
    return bool(np.any((held >= part * own) & (own > 0)))


def _check(
    sizes: np.ndarray, boxes: np.ndarray, ratios: Sequence[float], areas: Sequence[float], whole_if_none: bool
) -> None:
    faults = [
        (
            sizes.shape != (3,) or (sizes[:2] < 1).any(),
            f"image_size={sizes}",
            "Give (height, width, 3).",
        ),
        (not len(boxes) and not whole_if_none, "no bounding box", "Write use_image_if_no_bounding_boxes=True."),
        (bool(((boxes < 0) | (boxes > 1)).any()), "boxes outside 0 to 1", "Divide them by the height and the width."),
        (not 0 < ratios[0] <= ratios[1], f"aspect_ratio_range={ratios}", "Give the smaller first, above 0."),
        (not 0 < areas[0] <= areas[1] <= 1, f"area_range={areas}", "Give the smaller first, above 0 and up to 1."),
    ]
    for is_wrong, found, remedy in faults:
        if is_wrong:
            raise InputError(f"sample_distorted_bounding_box was given {found}.", remedy)
