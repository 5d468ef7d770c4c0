"""`tf.test`: what is there to run on, and a class for tests."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from stratagem.tf.config.devices import drives_gpus, list_physical_devices
from stratagem.tf.namespace import explaining


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Any = None) -> bool:
    """Return whether there is a GPU that JAX can use (`tf.test.is_gpu_available`)."""
    return bool(list_physical_devices("GPU"))


def gpu_device_name() -> str:
    """Return "/device:GPU:0", or "" without a GPU (`tf.test.gpu_device_name`)."""
    return "/device:GPU:0" if is_gpu_available() else ""


def is_built_with_cuda() -> bool:
    """Return whether JAX's part for NVIDIA GPUs is installed (`tf.test.is_built_with_cuda`)."""
    return drives_gpus()


def is_built_with_gpu_support() -> bool:
    """Return whether JAX's part for GPUs is installed (`tf.test.is_built_with_gpu_support`)."""
    return drives_gpus()


def is_built_with_rocm() -> bool:
    """Return False (`tf.test.is_built_with_rocm`)."""
    return False


def is_built_with_xla() -> bool:
    """Return True: XLA compiles everything (`tf.test.is_built_with_xla`).

    Example:
        >>> is_built_with_xla()
        True
    """
    return True


def main() -> None:
    """Run the tests of the file that is the program (`tf.test.main`)."""
    unittest.main()


class TestCase(unittest.TestCase):
    """A test case that compares arrays (`tf.test.TestCase`).

    Example:
        >>> TestCase().assertAllClose([1.0, 2.0], np.array([1.0, 2.0 + 1e-9]))
    """

    def evaluate(self, tensors: Any) -> Any:
        """Return values as NumPy arrays."""
        return np.asarray(tensors)

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fail unless two arrays have the same shape and elements."""
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=msg or "", strict=False)
        self.assertShapeEqual(a, b, msg)

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Fail unless two arrays have the same shape and nearly the same elements."""
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol, err_msg=msg or "")
        self.assertShapeEqual(a, b, msg)

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: str | None = None) -> None:
        """Fail unless two arrays have the same shape."""
        if np.shape(input_a) != np.shape(input_b):
            self.fail(msg or f"Shapes {np.shape(input_a)} and {np.shape(input_b)} differ.")


__getattr__ = explaining(__name__)
