"""Summaries of numbers, distributions, images, sounds and text (`tf.summary.scalar`, ...).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/summary
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.tf.summary.writer import record


def scalar(name: str, data: Any, step: Any = None, description: str | None = None) -> bool:
    """Write a number.

    Args:
        name: The name of the summary.
        data: A number, or an array of shape ().
        step: The step; None for the step that was set.
        description: Accepted as in TensorFlow.

    Returns:
        Whether a writer took the summary.

    Raises:
        InputError: `data` has another shape.
    """
    if np.ndim(data):
        raise InputError(
            f"tf.summary.scalar({name!r}) was given an array of shape {np.shape(data)}.",
            "A curve has one number for each step.",
            "Reduce it: tf.reduce_mean(values); or write tf.summary.histogram.",
        )
    return record(lambda events, tag, at, value: events.add_scalar(tag, float(value), at), name, step, data)


def histogram(
    name: str, data: Any, step: Any = None, buckets: int | None = None, description: str | None = None
) -> bool:
    """Write the distribution of values.

    Args:
        name: The name of the summary.
        data: An array of any shape; one without elements writes nothing.
        step: The step; None for the step that was set.
        buckets: The number of buckets; None for 30.
        description: Accepted as in TensorFlow.

    Returns:
        Whether a writer took the summary.
    """

    def write(events: Any, tag: str, at: int, found: np.ndarray) -> None:
        values = found.astype(np.float64).reshape(-1)
        if values.size:
            counts, edges = np.histogram(values, bins=30 if buckets is None else buckets)
            events.add_histogram_raw(
                tag, values.min(), values.max(), values.size, values.sum(), (values**2).sum(), edges[1:], counts, at
            )

    return record(write, name, step, data)


def image(name: str, data: Any, step: Any = None, max_outputs: int = 3, description: str | None = None) -> bool:
    """Write images.

    Args:
        name: The name of the summary; it gets a number after the first one.
        data: An array of shape (images, height, width, 1 to 4): uint8, or floats from 0 to 1.
        step: The step; None for the step that was set.
        max_outputs: The greatest number of images to write.
        description: Accepted as in TensorFlow.

    Returns:
        Whether a writer took the summary.

    Raises:
        InputError: `data` has another shape.
    """
    shape = np.shape(data)
    if len(shape) != 4 or not 1 <= shape[-1] <= 4:
        raise InputError(
            f"tf.summary.image({name!r}) was given an array of shape {shape}, which is not a batch of images.",
            "Give (images, height, width, channels): image[None, ...] makes a batch of one image.",
        )

    def write(events: Any, tag: str, at: int, pixels: np.ndarray) -> None:
        if pixels.dtype != np.uint8:  # TensorFlow's conversion of an image to uint8
            pixels = (np.clip(pixels.astype(np.float32), 0, 1) * 255.5).astype(np.uint8)
        for number, each in enumerate(pixels[:max_outputs]):
            events.add_image(f"{tag}/{number}" if number else tag, each, at, dataformats="HWC")

    return record(write, name, step, data)


def audio(
    name: str,
    data: Any,
    sample_rate: int,
    step: Any = None,
    max_outputs: int = 3,
    encoding: str | None = None,
    description: str | None = None,
) -> bool:
    """Write sounds.

    Args:
        name: The name of the summary; it gets a number after the first one.
        data: Floats from -1 to 1, of shape (sounds, samples, channels).
        sample_rate: The number of samples per second.
        step: The step; None for the step that was set.
        max_outputs: The greatest number of sounds to write.
        encoding: Accepted as in TensorFlow; the encoding is WAV.
        description: Accepted as in TensorFlow.

    Returns:
        Whether a writer took the summary.
    """

    def write(events: Any, tag: str, at: int, sounds: np.ndarray) -> None:
        for number, each in enumerate(sounds[:max_outputs].astype(np.float32)):
            events.add_audio(f"{tag}/{number}" if number else tag, each, at, sample_rate=int(sample_rate))

    return record(write, name, step, data)


def text(name: str, data: Any, step: Any = None, description: str | None = None) -> bool:
    """Write text, in Markdown.

    Args:
        name: The name of the summary.
        data: Text or bytes, or an array of them with one element for each line.
        step: The step; None for the step that was set.
        description: Accepted as in TensorFlow.

    Returns:
        Whether a writer took the summary.
    """
    parts = [each.decode() if isinstance(each, bytes) else str(each) for each in np.asarray(data, object).reshape(-1)]
    return record(lambda events, tag, at, _: events.add_text(tag, "\n\n".join(parts), at), name, step, 0)
