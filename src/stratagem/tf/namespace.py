"""Modules of `stratagem.tf` that find their names in the tables of `stratagem.tf.names` when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final, cast

from stratagem.core.backend import require_jax_backend
from stratagem.tf.missing import missing
from stratagem.tf.names import ROOT, has_table, names_of

_KERAS: Final = f"{ROOT}.keras"
_SERVER: Final = "Server"
"""Name that a worker's program may ask for alone, though it runs models of its chief, which are of `tf.keras`."""


class Namespace:
    """The names of one module of `stratagem.tf`.

    Args:
        module: The module, as `__name__` has it.
        behind: A module whose public names are this module's too; None for the one that the tables say.

    Example:
        >>> Namespace("stratagem.tf.train").find("Checkpoint").__name__
        'Checkpoint'
    """

    def __init__(self, module: str, behind: str | None = None) -> None:
        self._module = module
        names = names_of(module)
        self._homes = names.homes
        self._behind = behind or names.behind

    def find(self, name: str) -> Any:
        """Return the value of a name (a module's `__getattr__`), and keep it in the module.

        Raises:
            AttributeError: It is not there; the message says what to write instead.
        """
        if name == "__version__" and name in self._homes:  # to look it up takes longer than to import this package
            return self._found(name)
        if name == "__version__" and self._behind is not None:
            return importlib.import_module(self._behind).__version__
        if name.startswith("__"):  # asked by Python itself
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}")
        require_jax_backend()
        importlib.import_module("stratagem.tf.eager.compat")  # loads JAX, and gives its arrays `.numpy()`
        if f"{self._module}.".startswith(f"{_KERAS}.") or name == _SERVER:
            importlib.import_module("stratagem.tf.keras.compat")  # Keras's objects answer to their names in Keras 2
        value = self._found(name)
        if self._module in sys.modules:
            setattr(sys.modules[self._module], name, value)
        return value

    def _found(self, name: str) -> Any:
        if name in self._homes:
            home, _, attribute = self._homes[name].partition(":")
            value: Any = importlib.import_module(home)
            return getattr(value, attribute) if attribute else value
        if self._behind is not None and not name.startswith("_"):
            behind: ModuleType = importlib.import_module(self._behind)
            if hasattr(behind, name):
                return getattr(behind, name)
        known = [*self.list(), *vars(sys.modules.get(self._module, sys))]
        raise missing(f"{self._module.removeprefix('stratagem.')}.{name}", known)

    def list(self) -> list[str]:
        """Return all names (a module's `__dir__`)."""
        behind = [] if self._behind is None else dir(importlib.import_module(self._behind))
        return sorted({*self._homes, *(name for name in behind if not name.startswith("_"))})


def lazy(module: str, behind: str | None = None) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a module's `__getattr__` and `__dir__`.

    Args:
        module: Its `__name__`.
        behind: A module whose names are its own too; None for the one that the tables say.

    Example:
        >>> __getattr__, __dir__ = lazy("stratagem.tf.bitwise")
        >>> __dir__()
        ['bitwise_and', 'bitwise_or', 'bitwise_xor', 'invert', 'left_shift', 'right_shift']
    """
    found = Namespace(module, behind)
    # A module with a `__path__` may have modules below it. So Python looks for `from module import name` as a module
    # too, asks `Modules`, and shows its text; without, it would only say "cannot import name".
    if module in sys.modules:
        vars(sys.modules[module]).setdefault("__path__", [])
    return found.find, found.list


def explaining(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that has its names itself: it explains those that are missing.

    Args:
        module: Its `__name__`.

    Example:
        >>> explaining("stratagem.tf.config.threading")("set_threads")
        Traceback (most recent call last):
        AttributeError: tf.config.threading.set_threads is not in stratagem.tf.
        ...
    """
    return lazy(module)[0]


class Modules:
    """Makes the modules below `stratagem.tf` that have no file, the first of Python's finders.

    Those are the modules that have a table, and those that are found by their names in other modules:
    `import stratagem.tf.keras.applications.resnet50` works where `tf.keras.applications.resnet50` is a module, and
    gets a module with the same names. What is not there is explained. Finders behind this one would take a folder that
    only holds files for type checkers for a package.
    """

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how to load or make a module (`MetaPathFinder.find_spec`); None for what does not lie below ours.

        Raises:
            ModuleNotFoundError: There is no such module; the message says what to write instead.
        """
        if not fullname.startswith(f"{ROOT}."):
            return None
        file = PathFinder.find_spec(fullname, path, target)
        if file is not None and file.origin is not None:
            return file
        return ModuleSpec(fullname, cast(Any, _Loader(_behind(fullname))), is_package=True)


def _behind(fullname: str) -> str | None:
    """Return the module whose names a module without a file has; None for one that has a table.

    Raises:
        ModuleNotFoundError: There is no such module.
    """
    if has_table(fullname):
        return None
    parent, _, name = fullname.rpartition(".")
    try:
        found = getattr(sys.modules[parent], name)
    except AttributeError as error:
        # Without the module's name: Python takes a named one as a sign to say "cannot import name" instead.
        raise ModuleNotFoundError(str(error)) from None
    if not isinstance(found, ModuleType):
        raise ModuleNotFoundError(f"{fullname.removeprefix('stratagem.')} is not a module, but {found!r}.")
    return found.__name__


class _Loader:
    """Makes a module that finds its names in the tables, or in another module."""

    def __init__(self, behind: str | None) -> None:
        self._behind = behind

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to Python."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its names."""
        found, names = lazy(module.__name__, self._behind)
        behind = self._behind or "`stratagem.tf.names`"
        vars(module).update(__getattr__=found, __dir__=names, __doc__=f"The names are those of {behind}.")


def install() -> None:
    """Let Python ask `Modules`. Harmless when done."""
    if not any(isinstance(finder, Modules) for finder in sys.meta_path):
        sys.meta_path.insert(0, Modules())
