"""Distribution strategies for Keras 3, on JAX: the programming model of `tf.distribute`.

Importing Stratagem has one effect: if Keras is not loaded yet, it will use JAX. If KERAS_BACKEND asks for another
backend, the import raises an error that says so. Everything else is loaded when you first name it, including Keras:
`from stratagem import keras`.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from stratagem.core.backend import require_jax_backend, settle_backend

if TYPE_CHECKING:
    import keras as keras

    from stratagem import callbacks as callbacks
    from stratagem import cluster_resolver as cluster_resolver
    from stratagem import coordinator as coordinator
    from stratagem import data as data
    from stratagem import errors as errors
    from stratagem import estimator as estimator
    from stratagem import experimental as experimental
    from stratagem import io as io
    from stratagem import nn as nn
    from stratagem import testing as testing
    from stratagem import train as train
    from stratagem.backup.elastic_state import ElasticState as ElasticState
    from stratagem.core.types import CommunicationImplementation as CommunicationImplementation
    from stratagem.core.types import CommunicationOptions as CommunicationOptions
    from stratagem.core.types import InputContext as InputContext
    from stratagem.core.types import InputOptions as InputOptions
    from stratagem.core.types import InputReplicationMode as InputReplicationMode
    from stratagem.core.types import ReduceOp as ReduceOp
    from stratagem.core.types import RunOptions as RunOptions
    from stratagem.elastic.options import ElasticOptions as ElasticOptions
    from stratagem.feed.distributed import DistributedDataset as DistributedDataset
    from stratagem.feed.distributed import DistributedIterator as DistributedIterator
    from stratagem.loop.function import function as function
    from stratagem.loop.grads import value_and_grad as value_and_grad
    from stratagem.loop.tape import GradientTape as GradientTape
    from stratagem.loop.tape import UnconnectedGradients as UnconnectedGradients
    from stratagem.mesh.values import DistributedValues as DistributedValues
    from stratagem.mesh.values import PerReplica as PerReplica
    from stratagem.replica.context import ReplicaContext as ReplicaContext
    from stratagem.replica.context import experimental_set_strategy as experimental_set_strategy
    from stratagem.replica.context import has_strategy as has_strategy
    from stratagem.replica.context import in_cross_replica_context as in_cross_replica_context
    from stratagem.strategy.base import Strategy as Strategy
    from stratagem.strategy.central_storage import CentralStorageStrategy as CentralStorageStrategy
    from stratagem.strategy.cross_device import CrossDeviceOps as CrossDeviceOps
    from stratagem.strategy.cross_device import HierarchicalCopyAllReduce as HierarchicalCopyAllReduce
    from stratagem.strategy.cross_device import NcclAllReduce as NcclAllReduce
    from stratagem.strategy.cross_device import ReductionToOneDevice as ReductionToOneDevice
    from stratagem.strategy.default import get_replica_context as get_replica_context
    from stratagem.strategy.default import get_strategy as get_strategy
    from stratagem.strategy.mirrored import MirroredStrategy as MirroredStrategy
    from stratagem.strategy.multi_worker_mirrored import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
    from stratagem.strategy.one_device import OneDeviceStrategy as OneDeviceStrategy
    from stratagem.strategy.parameter_server import ParameterServerStrategy as ParameterServerStrategy
    from stratagem.strategy.tpu import TPUStrategy as TPUStrategy

    __version__: str

_NAMES = {
    "core.types": (
        *("CommunicationImplementation", "CommunicationOptions", "InputContext", "InputOptions"),
        *("InputReplicationMode", "ReduceOp", "RunOptions"),
    ),
    "backup.elastic_state": ("ElasticState",),
    "elastic.options": ("ElasticOptions",),
    "feed.distributed": ("DistributedDataset", "DistributedIterator"),
    "loop.function": ("function",),
    "loop.grads": ("value_and_grad",),
    "loop.tape": ("GradientTape", "UnconnectedGradients"),
    "mesh.values": ("DistributedValues", "PerReplica"),
    "replica.context": ("ReplicaContext", "experimental_set_strategy", "has_strategy", "in_cross_replica_context"),
    "strategy.base": ("Strategy",),
    "strategy.central_storage": ("CentralStorageStrategy",),
    "strategy.cross_device": ("CrossDeviceOps", "HierarchicalCopyAllReduce", "NcclAllReduce", "ReductionToOneDevice"),
    "strategy.default": ("get_replica_context", "get_strategy"),
    "strategy.mirrored": ("MirroredStrategy",),
    "strategy.multi_worker_mirrored": ("MultiWorkerMirroredStrategy",),
    "strategy.one_device": ("OneDeviceStrategy",),
    "strategy.parameter_server": ("ParameterServerStrategy",),
    "strategy.tpu": ("TPUStrategy",),
}
"""Public names, by the module below `stratagem` that has them."""

_HOMES = {name: f"stratagem.{home}" for home, names in _NAMES.items() for name in names}
_MODULES = (
    *("callbacks", "cluster_resolver", "coordinator", "data", "errors", "estimator"),
    *("experimental", "io", "keras", "nn", "testing", "train"),
)
"""Public modules."""

__all__ = [*_HOMES, *_MODULES]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]

settle_backend()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        if not _HOMES[name].startswith("stratagem.core"):
            require_jax_backend()
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name == "__version__":
        value = _version()
    elif name in _MODULES:
        value = importlib.import_module(f"stratagem.{name}")
    else:
        raise AttributeError(f"module 'stratagem' has no attribute {name!r}.{_hint(name)}", name=name)
    globals()[name] = value
    return value


def _version() -> str:
    """Return the version that was installed. Looking it up takes 20 ms, so it waits until somebody asks."""
    metadata = importlib.import_module("importlib.metadata")
    try:
        return metadata.version("stratagem")
    except metadata.PackageNotFoundError:  # sources on the PYTHONPATH
        return "0+unknown"


def _hint(name: str) -> str:
    """Return what to write in place of a name that is not here."""
    close = difflib.get_close_matches(name, __all__, n=1, cutoff=0.8)
    if close:
        return f" Did you mean stratagem.{close[0]}?"
    return "" if name.startswith("_") else " TensorFlow's names are in stratagem.tf: import stratagem.tf as tf"


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
