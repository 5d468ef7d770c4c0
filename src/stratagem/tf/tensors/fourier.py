"""Transforms of Fourier (`tf.signal.fft`, `rfft`, ...), over the last axes.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/signal and
tensorflow/python/ops/signal/fft_ops.py, of TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stratagem.tf.tensors.marks import Axes, Sizes, Tensor
from stratagem.tf.tensors.operation import operation, refusal, xp


def _last(count: int) -> tuple[int, ...]:
    return tuple(range(-count, 0))


def _complex(x: Any, rank: int, name: str) -> Any:
    """Return a tensor whose last axes are transformed; refuse one that has too few, or no complex numbers."""
    if x.ndim < rank or x.dtype.kind != "c":
        raise refusal(
            f"tf.signal.{name} was given a tensor of shape {tuple(x.shape)} and dtype {x.dtype}.",
            f"Convert real numbers with tf.cast(x, tf.complex64), and give {rank} or more axes.",
            f"It transforms the last {rank} axes of complex numbers; TensorFlow refuses it too.",
        )
    return x


def _real(x: Any, rank: int, name: str) -> Any:
    """Return a tensor whose last axes are transformed; refuse one that has too few, or no real numbers."""
    if x.ndim < rank or x.dtype not in (np.float32, np.float64):
        raise refusal(
            f"tf.signal.{name} was given a tensor of shape {tuple(x.shape)} and dtype {x.dtype}.",
            f"Write tf.cast(x, tf.float32), and give {rank} or more axes.",
            f"It transforms the last {rank} axes of float32 numbers; TensorFlow refuses it too.",
        )
    return x


@operation
def fft(input: Tensor) -> Any:
    """Return the discrete Fourier transform of complex numbers over the last axis (`tf.signal.fft`).

    Example:
        >>> fft(np.array([1, 0, 0, 0], np.complex64)).tolist()
        [(1+0j), (1+0j), (1+0j), (1+0j)]
    """
    return xp(input).fft.fft(_complex(input, 1, "fft"))


@operation
def ifft(input: Tensor) -> Any:
    """Return the inverse transform over the last axis (`tf.signal.ifft`)."""
    return xp(input).fft.ifft(_complex(input, 1, "ifft"))


@operation
def fft2d(input: Tensor) -> Any:
    """Return the transform over the last two axes (`tf.signal.fft2d`)."""
    return xp(input).fft.fftn(_complex(input, 2, "fft2d"), axes=_last(2))


@operation
def ifft2d(input: Tensor) -> Any:
    """Return the inverse transform over the last two axes (`tf.signal.ifft2d`)."""
    return xp(input).fft.ifftn(_complex(input, 2, "ifft2d"), axes=_last(2))


@operation
def fft3d(input: Tensor) -> Any:
    """Return the transform over the last three axes (`tf.signal.fft3d`)."""
    return xp(input).fft.fftn(_complex(input, 3, "fft3d"), axes=_last(3))


@operation
def ifft3d(input: Tensor) -> Any:
    """Return the inverse transform over the last three axes (`tf.signal.ifft3d`)."""
    return xp(input).fft.ifftn(_complex(input, 3, "ifft3d"), axes=_last(3))


def _half(x: Any, sizes: Sequence[int] | None, rank: int, name: str) -> Any:
    """Return the transform of real numbers, without the half that is the conjugate of the other."""
    return xp(x).fft.rfftn(_real(x, rank, name), s=sizes, axes=_last(rank))


def _whole(x: Any, sizes: Sequence[int] | None, rank: int, name: str) -> Any:
    """Return the real numbers whose transform without its second half is given."""
    return xp(x).fft.irfftn(_complex(x, rank, name), s=sizes, axes=_last(rank))


@operation
def rfft(input_tensor: Tensor, fft_length: Sizes | None = None) -> Any:
    """Return the transform of real numbers over the last axis (`tf.signal.rfft`).

    Args:
        input_tensor: Real numbers, of shape (..., samples).
        fft_length: The number of samples to transform, in a list of one. Others are left out, or zeros are added. None
            for all.

    Returns:
        Complex numbers, of shape (..., fft_length // 2 + 1).

    Example:
        >>> rfft([1.0, 0.0, 0.0, 0.0]).tolist()
        [(1+0j), (1+0j), (1+0j)]
    """
    return _half(input_tensor, fft_length, 1, "rfft")


@operation
def irfft(input_tensor: Tensor, fft_length: Sizes | None = None) -> Any:
    """Return the real numbers of a transform over the last axis (`tf.signal.irfft`).

    Args:
        input_tensor: Complex numbers, of shape (..., fft_length // 2 + 1).
        fft_length: The number of samples to return, in a list of one; None for an even number of samples.
    """
    return _whole(input_tensor, fft_length, 1, "irfft")


@operation
def rfft2d(input_tensor: Tensor, fft_length: Sizes | None = None) -> Any:
    """Return the transform of real numbers over the last two axes (`tf.signal.rfft2d`)."""
    return _half(input_tensor, fft_length, 2, "rfft2d")


@operation
def irfft2d(input_tensor: Tensor, fft_length: Sizes | None = None) -> Any:
    """Return the real numbers of a transform over the last two axes (`tf.signal.irfft2d`)."""
    return _whole(input_tensor, fft_length, 2, "irfft2d")


@operation
def rfft3d(input_tensor: Tensor, fft_length: Sizes | None = None) -> Any:
    """Return the transform of real numbers over the last three axes (`tf.signal.rfft3d`)."""
    return _half(input_tensor, fft_length, 3, "rfft3d")


@operation
def irfft3d(input_tensor: Tensor, fft_length: Sizes | None = None) -> Any:
    """Return the real numbers of a transform over the last three axes (`tf.signal.irfft3d`)."""
    return _whole(input_tensor, fft_length, 3, "irfft3d")


@operation
def fftshift(x: Tensor, axes: Axes | None = None) -> Any:
    """Move the frequency zero to the middle of axes, by default of all axes (`tf.signal.fftshift`)."""
    return xp(x).fft.fftshift(x, axes)


@operation
def ifftshift(x: Tensor, axes: Axes | None = None) -> Any:
    """Move the frequency zero from the middle of axes to their beginning (`tf.signal.ifftshift`)."""
    return xp(x).fft.ifftshift(x, axes)
