"""Checkpoints that open under any strategy and number of devices, and `Example` (`tf.train`)."""

from __future__ import annotations

import importlib
from typing import Any

import stratagem.core.needs_jax  # noqa: F401 - before Keras
from stratagem.checkpoint.checkpoint import Checkpoint, CheckpointOptions
from stratagem.checkpoint.checkpoints_iterator import checkpoints_iterator
from stratagem.checkpoint.manager import CheckpointManager
from stratagem.checkpoint.preemption import PreemptionCheckpointHandler, TerminationConfig
from stratagem.checkpoint.restoration import CheckpointLoadStatus
from stratagem.checkpoint.sidecar import SidecarEvaluator
from stratagem.checkpoint.state_file import latest_checkpoint
from stratagem.cluster.spec import ClusterSpec
from stratagem.core.example import MESSAGES, message

BytesList: Any
Example: Any
Feature: Any
Features: Any
FloatList: Any
Int64List: Any
Server: Any

__all__ = [
    "BytesList",
    "Checkpoint",
    "CheckpointLoadStatus",
    "CheckpointManager",
    "CheckpointOptions",
    "ClusterSpec",
    "Example",
    "Feature",
    "Features",
    "FloatList",
    "Int64List",
    "PreemptionCheckpointHandler",
    "Server",
    "SidecarEvaluator",
    "TerminationConfig",
    "checkpoints_iterator",
    "latest_checkpoint",
]


def __getattr__(name: str) -> Any:
    # The messages are made by protobuf, which only who uses them needs.
    if name in MESSAGES:
        return message(name)
    if name == "Server":  # needs ZeroMQ, which most programs do without
        return importlib.import_module("stratagem.ps.serving").Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
