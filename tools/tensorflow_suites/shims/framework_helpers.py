"""Stand-in for decorators of TensorFlow's tests that choose between graphs and eager mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tools.tensorflow_suites.shims.clusters import pick_unused_port
from tools.tensorflow_suites.verdicts import GRAPHS, NotApplicable

import stratagem.tf as tf

__all__ = ["pick_unused_port"]

TensorFlowTestCase = tf.test.TestCase

Test = Callable[..., Any]


def _eager(test: Any = None, **_: Any) -> Any:
    """Run a test as it stands: there is no other mode."""
    if not callable(test):
        return _eager
    return test


run_in_graph_and_eager_modes = run_all_in_graph_and_eager_modes = with_eager_op_as_function = _eager
run_v2_only = disable_tfrt = disable_xla = disable_mlir_bridge = _eager


def _graphs(test: Test | str | None = None, *_: Any) -> Any:
    """Skip a test of TensorFlow 1."""
    if not callable(test):
        return _graphs

    @functools.wraps(test)
    def skipped(*_: Any, **__: Any) -> None:
        raise NotApplicable(GRAPHS)

    return skipped


run_deprecated_v1 = run_v1_only = run_deprecated_v1_only = _graphs


def is_xla_enabled() -> bool:
    """Return whether TensorFlow compiles with XLA by default."""
    return False


def gpu_device_name() -> str:
    """Return the name of the first GPU."""
    return ""
