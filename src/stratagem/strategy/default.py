"""The strategy that holds outside every scope, and the functions that fall back on it."""

from __future__ import annotations

import functools
from typing import Any

from stratagem.mesh.exchange import Exchange, Share
from stratagem.replica.context import ReplicaContext, current_replica_context, current_strategy, has_strategy
from stratagem.strategy.base import one_replica


def get_strategy() -> Any:
    """Return the strategy of the current scope; outside every scope, the default one.

    The default strategy has one replica and changes nothing
    (https://www.tensorflow.org/api_docs/python/tf/distribute/get_strategy).

    Example:
        >>> import stratagem
        >>> stratagem.get_strategy().num_replicas_in_sync
        1
    """
    strategy = current_strategy()
    return one_replica() if strategy is None else strategy


def get_replica_context() -> ReplicaContext | None:
    """Return the current `ReplicaContext`; None in a scope outside `run`.

    Outside every scope there is one replica, whose context is returned
    (https://www.tensorflow.org/api_docs/python/tf/distribute/get_replica_context).

    Example:
        >>> import stratagem
        >>> stratagem.get_replica_context().num_replicas_in_sync
        1
    """
    context = current_replica_context()
    return context if context is not None or has_strategy() else _only_context()


@functools.cache
def _only_context() -> ReplicaContext:
    """Return the context outside every scope: always the same, as programs compare it."""
    share = Share(rows=1, global_rows=1, weight=1.0)
    return ReplicaContext(one_replica(), share, Exchange(), mean_gradients=False)
