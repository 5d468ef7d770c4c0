"""Older names that tutorials use (`tf.distribute.experimental`, `tf.keras.utils.experimental`)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import stratagem.core.needs_jax  # noqa: F401 - before Keras
from stratagem.checkpoint.preemption import PreemptionCheckpointHandler, TerminationConfig
from stratagem.core.types import CommunicationImplementation, CommunicationOptions, ValueContext
from stratagem.feed.functions import DatasetCreator
from stratagem.strategy.central_storage import CentralStorageStrategy
from stratagem.strategy.multi_worker_mirrored import (
    ExperimentalMultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from stratagem.strategy.tpu import TPUStrategy

if TYPE_CHECKING:
    from stratagem import coordinator as coordinator
    from stratagem.ps import partitioners as partitioners
    from stratagem.strategy.parameter_server import ParameterServerStrategy as ParameterServerStrategy

CollectiveCommunication = CommunicationImplementation
CollectiveHints = CommunicationOptions

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "DatasetCreator",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "PreemptionCheckpointHandler",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
    "coordinator",
    "partitioners",
]


def __getattr__(name: str) -> Any:
    """Load what needs ZeroMQ when it is first named; most programs do without."""
    if name == "ParameterServerStrategy":
        return importlib.import_module("stratagem.strategy.parameter_server").ParameterServerStrategy
    if name == "coordinator":
        return importlib.import_module("stratagem.coordinator")
    if name == "partitioners":
        return importlib.import_module("stratagem.ps.partitioners")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
