"""What programs get to look at, elements of datasets and components of replicas: arrays that answer `.numpy()`."""

from __future__ import annotations

from typing import Any

import numpy as np


class EagerArray(np.ndarray):
    """A NumPy array with `.numpy()`, for programs written for eager tensors.

    Results of arithmetic are plain NumPy. Training code never meets this class.
    """

    def numpy(self) -> Any:
        """Return the plain array, or the NumPy scalar when there is no axis (`tf.Tensor.numpy`)."""
        return self.view(np.ndarray)[()]

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def __format__(self, form: str) -> str:
        return format(self.numpy(), form)
