"""Frames of signals: cutting, windows, adding up again, and their spectra (`tf.signal.frame`, `stft`, ...).

Windows are made with NumPy: their lengths are known. Source of the semantics:
https://www.tensorflow.org/api_docs/python/tf/signal and tensorflow/python/ops/signal, of TensorFlow 2.21.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.fourier import irfft, rfft
from stratagem.tf.tensors.marks import Tensor
from stratagem.tf.tensors.operation import operation, refusal, tensor, xp

Window = Callable[..., Any]
"""A function of a length and a keyword `dtype` that returns that many factors."""


def _window(values: np.ndarray, dtype: Any) -> Any:
    if not as_dtype(dtype).is_floating:
        raise refusal(
            f"A window was asked for with dtype {as_dtype(dtype)!r}.",
            "Write dtype=tf.float32.",
            "Its numbers are fractions.",
        )
    return tensor(values, dtype)


def _raised_cosine(length: Any, periodic: Any, dtype: Any, base: float) -> Any:
    """Return base - (1 - base) * cos over one period; of an odd length it is never periodic, as in TensorFlow."""
    length = int(length)
    period = length - (0 if periodic and length % 2 == 0 else 1)
    angles = 2 * np.pi * np.arange(length) / max(period, 1)
    return _window(np.ones(1) if length == 1 else base - (1 - base) * np.cos(angles), dtype)


def hann_window(window_length: Any, periodic: bool = True, dtype: Any = "float32", name: str | None = None) -> Any:
    """Return a window of Hann (`tf.signal.hann_window`).

    Args:
        window_length: The number of factors.
        periodic: Whether the factor after the last would be the first again; otherwise the last equals the first.
        dtype: The dtype.
        name: No effect.

    Example:
        >>> hann_window(4).tolist()
        [0.0, 0.5, 1.0, 0.5]
    """
    return _raised_cosine(window_length, periodic, dtype, 0.5)


def hamming_window(window_length: Any, periodic: bool = True, dtype: Any = "float32", name: str | None = None) -> Any:
    """Return a window of Hamming (`tf.signal.hamming_window`); the arguments are those of `hann_window`."""
    return _raised_cosine(window_length, periodic, dtype, 0.54)


def kaiser_window(window_length: Any, beta: float = 12.0, dtype: Any = "float32", name: str | None = None) -> Any:
    """Return a window of Kaiser (`tf.signal.kaiser_window`).

    Args:
        window_length: The number of factors.
        beta: The narrowness of the window.
        dtype: The dtype.
        name: No effect.
    """
    return _window(np.kaiser(int(window_length), float(beta)), dtype)


def kaiser_bessel_derived_window(
    window_length: Any, beta: float = 12.0, dtype: Any = "float32", name: str | None = None
) -> Any:
    """Return a window made of sums of a Kaiser window (`tf.signal.kaiser_bessel_derived_window`)."""
    sums = np.cumsum(np.kaiser(int(window_length) // 2 + 1, float(beta)))
    half = np.sqrt(sums[:-1] / sums[-1])
    return _window(np.concatenate([half, half[::-1]]), dtype)


def vorbis_window(window_length: Any, dtype: Any = "float32", name: str | None = None) -> Any:
    """Return a window of Vorbis (`tf.signal.vorbis_window`), which `tf.signal.mdct` uses."""
    length = int(window_length)
    return _window(np.sin(np.pi / 2 * np.sin(np.pi / length * (np.arange(length) + 0.5)) ** 2), dtype)


@operation
def frame(
    signal: Tensor, frame_length: int, frame_step: int, pad_end: bool = False, pad_value: Any = 0, axis: int = -1
) -> Any:
    """Cut an axis into frames, which may overlap (`tf.signal.frame`).

    Args:
        signal: Shape (..., samples, ...).
        frame_length: The length of a frame, in samples.
        frame_step: The distance from the beginning of one frame to that of the next, in samples.
        pad_end: Whether frames at the end may be filled up; otherwise all frames are whole.
        pad_value: The value that fills up the last frames.
        axis: The axis.

    Returns:
        Shape (..., frames, frame_length, ...).

    Example:
        >>> frame([1.0, 2.0, 3.0, 4.0], 3, 1).tolist()
        [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    """
    numpy, length, step = xp(signal), int(frame_length), int(frame_step)
    axis = int(axis) % signal.ndim
    samples = signal.shape[axis]
    count = -(-samples // step) if pad_end else max(0, 1 + (samples - length) // step)
    if pad_end:
        missing = max(0, length + step * (count - 1) - samples)
        sizes = [(0, missing if place == axis else 0) for place in range(signal.ndim)]
        signal = numpy.pad(signal, sizes, constant_values=pad_value)
    places = np.arange(count)[:, None] * step + np.arange(length)
    return numpy.take(signal, places, axis=axis)


@operation
def overlap_and_add(signal: Tensor, frame_step: int) -> Any:
    """Add up frames where they overlap (`tf.signal.overlap_and_add`).

    Args:
        signal: Shape (..., frames, frame_length).
        frame_step: The distance from the beginning of one frame to that of the next, in samples.

    Returns:
        Shape (..., (frames - 1) * frame_step + frame_length).

    Raises:
        InputError: The signal has no axis of frames.

    Example:
        >>> overlap_and_add([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]], 1).tolist()
        [1.0, 12.0, 23.0, 30.0]
    """
    if signal.ndim < 2:
        raise refusal(
            f"overlap_and_add was given a tensor of shape {tuple(signal.shape)}.",
            "Give a tensor of shape (..., frames, frame_length).",
        )
    numpy, step = xp(signal), int(frame_step)
    *outer, count, length = signal.shape
    parts = -(-length // step)
    none = [(0, 0)] * len(outer)
    # Each frame is cut into parts of one step, and each part moves to the step where it belongs.
    cut = numpy.pad(signal, [*none, (0, 0), (0, parts * step - length)]).reshape(*outer, count, parts, step)
    moved = [numpy.pad(cut[..., part, :], [*none, (part, parts - 1 - part), (0, 0)]) for part in range(parts)]
    added = functools.reduce(operator.add, moved)
    return added.reshape(*outer, -1)[..., : step * (count - 1) + length]


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


@operation
def stft(
    signals: Tensor,
    frame_length: int,
    frame_step: int,
    fft_length: int | None = None,
    window_fn: Window | None = hann_window,
    pad_end: bool = False,
) -> Any:
    """Return the spectra of frames of signals (`tf.signal.stft`).

    Args:
        signals: Real numbers, of shape (..., samples).
        frame_length: The length of a frame, in samples.
        frame_step: The distance from the beginning of one frame to that of the next, in samples.
        fft_length: The number of samples to transform; None for the next power of two.
        window_fn: The window by which frames are multiplied; None for no window.
        pad_end: Whether frames at the end may be filled up; otherwise all frames are whole.

    Returns:
        Complex numbers, of shape (..., frames, fft_length // 2 + 1).

    Example:
        >>> stft(np.ones(6, np.float32), 4, 2, window_fn=None).shape
        (2, 3)
    """
    frames = frame(signals, frame_length, frame_step, pad_end)
    if window_fn is not None:
        frames = frames * window_fn(int(frame_length), dtype=frames.dtype)
    return rfft(frames, [_power_of_two(int(frame_length)) if fft_length is None else int(fft_length)])


@operation
def inverse_stft(
    stfts: Tensor,
    frame_length: int,
    frame_step: int,
    fft_length: int | None = None,
    window_fn: Window | None = hann_window,
) -> Any:
    """Return signals from the spectra of their frames (`tf.signal.inverse_stft`).

    Args:
        stfts: Complex numbers, of shape (..., frames, fft_length // 2 + 1).
        frame_length: The length of a frame, in samples.
        frame_step: The distance from the beginning of one frame to that of the next, in samples.
        fft_length: The number of transformed samples; None for the next power of two.
        window_fn: `tf.signal.inverse_stft_window_fn(frame_step)` undoes the window of `stft`; None for no window.

    Returns:
        Shape (..., (frames - 1) * frame_step + frame_length).
    """
    length = int(frame_length)
    frames = irfft(stfts, [_power_of_two(length) if fft_length is None else int(fft_length)])[..., :length]
    sizes = [(0, 0)] * (frames.ndim - 1) + [(0, length - frames.shape[-1])]
    frames = xp(frames).pad(frames, sizes)
    if window_fn is not None:
        frames = frames * window_fn(length, dtype=frames.dtype)
    return overlap_and_add(frames, frame_step)


def inverse_stft_window_fn(frame_step: int, forward_window_fn: Window = hann_window, name: str | None = None) -> Window:
    """Return the window with which `inverse_stft` undoes `stft` (`tf.signal.inverse_stft_window_fn`).

    Args:
        frame_step: The distance from the beginning of one frame to that of the next, in samples.
        forward_window_fn: The window of `stft`.
        name: No effect.
    """

    def window(frame_length: int, dtype: Any = "float32") -> Any:
        length, step = int(frame_length), int(frame_step)
        forward = np.asarray(forward_window_fn(length, dtype="float32"))
        squares = np.pad(np.square(forward), (0, -length % step)).reshape(-1, step)
        sums = np.tile(squares.sum(axis=0), len(squares))[:length]
        with np.errstate(all="ignore"):
            return tensor(forward / sums, dtype)

    return window
