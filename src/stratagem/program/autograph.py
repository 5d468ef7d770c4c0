"""Functions that are rewritten (`program.rewriting`): those in which a tracing has failed, as long as one goes on.

The new code of a function stands in the place of its own as long as any tracing goes on, so that whoever calls it, also
a layer of Keras, calls the new one. Outside, the function is what its programmer wrote.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import CodeType, FrameType, FunctionType
from typing import Final, TypeVar

from stratagem.program.captured_names import is_in_library
from stratagem.program.rewriting import CannotRewrite, codes_within, rewritten

_Result = TypeVar("_Result")


class Rewritten(BaseException):
    """Leaves a tracing that begins anew, with a function rewritten. Not an `Exception`: user code must not catch it."""


class _Rewritings:
    """The codes that have been rewritten, and the functions that have them, or have functions with them inside."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tracings = 0
        self._codes: dict[CodeType, CodeType] = {}
        self._new: set[CodeType] = set()
        self._in_the_source: dict[CodeType, CodeType] = {}
        """For a code with new ones inside, what it was."""
        self._originals: weakref.WeakKeyDictionary[FunctionType, CodeType] = weakref.WeakKeyDictionary()
        self.left_out: set[CodeType] = set()
        """Codes of functions that are not to be rewritten."""

    def add(self, code: CodeType) -> bool:
        """Rewrite a code, and put the new one in place; return whether anything was there to be done.

        Raises:
            CannotRewrite: It cannot be.
        """
        with self._lock:
            if code in self._new:
                return False
            code = self._in_the_source.get(code, code)
            is_new = code not in self._codes
            if is_new:
                self._codes[code] = rewritten(code)
                self._new.update(codes_within(self._codes[code]))
            holders = [each for each in gc.get_objects() if type(each) is FunctionType and self._holds(each, code)]
            for holder in holders:
                self._originals[holder] = holder.__code__
            self._put_in_place()
            return is_new or bool(holders)

    def _holds(self, function: FunctionType, code: CodeType) -> bool:
        own = function.__code__
        return own.co_filename == code.co_filename and function not in self._originals and code in codes_within(own)

    def is_new(self, code: CodeType) -> bool:
        """Whether a code is one that has been written here."""
        with self._lock:
            return code in self._new

    def enter(self) -> None:
        """Note that a tracing begins."""
        with self._lock:
            self._tracings += 1
            if self._tracings == 1:
                self._put_in_place()

    def leave(self) -> None:
        """Note that it ends."""
        with self._lock:
            self._tracings -= 1
            if self._tracings == 0:
                for function, code in self._originals.items():
                    function.__code__ = code

    def _put_in_place(self) -> None:
        for function, code in self._originals.items():
            function.__code__ = self._with_new(code)

    def _with_new(self, code: CodeType) -> CodeType:
        if code in self._codes:
            return self._codes[code]
        constants = tuple([self._with_new(c) if isinstance(c, CodeType) else c for c in code.co_consts])
        if constants == code.co_consts:
            return code
        new = code.replace(co_consts=constants)
        self._in_the_source[new] = code
        return new


_rewritings: Final = _Rewritings()
_met: ContextVar[set[CodeType] | None] = ContextVar("codes that another thread rewrote meanwhile", default=None)
_may_rewrite: ContextVar[bool] = ContextVar("whether functions are rewritten", default=True)


@contextlib.contextmanager
def rewritten_functions() -> Iterator[None]:
    """Let functions that have been rewritten run so in this context, in which something is traced."""
    _rewritings.enter()
    try:
        yield
    finally:
        _rewritings.leave()


@contextlib.contextmanager
def without_rewriting() -> Iterator[None]:
    """Rewrite no function in this context."""
    before = _may_rewrite.set(False)
    try:
        yield
    finally:
        _may_rewrite.reset(before)


def leave_as_it_is(code: CodeType) -> None:
    """Never rewrite the function that has this code, nor another one because of what it calls."""
    _rewritings.left_out.add(code)


def rewrite_loop(frame: FrameType) -> None:
    """Rewrite the function of the program that begins a loop, if it can be; else leave it as it is.

    Args:
        frame: That of the function.

    Raises:
        Rewritten: It has been: the tracing may begin anew.
    """
    code = frame.f_code
    if _met.get() is None or not _may_rewrite.get() or code.co_filename.startswith("<"):
        return
    callers = {each.f_code for each, _ in traceback.walk_stack(frame)}
    if is_in_library(code.co_filename) or not _rewritings.left_out.isdisjoint(callers):
        return
    with contextlib.suppress(CannotRewrite):
        if _rewritings.add(code) or _was_rewritten_meanwhile(code):
            raise Rewritten


def rewrite_what_failed(error: Exception) -> str:
    """Rewrite the innermost function of the program in which an error was raised.

    Args:
        error: One about the value of a tensor.

    Returns:
        Why it is not rewritten, for the message; nothing if it has been, and failed all the same.

    Raises:
        Rewritten: It has been: the tracing may begin anew.
    """
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [code for code in codes if not code.co_filename.startswith("<") and not is_in_library(code.co_filename)]
    if not own:
        return ""
    if not _may_rewrite.get() or not _rewritings.left_out.isdisjoint(own):
        return "; it is not to be rewritten (autograph=False, do_not_convert)"
    try:
        added = _rewritings.add(own[-1])
    except CannotRewrite as reason:
        return f"; {own[-1].co_qualname} is not rewritten, as {reason}"
    if added or _was_rewritten_meanwhile(own[-1]):
        raise Rewritten
    return ""


def _was_rewritten_meanwhile(code: CodeType) -> bool:
    """Whether another thread has rewritten a code while this tracing ran it as it was; once for each tracing."""
    met = _met.get()
    if met is None or code in met or _rewritings.is_new(code):
        return False
    met.add(code)
    return True


def tracing_anew(trace: Callable[[], _Result]) -> _Result:
    """Call a function that traces, again each time that a function has been rewritten."""
    before = _met.set(set())
    try:
        while True:
            try:
                return trace()
            except Rewritten:
                continue
    finally:
        _met.reset(before)
