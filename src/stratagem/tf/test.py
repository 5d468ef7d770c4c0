"""`tf.test`: what is there to run on, and a class for tests."""

from __future__ import annotations

import contextlib
import re
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any, Final

import jax
import numpy as np

from stratagem.mesh.values import PerReplica
from stratagem.tf.config.devices import drives_gpus, list_physical_devices
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.namespace import explaining
from stratagem.tf.tensors.seeds import set_seed

_SEED: Final = 87654321
"""TensorFlow's own (`DEFAULT_GRAPH_SEED`)."""


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


def _evaluated(value: Any) -> Any:
    return tuple(map(np.asarray, value.values)) if isinstance(value, PerReplica) else np.asarray(value)


class TestCase(unittest.TestCase):
    """A test case that compares arrays (`tf.test.TestCase`).

    Example:
        >>> TestCase().assertAllClose([1.0, 2.0], np.array([1.0, 2.0 + 1e-9]))
    """

    _folder: str | None = None

    def setUp(self) -> None:
        """Seed the random numbers of Python, NumPy and `tf.random` in the same way for each test, on each worker."""
        super().setUp()
        set_seed(_SEED)

    def evaluate(self, tensors: Any) -> Any:
        """Return values as NumPy arrays, in the same structure; a per-replica value as a tuple of its components."""
        return jax.tree.map(_evaluated, tensors, is_leaf=lambda each: not isinstance(each, dict | list | tuple))

    def get_temp_dir(self) -> str:
        """Return a folder of this test, which is deleted after it."""
        if self._folder is None:
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            self._folder = folder.name
        return self._folder

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fail unless two arrays have the same shape and elements."""
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=msg or "", strict=False)
        self.assertShapeEqual(a, b, msg)

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Fail unless two arrays, or the arrays of two structures, have the same shape and nearly the same elements."""
        if isinstance(a, dict) or isinstance(b, dict):
            self.assertEqual(dict(a).keys(), dict(b).keys(), msg)
            pairs = [(a[key], b[key]) for key in a]
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and any(map(_is_structure, (*a, *b))):
            self.assertEqual(len(a), len(b), msg)
            pairs = list(zip(a, b, strict=True))
        else:
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol, err_msg=msg or "")
            self.assertShapeEqual(a, b, msg)
            return
        for one, other in pairs:
            self.assertAllClose(one, other, rtol, atol, msg)

    def assertNotAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None) -> None:
        """Fail if `assertAllClose` does not."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertAllClose(a, b, rtol, atol)

    def assertNotAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Fail if `assertAllEqual` does not."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertAllEqual(a, b)

    def assertAllCloseAccordingToType(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        float_rtol: float = 1e-6,
        float_atol: float = 1e-6,
        half_rtol: float = 1e-3,
        half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2,
        bfloat16_atol: float = 1e-2,
        msg: str | None = None,
    ) -> None:
        """Fail unless two arrays are nearly equal, within the precision of the shorter of their dtypes."""
        of_dtype = {
            "float32": (float_rtol, float_atol),
            "float16": (half_rtol, half_atol),
            "bfloat16": (bfloat16_rtol, bfloat16_atol),
        }
        for each in (a, b):
            least = of_dtype.get(np.asarray(each).dtype.name, (rtol, atol))
            rtol, atol = max(rtol, least[0]), max(atol, least[1])
        self.assertAllClose(np.asarray(a, "float64"), np.asarray(b, "float64"), rtol, atol, msg)

    def assertArrayNear(self, farray1: Any, farray2: Any, err: float, msg: str | None = None) -> None:
        """Fail if two rows of numbers, or of arrays of one number, differ by more than `err` at any place."""
        self.assertEqual(len(farray1), len(farray2), msg)
        for one, other in zip(farray1, farray2, strict=True):
            self.assertNear(np.asarray(one).item(), np.asarray(other).item(), err, msg)

    def assertNear(self, f1: float, f2: float, err: float, msg: str | None = None) -> None:
        """Fail if two numbers differ by more than `err`."""
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, f"{f1!r} != {f2!r} +/- {err!r} {msg or ''}")

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:
        """Fail unless all elements are greater."""
        self._assert_all(a, np.asarray(a) > comparison_target, f"greater than {comparison_target}")

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:
        """Fail unless all elements are greater or equal."""
        self._assert_all(a, np.asarray(a) >= comparison_target, f"at least {comparison_target}")

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:
        """Fail unless all elements are less."""
        self._assert_all(a, np.asarray(a) < comparison_target, f"less than {comparison_target}")

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:
        """Fail unless all elements are less or equal."""
        self._assert_all(a, np.asarray(a) <= comparison_target, f"at most {comparison_target}")

    def assertAllInRange(
        self,
        target: Any,
        lower_bound: Any,
        upper_bound: Any,
        open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:
        """Fail unless all elements are between two bounds. The bounds belong to the range unless they are open."""
        values = np.asarray(target)
        above = values > lower_bound if open_lower_bound else values >= lower_bound
        below = values < upper_bound if open_upper_bound else values <= upper_bound
        self._assert_all(target, above & below, f"between {lower_bound} and {upper_bound}")

    def assertAllInSet(self, target: Any, expected_set: Any) -> None:
        """Fail unless all elements are in a set."""
        self._assert_all(target, np.isin(np.asarray(target), list(expected_set)), f"in {expected_set}")

    def _assert_all(self, values: Any, holds: Any, what: str) -> None:
        if not np.all(holds):
            self.fail(f"Not {what}: {np.asarray(values)[~np.asarray(holds)]}")

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:
        """Fail unless an array has a dtype."""
        self.assertEqual(as_dtype(np.asarray(target).dtype), as_dtype(expected_dtype))

    @contextlib.contextmanager
    def assertRaisesWithPredicateMatch(self, exception_type: Any, expected_err_re_or_predicate: Any) -> Iterator[None]:
        """Fail unless the block raises an exception that a function accepts, or whose text contains a pattern."""
        predicate = expected_err_re_or_predicate
        with self.assertRaises(exception_type) as raised:
            yield
        found = predicate(raised.exception) if callable(predicate) else re.search(predicate, str(raised.exception))
        self.assertTrue(found, f"Exception of type {type(raised.exception)}: {raised.exception}")

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: str | None = None) -> None:
        """Fail unless two arrays have the same shape."""
        if np.shape(input_a) != np.shape(input_b):
            self.fail(msg or f"Shapes {np.shape(input_a)} and {np.shape(input_b)} differ.")


def _is_structure(value: Any) -> bool:
    """Whether an entry of a list makes it a structure: arrays may differ in shape, lists of numbers are one array."""
    return isinstance(value, dict | tuple) or (not isinstance(value, list) and np.ndim(value) > 0)


__getattr__ = explaining(__name__)
