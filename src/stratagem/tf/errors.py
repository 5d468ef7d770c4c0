"""`tf.errors`: the names by which programs catch what goes wrong.

A loop that catches `UnavailableError`, `AbortedError` or `OutOfRangeError` works as it did. Errors of the operating
system keep Python's classes. Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/errors
"""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "AbortedError": "stratagem.core.errors:PeerError",
    "AlreadyExistsError": "builtins:FileExistsError",
    "CancelledError": "stratagem.core.errors:CancelledError",
    "DataLossError": "stratagem.core.errors:CheckpointError",
    "DeadlineExceededError": "stratagem.core.errors:PeerError",
    "FailedPreconditionError": "stratagem.core.errors:UsageError",
    "InternalError": "jax.errors:JaxRuntimeError",
    "InvalidArgumentError": "stratagem.core.errors:InputError",
    "NotFoundError": "builtins:FileNotFoundError",
    "OpError": "stratagem.core.errors:StratagemError",
    "OutOfRangeError": "stratagem.core.errors:OutOfRangeError",
    "PermissionDeniedError": "builtins:PermissionError",
    "ResourceExhaustedError": "jax.errors:JaxRuntimeError",
    "UnavailableError": "stratagem.core.errors:UnavailableError",
    "UnimplementedError": "builtins:NotImplementedError",
    "UnknownError": "jax.errors:JaxRuntimeError",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
