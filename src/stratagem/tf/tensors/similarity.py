"""Similarity of two images (`tf.image.ssim`).

Source: Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to structural similarity",
2004; https://www.tensorflow.org/api_docs/python/tf/image/ssim
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.tf.tensors.colours import convert_image_dtype
from stratagem.tf.tensors.marks import Tensor
from stratagem.tf.tensors.operation import operation, refusal, tensor, xp


@operation
def ssim(
    img1: Tensor,
    img2: Tensor,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    return_index_map: bool = False,
) -> Any:
    """Return the structural similarity of images, at most 1 (`tf.image.ssim`).

    Args:
        img1: Images of shape (..., height, width, channels).
        img2: Images of the same size.
        max_val: The difference between the largest and the smallest possible value.
        filter_size: The height and width of the windows. Pixels in them have weights of a normal distribution.
        filter_sigma: The standard deviation of this distribution.
        k1: A factor of `max_val` that keeps the quotient of means away from 0 / 0.
        k2: A factor of `max_val` that keeps the quotient of variances away from 0 / 0.
        return_index_map: Whether to return the similarity of each window instead of the mean.

    Returns:
        Shape (...), or (..., windows down, windows across).

    Raises:
        InputError: The images are smaller than a window.
    """
    sizes = [size for image in (img1, img2) for size in image.shape[-3:-1]]
    if min(sizes) < filter_size:
        raise refusal(
            f"Images of shapes {tuple(img1.shape)} and {tuple(img2.shape)} were given, and windows of {filter_size} "
            "pixels.",
            "Give larger images, or a smaller filter_size.",
        )
    peak = convert_image_dtype(tensor(np.asarray(max_val).astype(str(img1.dtype))), "float32")
    x, y = (convert_image_dtype(image, "float32") for image in (img1, img2))
    distances = np.arange(filter_size) - (filter_size - 1) / 2
    weights = np.exp(-0.5 * np.square(distances / filter_sigma))
    weights = (weights / weights.sum()).astype("float32")
    in_means, in_variances = (k1 * peak) ** 2, (k2 * peak) ** 2

    mean_x, mean_y = _mean_of_windows(x, weights), _mean_of_windows(y, weights)
    products, squares = 2 * mean_x * mean_y, mean_x * mean_x + mean_y * mean_y
    luminance = (products + in_means) / (squares + in_means)
    covariance = 2 * _mean_of_windows(x * y, weights) - products
    variances = _mean_of_windows(x * x + y * y, weights) - squares
    similarity = luminance * ((covariance + in_variances) / (variances + in_variances))
    numpy = xp(similarity)
    return numpy.mean(similarity, axis=-1 if return_index_map else (-3, -2, -1))


def _mean_of_windows(images: Any, weights: np.ndarray) -> Any:
    """Return weighted means of all windows, whose weights are the products of those of rows and of columns."""
    down, across = (size - len(weights) + 1 for size in images.shape[-3:-1])
    rows: Any = sum(weight * images[..., i : i + down, :, :] for i, weight in enumerate(weights))
    return sum(weight * rows[..., j : j + across, :] for j, weight in enumerate(weights))
