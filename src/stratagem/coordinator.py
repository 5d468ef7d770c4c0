"""Scheduling of functions on a cluster with parameter servers (`tf.distribute.coordinator`)."""

import stratagem.core.needs_jax  # noqa: F401 - before Keras
from stratagem.ps.coordinator import (
    ClusterCoordinator,
    PerWorkerValue,
    PerWorkerValues,
    RemoteValue,
    experimental_get_current_worker_index,
)

__all__ = [
    "ClusterCoordinator",
    "PerWorkerValue",
    "PerWorkerValues",
    "RemoteValue",
    "experimental_get_current_worker_index",
]
