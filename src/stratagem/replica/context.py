"""Where the program stands: which strategy's scope, and whether inside a replica function.

The functions of this file are `tf.distribute.has_strategy`, `in_cross_replica_context` and
`experimental_set_strategy`; those that know the default strategy stand in `strategy.default`
(https://www.tensorflow.org/api_docs/python/tf/distribute).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.core.errors import UsageError, explain
from stratagem.core.types import ReduceOp
from stratagem.replica.exchange import Exchange, Share
from stratagem.replica.mesh import AXIS, ReplicaMesh, Tree
from stratagem.replica.packs import sum_over_replicas


class StrategyLike(Protocol):
    """What the lower layers need to know of a strategy."""

    mesh: ReplicaMesh
    pack_bytes: int | None

    @property
    def num_replicas_in_sync(self) -> int: ...

    @property
    def is_chief(self) -> bool: ...

    worker_count: int
    worker_index: int

    def from_chief(self, name: str, value: Any) -> Any: ...

    def from_all(self, name: str, value: Any) -> list[Any]: ...

    def check_agreement(self, name: str, fields: Mapping[str, str | int]) -> None: ...


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.scopes: list[StrategyLike] = []
        self.replicas: list[ReplicaContext | None] = []


_stacks = _Stacks()
_global_strategy: list[StrategyLike] = []


class ReplicaContext:
    """The view of one replica inside a step (`tf.distribute.ReplicaContext`).

    Args:
        strategy: The strategy whose step this is.
        share: This replica's part of the batch.
        exchange: How values cross replicas.
        mean_gradients: True inside `fit`, where each replica's loss is the mean over its rows and
            gradients are averaged by row; False inside `run`, where gradients are summed and the
            program scales its loss.
    """

    def __init__(self, strategy: StrategyLike, share: Share, exchange: Exchange, *, mean_gradients: bool) -> None:
        self.strategy = strategy
        self.share = share
        self.exchange = exchange
        self.mean_gradients = mean_gradients
        self.applying_gradients = False

    @property
    def replica_id_in_sync_group(self) -> jax.Array:
        """Id of this replica, 0 to `num_replicas_in_sync - 1`: a traced int32 scalar."""
        return lax.axis_index(AXIS) if self.strategy.mesh.size > 1 else jnp.zeros((), jnp.int32)

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas run this step."""
        return self.strategy.num_replicas_in_sync

    def sum(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Sum values over all replicas, in packs; replicas without rows add nothing.

        Args:
            values: Arrays of any shapes, the same on every replica.
        """
        if self.strategy.mesh.size == 1:
            return list(values)
        return self.exchange.call(self._summed, list(values))

    def _summed(self, values: list[jax.Array]) -> list[jax.Array]:
        present = [self.share.masked(jnp.asarray(value)) for value in values]
        return sum_over_replicas(present, self.strategy.pack_bytes)

    def differentiable_sum(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Sum values over replicas where a gradient is taken through the sum.

        The loss that is minimised is the weighted sum of the replicas' losses, so cotangents of the
        others count with their weights, relative to this replica's own.

        Args:
            values: Floating-point arrays, the same shapes on every replica.
        """
        # The sum itself stands outside: JAX traces a function with its own derivative apart, and an exchange of an
        # uneven batch cannot leave such a trace.
        sums = self.sum([lax.stop_gradient(value) for value in values])

        @jax.custom_vjp
        def total(operands: list[jax.Array], sums: list[jax.Array]) -> list[jax.Array]:
            return sums

        def forward(operands: list[jax.Array], sums: list[jax.Array]) -> tuple[list[jax.Array], None]:
            return sums, None

        def backward(_: None, cotangents: list[jax.Array]) -> tuple[list[jax.Array], None]:
            weight = self.share.weight if self.mean_gradients else 1.0
            summed = self.sum([ct * jnp.asarray(weight, ct.dtype) for ct in cotangents])
            return [jnp.where(weight > 0, ct / jnp.asarray(weight, ct.dtype), 0) for ct in summed], None

        total.defvjp(forward, backward)
        return total(list(values), sums)

    def all_reduce(self, reduce_op: ReduceOp | str, value: Tree) -> Tree:
        """Combine a value over all replicas; every replica gets the result.

        Args:
            reduce_op: SUM, MEAN, MIN or MAX.
            value: Nested structure of arrays, the same on every replica.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> float(strategy.run(lambda: stratagem.get_replica_context().all_reduce("sum", 2.0)))
            2.0
        """
        op = ReduceOp.of(reduce_op)
        leaves, structure = jax.tree.flatten(value)
        arrays = [jnp.asarray(leaf) for leaf in leaves]
        if self.strategy.mesh.size == 1:
            return structure.unflatten(arrays)
        if op in (ReduceOp.MIN, ReduceOp.MAX):
            collective = lax.pmin if op is ReduceOp.MIN else lax.pmax
            combined = self.exchange.call(lambda operands: [collective(o, AXIS) for o in operands], arrays)
        else:
            combined = self.differentiable_sum(arrays)
            if op is ReduceOp.MEAN:
                combined = [c / self.num_replicas_in_sync for c in combined]
        return structure.unflatten(combined)

    def all_gather(self, value: Tree, axis: int) -> Tree:
        """Concatenate a value of all replicas along an axis; every replica gets the result.

        Args:
            value: Nested structure of arrays of rank 1 or more, the same on every replica.
            axis: Axis to concatenate along.
        """
        if self.strategy.mesh.size == 1:
            return value
        return self.exchange.call(
            lambda operand: jax.tree.map(lambda leaf: lax.all_gather(leaf, AXIS, axis=axis, tiled=True), operand), value
        )


@contextlib.contextmanager
def strategy_scope(strategy: StrategyLike) -> Iterator[None]:
    """Make `strategy` the current one.

    Raises:
        UsageError: Another strategy's scope is open.
    """
    current = _stacks.scopes[-1] if _stacks.scopes else None
    if current is not None and current is not strategy:
        raise UsageError(
            explain(
                f"The scope of {type(strategy).__name__} was entered inside the scope of {type(current).__name__}.",
                "Variables of the two strategies would lie on different sets of devices.",
                "Use one strategy, and leave its scope before entering another.",
            )
        )
    _stacks.scopes.append(strategy)
    try:
        yield
    finally:
        _stacks.scopes.pop()


@contextlib.contextmanager
def replica_context(context: ReplicaContext | None) -> Iterator[None]:
    """Make `context` the current replica context while a step is traced."""
    _stacks.replicas.append(context)
    try:
        yield
    finally:
        _stacks.replicas.pop()


def current_replica_context() -> ReplicaContext | None:
    """Return the context of the step that is being traced, or None outside any."""
    return _stacks.replicas[-1] if _stacks.replicas else None


def current_strategy() -> Any:
    """Return the strategy of the current scope or step, or None outside both."""
    if _stacks.scopes:
        return _stacks.scopes[-1]
    context = current_replica_context()
    if context is not None:
        return context.strategy
    return _global_strategy[-1] if _global_strategy else None


def has_strategy() -> bool:
    """Whether a strategy other than the default one is current."""
    return current_strategy() is not None


def in_cross_replica_context() -> bool:
    """Whether values of all replicas can be combined here: in a scope, outside `run`."""
    return has_strategy() and current_replica_context() is None


def experimental_set_strategy(strategy: StrategyLike | None) -> None:
    """Make a strategy current for the whole program, as notebooks do; None undoes it.

    Args:
        strategy: The strategy, or None.

    Raises:
        UsageError: Called inside a `with strategy.scope()` block.
    """
    if _stacks.scopes:
        raise UsageError(
            explain(
                "experimental_set_strategy was called inside a `with strategy.scope()` block.",
                "It would be undone, or undo the block, at an unexpected moment.",
                "Call it outside the block, or use only the block.",
            )
        )
    _global_strategy[:] = [] if strategy is None else [strategy]
