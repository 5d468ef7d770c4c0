"""The only file of this folder that touches private parts of Keras. Checked on Keras 3.12.0 and 3.15.1."""

from __future__ import annotations

from typing import Any


def stored_value(variable: Any) -> Any:
    """Return the value a variable holds itself, whatever scope is open; None until it is initialised."""
    return variable._value


def stored_dtype(variable: Any) -> str:
    """Return the dtype a variable holds; `variable.dtype` tells that of an autocast scope."""
    return variable._dtype


def enclosing_scope(scope: Any) -> Any:
    """Return the stateless scope that was open when `scope` was entered, or None."""
    return scope.original_scope
