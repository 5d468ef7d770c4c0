"""Exceptions of Stratagem: one class for each remedy.

A message has up to three parts, in this order: what was found (with its values, and which task found it), what would
have gone wrong where that is not plain, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

_REASON: Final = "  Why it matters: "
_REMEDY: Final = "  What to do: "


def explain(found: str, *parts: str) -> str:
    """Join the parts of an error message, so that they read alike everywhere.

    Args:
        found: What was found, with its values and the task that found it.
        parts: What to write or do instead; before it, where that is not plain, what would have gone wrong.

    Returns:
        One message, with a paragraph for each part.

    Example:
        >>> print(explain("batch_size is 0.", "Write batch_size=32."))
        batch_size is 0.
          What to do: Write batch_size=32.
        >>> print(explain("seed differs.", "Workers would shuffle differently.", "Write seed=1."))
        seed differs.
          Why it matters: Workers would shuffle differently.
          What to do: Write seed=1.
    """
    headings = (_REASON, _REMEDY)[-len(parts) :] if parts else ()
    return "\n".join([found, *(f"{heading}{part}" for heading, part in zip(headings, parts, strict=True))])


def is_explanation(text: str) -> bool:
    """Whether a text says what to do, as `explain` writes it."""
    return f"\n{_REMEDY}" in text


def name_some(names: Iterable[str], most: int = 16, separator: str = ", ") -> str:
    """Join the first of many names for a message.

    Args:
        names: The names.
        most: How many of them to show.
        separator: What stands between two of them.

    Example:
        >>> name_some(["worker 1", "worker 2", "worker 3"], most=2)
        'worker 1, worker 2 and 1 more'
    """
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return separator.join(listed[:most]) + more


class StratagemError(Exception):
    """Base of every error that Stratagem raises on purpose.

    Args:
        found: The problem that was found.
        parts: The other parts of the message, as `explain` takes them.

    Attributes:
        is_of_peer: Whether another task raised the cause, so that its traceback is the one to show.
    """

    is_of_peer = False

    def __init__(self, found: str, *parts: str) -> None:
        super().__init__(explain(found, *parts))

    def of_peer(self) -> Self:
        """Return this error, marked as one whose cause another task raised."""
        self.is_of_peer = True
        return self


class ClusterError(StratagemError, ValueError):
    """The description of the cluster is wrong. Remedy: correct TF_CONFIG, the resolver or the command."""


class StartupError(StratagemError, RuntimeError):
    """The cluster could not start: a task is missing, or a port is busy. Remedy: repair the host and start again."""


class PeerError(StratagemError, RuntimeError):
    """The tasks disagree, or one did not arrive in time. Remedy: run the same program on every task."""


class UsageError(StratagemError, RuntimeError):
    """A call is in the wrong place or order. Remedy: move it, as the message shows."""


class BackendError(UsageError, ImportError):
    """Keras uses, or would use, another backend than JAX. Remedy: set KERAS_BACKEND=jax, or import stratagem first."""


class VersionError(StratagemError, ImportError):
    """The installed release of JAX or Keras is not supported. Remedy: install a tested release."""


class InputError(StratagemError, ValueError):
    """A value cannot be used as it is. Remedy: change the value, as the message shows."""


class UnsupportedError(InputError, NotImplementedError):
    """A strategy or an operation does not support its argument. Remedy: change it, as the message shows."""


class UnavailableError(StratagemError, ConnectionError):
    """A task cannot be reached (`tf.errors.UnavailableError`). Remedy: restart the task or the whole cluster."""


class RefusedError(StratagemError, PermissionError):
    """A task refused a request. Remedy: send it from a task that is allowed to, as the message shows."""


class CancelledError(StratagemError, RuntimeError):
    """A function was aborted because another one failed (`tf.errors.CancelledError`). Remedy: fix that one."""


class OutOfRangeError(StratagemError, LookupError):
    """The data has ended (`tf.errors.OutOfRangeError`). Remedy: leave the loop, or start a new pass."""


class ReaderError(StratagemError, RuntimeError):
    """A reader process ended. Remedy: fix the function of the dataset, give it more memory, or use threads."""


class CheckpointError(StratagemError, OSError):
    """A checkpoint cannot be written or read. Remedy: repair the disk, or choose another checkpoint."""


class UnmatchedError(StratagemError, AssertionError):
    """A checkpoint does not match the program's objects. Remedy: make the same objects, or call `expect_partial()`."""
