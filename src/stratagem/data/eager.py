"""What `for x, y in dataset` yields: NumPy arrays that also answer `.numpy()`."""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.data.structure import Tree, map_leaves


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


def eager(element: Tree) -> Tree:
    """Return `element` with `.numpy()` on its arrays."""
    return map_leaves(_eager, element)


def _eager(leaf: Any) -> EagerArray:
    return np.asarray(leaf, object if isinstance(leaf, bytes) else None).view(EagerArray)
