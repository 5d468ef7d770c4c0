"""Keras on JAX: `from stratagem import keras` gives the very module `keras`, whatever was imported before it.

Below it every module is Keras's own too: `stratagem.keras.layers` is `keras.layers`. The files beside this one are for
type checkers and editors, which look for modules in files; Python never runs them.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from stratagem.core.backend import require_jax_backend

if TYPE_CHECKING:
    from keras import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]

_HERE: Final = __name__ + "."


class _Finder:
    """Finds `stratagem.keras.layers` where `keras.layers` is, the first of Python's finders.

    Those behind it would load Keras's files a second time, as other modules.
    """

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how to get a module of Keras by the name that was asked for; None for what does not lie here."""
        if not fullname.startswith(_HERE):
            return None
        return ModuleSpec(fullname, cast(Any, _Loader(f"keras.{fullname.removeprefix(_HERE)}")))


class _Loader:
    """Gives a module that Keras has."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to Python: the real one would get this name."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Put the real module in the place of the empty one; Python takes what stands there."""
        sys.modules[module.__name__] = importlib.import_module(self._real)


require_jax_backend()
sys.meta_path.insert(0, cast(Any, _Finder()))
sys.modules[__name__] = importlib.import_module("keras")
