"""The exceptions of Stratagem, one class for each remedy (as `tf.errors`)."""

from stratagem.core.errors import (
    BackendError,
    CancelledError,
    CheckpointError,
    ClusterError,
    InputError,
    OutOfRangeError,
    PeerError,
    ReaderError,
    RefusedError,
    StartupError,
    StratagemError,
    UnavailableError,
    UnmatchedError,
    UnsupportedError,
    UsageError,
    VersionError,
)

__all__ = [
    "BackendError",
    "CancelledError",
    "CheckpointError",
    "ClusterError",
    "InputError",
    "OutOfRangeError",
    "PeerError",
    "ReaderError",
    "RefusedError",
    "StartupError",
    "StratagemError",
    "UnavailableError",
    "UnmatchedError",
    "UnsupportedError",
    "UsageError",
    "VersionError",
]
