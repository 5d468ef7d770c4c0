"""The errors of Stratagem, to be caught by name (as `tf.errors`): one class for each remedy."""

from __future__ import annotations

from stratagem.core.errors import (
    ClusterError,
    InputError,
    OutOfRangeError,
    PeerError,
    ReaderError,
    StartupError,
    StratagemError,
    UsageError,
)

__all__ = [
    "ClusterError",
    "InputError",
    "OutOfRangeError",
    "PeerError",
    "ReaderError",
    "StartupError",
    "StratagemError",
    "UsageError",
]
