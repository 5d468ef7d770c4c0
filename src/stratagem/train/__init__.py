"""Checkpoints that open under any strategy, on any number of devices: the counterpart of `tf.train`."""

from __future__ import annotations

from stratagem.train.checkpoint import Checkpoint, CheckpointOptions
from stratagem.train.following import checkpoints_iterator
from stratagem.train.manager import CheckpointManager
from stratagem.train.preemption import PreemptionCheckpointHandler, TerminationConfig
from stratagem.train.restoration import CheckpointLoadStatus
from stratagem.train.sidecar import SidecarEvaluator
from stratagem.train.state_file import latest_checkpoint

__all__ = [
    "Checkpoint",
    "CheckpointLoadStatus",
    "CheckpointManager",
    "CheckpointOptions",
    "PreemptionCheckpointHandler",
    "SidecarEvaluator",
    "TerminationConfig",
    "checkpoints_iterator",
    "latest_checkpoint",
]
