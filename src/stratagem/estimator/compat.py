"""The only file of this folder that touches private parts of Keras. Checked on Keras 3.12.0 and 3.15.1."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from keras.src.backend.common import global_state

_COUNTERS: Final = "object_name_uids"


@contextlib.contextmanager
def fresh_names() -> Iterator[None]:
    """Let Keras count names (`conv2d`, `conv2d_1`) from the start, and go on as before afterwards."""
    before = global_state.get_global_attribute(_COUNTERS)
    global_state.set_global_attribute(_COUNTERS, collections.defaultdict(int))
    try:
        yield
    finally:
        global_state.set_global_attribute(_COUNTERS, before)


def let_go(variable: Any, value_of: Callable[..., Any]) -> None:
    """Free the value of a variable now, though Keras's layers, which refer to themselves, hold it for a while.

    Args:
        variable: A Keras variable.
        value_of: What a read calls from now on, with the shape and the dtype.
    """
    variable._value = None
    variable._initializer = value_of


def name_in_graph(variable: Any) -> None:
    """Let a variable's name be what TensorFlow 1 called it, `dense/kernel:0`, where programs look for parts of it."""
    if not variable.name.endswith(":0"):
        variable._name = f"{variable.path}:0"
