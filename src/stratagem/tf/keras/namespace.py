"""How a module of `tf.keras` finds its names: as all of `stratagem.tf`, once Keras's objects know their old names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from stratagem.core.backend import require_jax_backend
from stratagem.tf import namespace

_OLD_NAMES: Final = "stratagem.tf.keras.compat"
"""Loading it lets Keras's objects answer to the names they had in Keras 2."""


def lazy(
    module: str, names: Mapping[str, str], behind: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a module's `__getattr__` and `__dir__`.

    Args:
        module: Its `__name__`.
        names: Where each name lives, as in `stratagem.tf.namespace.lazy`.
        behind: A module of Keras whose names are its own too.

    Example:
        >>> __getattr__, __dir__ = lazy("stratagem.tf.keras.ops", {}, behind="keras.ops")
        >>> __getattr__("relu").__name__
        'relu'
    """
    find_known, names_known = namespace.lazy(module, names, behind)

    def find(name: str) -> Any:
        if name == "__version__" and behind is not None:
            return importlib.import_module(behind).__version__
        if not name.startswith("__"):
            require_jax_backend()
            importlib.import_module(_OLD_NAMES)
        return find_known(name)

    return find, names_known
