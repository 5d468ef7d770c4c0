"""Spectra of signals: transforms of cosines, the scale of mel (`tf.signal.dct`, `linear_to_mel_weight_matrix`, ...).

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/signal and
tensorflow/python/ops/signal/{dct,mel,mfcc,spectral}_ops.py, of TensorFlow 2.21.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.fourier import irfft, rfft
from stratagem.tf.tensors.frames import Window, frame, overlap_and_add, vorbis_window
from stratagem.tf.tensors.marks import Tensor
from stratagem.tf.tensors.operation import operation, refusal, tensor, xp


@operation
def dct(input: Tensor, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the discrete cosine transform over the last axis (`tf.signal.dct`).

    Args:
        input: Real numbers, of shape (..., samples).
        type: 1, 2, 3 or 4.
        n: The number of samples to transform. Others are left out, or zeros are added. None for all.
        axis: -1.
        norm: "ortho", or None for no norm.

    Raises:
        InputError: An argument has another value, or type 1 is given with a norm or with one sample.

    Example:
        >>> dct([1.0, 1.0]).tolist()
        [4.0, 0.0]
    """
    _check_dct(input, type, n, axis, norm)
    numpy = xp(input)
    if n is not None:
        sizes = [(0, 0)] * (input.ndim - 1) + [(0, max(0, n - input.shape[-1]))]
        input = numpy.pad(input[..., :n], sizes)
    return {1: _dct1, 2: _dct2, 3: _dct3, 4: _dct4}[type](numpy, input, norm)


@operation
def idct(input: Tensor, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the inverse of `dct`, multiplied by twice the number of samples if there is no norm (`tf.signal.idct`)."""
    return dct(input, {1: 1, 2: 3, 3: 2, 4: 4}.get(type, type), n, axis, norm)


def _check_dct(x: Any, type: int, n: int | None, axis: int, norm: str | None) -> None:
    is_first = type == 1 and (norm is not None or (n or x.shape[-1]) < 2)
    if axis != -1 or type not in (1, 2, 3, 4) or norm not in (None, "ortho") or (n is not None and n < 1) or is_first:
        raise refusal(
            f"A cosine transform was asked for with type={type}, n={n}, axis={axis}, norm={norm!r} of a tensor "
            f"of shape {tuple(x.shape)}.",
            "Write type 1 to 4, axis=-1 and norm=None or 'ortho'; type 1 takes no norm, and needs two samples or more.",
        )


def _turned(count: int, sign: int, dtype: Any) -> np.ndarray:
    """Return by how much each frequency is turned, between transforms of cosines and of Fourier."""
    return (2 * np.exp(sign * 0.5j * np.pi * np.arange(count) / count)).astype(np.result_type(dtype, np.complex64))


def _dct1(numpy: Any, x: Any, norm: str | None) -> Any:
    return numpy.real(rfft(numpy.concatenate([x, x[..., -2:0:-1]], axis=-1)))


def _dct2(numpy: Any, x: Any, norm: str | None) -> Any:
    count = x.shape[-1]
    found = numpy.real(rfft(x, [2 * count])[..., :count] * _turned(count, -1, x.dtype))
    return found if norm is None else found * _ortho(count, 0.5 / np.sqrt(count), np.sqrt(0.5 / count), x.dtype)


def _dct3(numpy: Any, x: Any, norm: str | None) -> Any:
    count = x.shape[-1]
    x = x * (count if norm is None else _ortho(count, np.sqrt(count), np.sqrt(count / 2), x.dtype))
    return irfft(x * _turned(count, 1, x.dtype), [2 * count])[..., :count]


def _dct4(numpy: Any, x: Any, norm: str | None) -> Any:
    count = x.shape[-1]
    longer = numpy.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, count)])
    found = _dct2(numpy, longer, None)[..., 1::2]
    return found if norm is None else found * float(np.sqrt(0.5 / count))


def _ortho(count: int, first: float, others: float, dtype: Any) -> np.ndarray:
    return np.array([first, *[others] * (count - 1)], dtype)


@operation
def mdct(
    signals: Tensor,
    frame_length: int,
    window_fn: Window | None = vorbis_window,
    pad_end: bool = False,
    norm: str | None = None,
) -> Any:
    """Return the modified cosine transform of frames that overlap by half (`tf.signal.mdct`).

    Args:
        signals: Real numbers, of shape (..., samples).
        frame_length: The length of a frame, in samples; a multiple of 4.
        window_fn: The window by which frames are multiplied; None for 1 / sqrt(2) everywhere.
        pad_end: Whether frames at the end may be filled up; otherwise all frames are whole.
        norm: "ortho", or None for no norm.

    Returns:
        Shape (..., frames, frame_length // 2).

    Raises:
        InputError: The length is not a multiple of 4.
    """
    length = int(frame_length)
    if length % 4:
        raise refusal(f"mdct was asked for frames of {length} samples.", "Write a multiple of 4.")
    frames = _windowed(frame(signals, length, length // 2, pad_end), window_fn)
    numpy = xp(frames)
    a, b, c, d = numpy.split(frames, 4, axis=-1)
    return dct(numpy.concatenate([-c[..., ::-1] - d, a - b[..., ::-1]], axis=-1), 4, norm=norm)


@operation
def inverse_mdct(mdcts: Tensor, window_fn: Window | None = vorbis_window, norm: str | None = None) -> Any:
    """Return signals from the modified cosine transform of their frames (`tf.signal.inverse_mdct`).

    Args:
        mdcts: Shape (..., frames, frame_length // 2).
        window_fn: The window of `mdct`.
        norm: The norm of `mdct`.
    """
    half = mdcts.shape[-1]
    numpy, found = xp(mdcts), dct(mdcts, 4, norm=norm) * (0.5 / half if norm is None else 1.0)
    a, b = numpy.split(found, 2, axis=-1)
    frames = numpy.concatenate([b, -b[..., ::-1], -a[..., ::-1], -a], axis=-1)
    return overlap_and_add(_windowed(frames, window_fn), half)


def _windowed(frames: Any, window_fn: Window | None) -> Any:
    if window_fn is None:
        return frames * float(np.sqrt(0.5))
    return frames * window_fn(frames.shape[-1], dtype=frames.dtype)


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: int = 129,
    sample_rate: float = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: Any = "float32",
    name: str | None = None,
) -> Any:
    """Return the matrix that sums frequencies into bands of the mel scale (`tf.signal.linear_to_mel_weight_matrix`).

    Args:
        num_mel_bins: The number of bands.
        num_spectrogram_bins: The number of frequencies, from 0 to half the sample rate.
        sample_rate: The number of samples per second.
        lower_edge_hertz: The beginning of the lowest band, in Hertz.
        upper_edge_hertz: The end of the highest band, in Hertz.
        dtype: The dtype.
        name: No effect.

    Returns:
        Shape (num_spectrogram_bins, num_mel_bins).

    Raises:
        InputError: A number is not positive, or the edges do not lie between 0 and half the sample rate, in order.

    Example:
        >>> linear_to_mel_weight_matrix(3, 5, 16000, 0.0, 8000.0).shape
        (5, 3)
    """
    rate, lower, upper = float(sample_rate), float(lower_edge_hertz), float(upper_edge_hertz)
    bins, bands = int(num_spectrogram_bins), int(num_mel_bins)
    if bands < 1 or bins < 1 or not 0 <= lower < upper <= rate / 2 or not as_dtype(dtype).is_floating:
        raise refusal(
            f"A mel matrix was asked for with {bands} bands from {lower} to {upper} Hertz, {bins} frequencies, a "
            f"sample rate of {rate} and {as_dtype(dtype)!r}.",
            "Write positive numbers, 0 <= lower_edge_hertz < upper_edge_hertz <= sample_rate / 2, and a float dtype.",
        )
    frequencies = _mel(np.linspace(0, rate / 2, bins))[1:, None]  # HTK leaves out the frequency 0
    edges = np.linspace(_mel(lower), _mel(upper), bands + 2)
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (frequencies - low) / (centre - low), (high - frequencies) / (high - centre)
    return tensor(np.pad(np.maximum(0, np.minimum(rising, falling)), [(1, 0), (0, 0)]), dtype)


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log1p(np.asarray(hertz, np.float64) / 700.0)


@operation
def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Tensor) -> Any:
    """Return the cepstral coefficients of logarithms of mel spectra (`tf.signal.mfccs_from_log_mel_spectrograms`).

    Args:
        log_mel_spectrograms: A tensor of shape (..., bands).

    Returns:
        As many coefficients, scaled as HTK does.
    """
    return dct(log_mel_spectrograms) * float(np.sqrt(0.5 / log_mel_spectrograms.shape[-1]))
