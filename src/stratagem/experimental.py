"""Old spellings that tutorials use (`tf.distribute.experimental`)."""

from __future__ import annotations

from stratagem.core.types import CommunicationImplementation, CommunicationOptions, ValueContext
from stratagem.strategy.multi_worker_mirrored import (
    ExperimentalMultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from stratagem.strategy.tpu import TPUStrategy
from stratagem.train.preemption import PreemptionCheckpointHandler, TerminationConfig

CollectiveCommunication = CommunicationImplementation
CollectiveHints = CommunicationOptions

__all__ = [
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "PreemptionCheckpointHandler",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
]
