"""Switches between TensorFlow 1 and 2 (`tf.compat.v1.disable_eager_execution`, ...): accepted, there is one way here.

They have no effect: a `model_fn` is compiled, and everything else runs at once.
"""

from __future__ import annotations

from typing import Any


def disable_eager_execution() -> None:
    """Accept the switch: a `model_fn` is compiled anyway."""


def _accept(*args: Any, **kwargs: Any) -> None:
    """Accept the switch: there is one way here."""


enable_eager_execution = _accept
disable_v2_behavior = _accept
enable_v2_behavior = _accept
disable_control_flow_v2 = _accept
enable_control_flow_v2 = _accept
disable_resource_variables = _accept
enable_resource_variables = _accept
disable_tensor_equality = _accept
enable_tensor_equality = _accept
disable_v2_tensorshape = _accept
enable_v2_tensorshape = _accept
reset_default_graph = _accept


def executing_eagerly_outside_functions() -> bool:
    """Return True: outside functions everything runs at once (`tf.compat.v1.executing_eagerly_outside_functions`)."""
    return True
