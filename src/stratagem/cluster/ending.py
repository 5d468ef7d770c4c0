"""The end of a process of a running cluster before its time: who is told, what is shown, with which exit code.

JAX's exit handler waits for all processes at a barrier. After an exception the others are not on their way to
it: they wait for this one in a collective, until the barrier gives up after minutes. So a failed process tells
the others why (`lifeline`), and all leave at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Final

import jax

from stratagem.cluster.hello import Peer
from stratagem.cluster.lifeline import End, Lifeline
from stratagem.core import exits
from stratagem.core.errors import StartupError, StratagemError, explain, is_explanation

NEWS_SECONDS: Final = 2.0
"""How long a failed collective waits for the news of who is gone. It comes within milliseconds."""

STUCK_OUTPUT_SECONDS: Final = 3.0
"""How long the last words may take to be written; somebody may have stopped reading."""

_STATUS: Final = re.compile("(ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION|INTERNAL|UNAVAILABLE|UNKNOWN): ")
"""How the runtime's errors begin."""

LAST_SECONDS: Final = 20.0
"""How long the thread of the lifeline has to end this process, before the exception does after all."""

_STDOUT: Final = 1
_STDERR: Final = 2
"""Where native code writes its messages, whatever `sys.stderr` is."""

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def leave_at_once_on_failure(
    name: str, lifeline: Callable[[], Lifeline | None], leave: Callable[[int], object] = os._exit
) -> None:
    """Make an uncaught exception tell the peers and end this process without waiting for them.

    Args:
        name: Which process this is; printed above the traceback.
        lifeline: Returns the connection to the peers once there is one.
        leave: How to leave, given an exit code.
    """
    show = sys.excepthook

    def leave_after_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        peers = lifeline()
        if is_interactive() or (peers is None and not isinstance(error, StartupError)):
            show(kind, error, trace)
            return
        if peers is not None and not _is_first_to_end(peers, error):
            # The thread of the lifeline says who is gone, and ends this process. A traceback out of the
            # collective, which would only say that some connection was closed, is not the reason.
            threading.Event().wait(LAST_SECONDS)
        code = exit_code(error)
        try:
            print(f"stratagem: {name} failed:", file=sys.stderr)
            show(kind, error, trace)
            flush_output()
            if peers is not None:
                peers.fail(f"{name} failed: {_last_words(error)}")
        finally:
            leave(code)

    sys.excepthook = leave_after_traceback


def _last_words(error: BaseException) -> str:
    """Return the exception in words; of its notes those that say what to do, and not JAX's about tracebacks."""
    formatted = traceback.TracebackException(type(error), error, None)
    formatted.__notes__ = None
    words = list(formatted.format_exception_only())[-1].strip()
    notes: list[str] = getattr(error, "__notes__", [])
    return "\n".join([words, *filter(is_explanation, notes)])


def exit_code(error: BaseException) -> int:
    """Return the exit code of a process that an exception ends.

    Args:
        error: The exception.
    """
    if isinstance(error, KeyboardInterrupt):
        return exits.INTERRUPTED
    of_others = isinstance(error, StartupError) or _is_of_peer(error) or _is_of_reader(error)
    return exits.PEER_LOST if of_others else exits.FAILED


def show_end(own: Peer, position: int, end: End) -> None:
    """Print why this process ends, and where it hangs if it does.

    Args:
        own: This process.
        position: Which of the processes it is.
        end: Why.
    """
    # The reader of our output may have stopped, and the end must not depend on it.
    guard = threading.Timer(STUCK_OUTPUT_SECONDS, leave, [end.code])
    guard.daemon = True
    guard.start()
    has_ended = position in end.stuck and end.code == exits.PEER_LOST
    look = (
        "Fix the error that those tasks show. If they show none, let all of them make the same calls (is fit, "
        "evaluate, predict, reduce or save under `if strategy.is_chief`?)"
        if end.code == exits.PEER_LOST
        else "See what those tasks do"
    )
    remedy = end.remedy or f"{look}; start the group again (`stratagem run --max-restarts` does)."
    text = explain(
        end.found,
        "Every step needs every task, so the group ends."
        if has_ended
        else f"Every step needs every task, so {own} ends too, with exit code {end.code}.",
        remedy,
    )
    if position in end.stuck and end.code == exits.HUNG:
        print(f"{own} is here:\n{_stacks({threading.get_ident(), guard.ident})}", file=sys.stderr, flush=True)
    print(f"stratagem: {text}", file=sys.stderr, flush=True)  # last: the launcher repeats the last lines
    sys.stdout.flush()
    guard.cancel()
    if not has_ended and not is_interactive():
        _fall_silent()


def _fall_silent() -> None:
    """Let nothing be written below the last words: JAX's client has its own when its service is gone, and aborts."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDERR)
    os.close(nowhere)


def _stacks(without: Collection[int | None]) -> str:
    """Return where each thread is, but for some; the main thread last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    idents = sorted(frames.keys() - without, key=lambda ident: ident == threading.main_thread().ident)
    stacks = [f"Thread {names.get(i, i)!r}:\n{''.join(traceback.format_stack(frames[i]))}" for i in idents]
    return "".join(stacks)


def flush_output() -> None:
    """Write what is buffered, unless nobody reads it: a launcher may be gone."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()


def leave(code: int) -> None:
    """End this process at once, unless a person types at its prompt."""
    if not is_interactive():
        os._exit(code)


def is_interactive() -> bool:
    """Whether a person types at a prompt, where an exception ends nothing."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _is_first_to_end(peers: Lifeline, error: BaseException) -> bool:
    """Whether this exception is the reason to end, not that of a peer."""
    if _is_of_peer(error) or any(map(_is_of_runtime, _chain(error))):
        peers.wait_for_news(NEWS_SECONDS)
    return peers.claim_end()


def _is_of_peer(error: BaseException) -> bool:
    """Whether another task has the cause, and shows its traceback."""
    return isinstance(error, StratagemError) and error.is_of_peer


def _is_of_reader(error: BaseException) -> bool:
    """Whether it comes from a write to this process's output, which nobody reads if the launcher was killed.

    The launcher's guard ends this process. But a worker that is told to leave continues until its state is saved.
    """
    return isinstance(error, BrokenPipeError) and not all(map(_is_read, (_STDOUT, _STDERR)))


def _is_read(descriptor: int) -> bool:
    """Whether what is written there can come to anybody."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not any(events & select.POLLERR for _, events in poll.poll(0))


def _is_of_runtime(error: BaseException) -> bool:
    """Whether JAX's runtime raised it. In the first run of a program its errors come as ValueErrors."""
    is_status = isinstance(error, ValueError) and _STATUS.match(str(error)) is not None
    return is_status or isinstance(error, jax.errors.JaxRuntimeError)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
