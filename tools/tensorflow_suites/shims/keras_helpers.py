"""Stand-in for helpers of tf_keras's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _as_it_is(target: Any = None, *_: Any, **__: Any) -> Any:
    """Run a test, or the tests of a class, as they stand."""
    return target if callable(target) else _as_it_is


run_v2_only = disable_mlir_bridge = enable_v2_dtype_behavior = _as_it_is


def run_all_without_tensor_float_32(_: str = "") -> Callable[[Any], Any]:
    """Return a decorator that changes nothing: CPUs know no TensorFloat-32."""
    return _as_it_is


def is_xla_enabled() -> bool:
    """Return whether TensorFlow compiles with XLA by default."""
    return False


def get_test_data(
    train_samples: int,
    test_samples: int,
    input_shape: tuple[int, ...],
    num_classes: int,
    random_seed: int | None = None,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return examples of classes that can be told apart, for training and for testing."""
    random = np.random.default_rng(random_seed)
    count = train_samples + test_samples
    centres = 2 * num_classes * random.random((num_classes, *input_shape))
    labels = random.integers(0, num_classes, size=count)
    examples = (centres[labels] + random.normal(0, 0.1, size=(count, *input_shape))).astype("float32")
    return (examples[:train_samples], labels[:train_samples]), (examples[train_samples:], labels[train_samples:])
