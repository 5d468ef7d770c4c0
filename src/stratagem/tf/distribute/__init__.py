"""`tf.distribute`: the strategies, and what a custom loop asks of them."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    # modules
    "cluster_resolver": "stratagem.tf.distribute.cluster_resolver",
    "coordinator": "stratagem.tf.distribute.coordinator",
    "experimental": "stratagem.tf.distribute.experimental",
    # what has a home of its own
    "Server": "stratagem.train:Server",
    "StrategyExtended": "stratagem.strategy.extended:StrategyExtended",
    # what is stratagem's by the same name
    **{
        name: f"stratagem:{name}"
        for name in (
            "CrossDeviceOps",
            "DistributedDataset",
            "DistributedIterator",
            "DistributedValues",
            "HierarchicalCopyAllReduce",
            "InputContext",
            "InputOptions",
            "InputReplicationMode",
            "MirroredStrategy",
            "MultiWorkerMirroredStrategy",
            "NcclAllReduce",
            "OneDeviceStrategy",
            "ParameterServerStrategy",
            "ReduceOp",
            "ReductionToOneDevice",
            "ReplicaContext",
            "RunOptions",
            "Strategy",
            "TPUStrategy",
            "experimental_set_strategy",
            "get_replica_context",
            "get_strategy",
            "has_strategy",
            "in_cross_replica_context",
        )
    },
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
