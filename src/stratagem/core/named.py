"""Functions that are named on a command line."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from stratagem.core.errors import InputError


def load(place: str, argument: str, remedy: str) -> Callable[..., Any]:
    """Return the function that `module:function` or `path/to/file.py:function` names.

    Args:
        place: Its name.
        argument: What it is the value of, for messages.
        remedy: What to write instead, for messages.

    Raises:
        InputError: There is no such module, file or function.

    Example:
        >>> load("math:floor", "--function", "Name a function.")(2.5)
        2
    """
    where, _, name = place.rpartition(":")

    def refusal(found: str) -> InputError:
        return InputError(f"{argument} {place}: {found}.", remedy)

    if not where or not name:
        raise refusal("it does not name a module and a function")
    try:
        module = _module_of(where)
    except _MissingError as error:
        raise refusal(f"there is no {error}") from None
    function = getattr(module, name, None)
    if callable(function):
        return function
    if function is not None:
        raise refusal(f"{name} is not a function but {type(function).__name__}")
    functions = [other for other, value in vars(module).items() if callable(value)]
    alike = difflib.get_close_matches(name, functions)
    raise refusal(f"{where} has no {name}" + (f"; it has {', '.join(alike)}" if alike else ""))


class _MissingError(Exception):
    """There is no such module or file."""


def _module_of(where: str) -> ModuleType:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                raise  # the module is there, and imports one that is not
            raise _MissingError(f"module {error.name}") from None
    path = Path(where)
    if not path.is_file():
        raise _MissingError(f"file {path.absolute()}")
    sys.path.insert(0, str(path.parent.absolute()))  # what Python itself puts there for a script
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where functions of the module are looked up when they go to other processes
    spec.loader.exec_module(module)
    return module
