"""The exceptions of Stratagem: one class for each remedy.

Every message has three parts, in this order: what was found (with its values, and which
task found it), what would have gone wrong, and what to write instead. `explain` puts the
parts together, so that they read alike everywhere.
"""

from __future__ import annotations


class StratagemError(Exception):
    """Base of every error that Stratagem raises on purpose."""


class ClusterError(StratagemError, ValueError):
    """The description of the cluster is wrong. Remedy: correct TF_CONFIG, the resolver or the command."""


class StartupError(StratagemError, RuntimeError):
    """The cluster could not come up: a peer is missing, a port is busy. Remedy: mend the host, start again."""


class PeerError(StratagemError, RuntimeError):
    """The tasks disagree, or one did not arrive in time. Remedy: run the same program on every task."""


class UsageError(StratagemError, RuntimeError):
    """A call stands in the wrong place or order. Remedy: move it, as the message shows."""


class BackendError(UsageError, ImportError):
    """Keras has, or would get, another backend than JAX. Remedy: KERAS_BACKEND=jax, or `import stratagem` first."""


class VersionError(StratagemError, ImportError):
    """JAX or Keras is of a release that lacks what Stratagem stands on. Remedy: install one that was tested."""


class InputError(StratagemError, ValueError):
    """A value cannot be used as it is. Remedy: change the value, as the message shows."""


class UnavailableError(StratagemError, ConnectionError):
    """A task cannot be reached (`tf.errors.UnavailableError`). Remedy: start it, or the whole cluster, again."""


class RefusedError(StratagemError, PermissionError):
    """A task would not do what was asked. Remedy: ask from a task that may, as the message shows."""


class CancelledError(StratagemError, RuntimeError):
    """A function was given up because another failed (`tf.errors.CancelledError`). Remedy: mend that one."""


class OutOfRangeError(StratagemError, LookupError):
    """The data has ended (`tf.errors.OutOfRangeError`). Remedy: leave the loop, or begin a new pass."""


class ReaderError(StratagemError, RuntimeError):
    """A reader process ended. Remedy: mend the function of the dataset, give it more memory, or use none."""


class CheckpointError(StratagemError, OSError):
    """A checkpoint cannot be written or read. Remedy: mend the disk, or choose another checkpoint."""


class UnmatchedError(StratagemError, AssertionError):
    """A checkpoint and the program's objects do not fit. Remedy: make the same objects, or `expect_partial()`."""


def explain(found: str, consequence: str, remedy: str) -> str:
    """Join the three parts of an error message.

    Args:
        found: What was found, with its values and the task that found it.
        consequence: What would have gone wrong had the program gone on.
        remedy: What to write or do instead.

    Returns:
        One message of three paragraphs.

    Example:
        >>> print(explain("batch_size is 0.", "No step could run.", "Write batch_size=32."))
        batch_size is 0.
          Why it matters: No step could run.
          What to do: Write batch_size=32.
    """
    return f"{found}\n  Why it matters: {consequence}\n  What to do: {remedy}"
