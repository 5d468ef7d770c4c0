"""Pickling of functions and classes by value, for processes that may not have their modules."""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, Final

import cloudpickle


class Pickler(cloudpickle.Pickler):
    """A pickler of `cloudpickle` whose functions keep the name of their file.

    From version 3.1.3 on, `cloudpickle` leaves it out. Without it no error of another process says in which line of the
    program it arose, and AutoGraph finds no source to rewrite there.
    """

    def __init__(self, file: Any, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None) -> None:
        self.dispatch_table = _DISPATCH  # before the pickler of C looks it up
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffer_callback)


def dumps(value: Any) -> bytes:
    """Return a value pickled with the functions and classes that it refers to.

    Args:
        value: Anything that `cloudpickle` takes.
    """
    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def _reduced(code: CodeType) -> tuple[Callable[..., CodeType], tuple[Any, ...]]:
    make, arguments = _REDUCE(code)
    return _code, (make, arguments, code.co_filename)


def _code(make: Callable[..., CodeType], arguments: tuple[Any, ...], file: str) -> CodeType:
    return make(*arguments).replace(co_filename=file)


_KNOWN: Final[Any] = cloudpickle.Pickler.dispatch_table
_REDUCE: Final = _KNOWN[CodeType]
_DISPATCH: Final[Mapping[Any, Any]] = ChainMap[Any, Any]({CodeType: _reduced}, _KNOWN)
