"""Context of the program: which strategy's scope it is in, and whether inside a replica function.

It has `tf.distribute.has_strategy`, `in_cross_replica_context` and `experimental_set_strategy`; functions that
know the default strategy are in `strategy.default`
(https://www.tensorflow.org/api_docs/python/tf/distribute).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from stratagem.compression.methods import Compression
from stratagem.core import patches
from stratagem.core.advancing import ask_before_reading
from stratagem.core.errors import InputError, UsageError
from stratagem.core.patches import Extent
from stratagem.core.types import ReduceOp
from stratagem.mesh.crossings import as_operand, bounds, checked_axis, gathered, is_floating, linked, own_part
from stratagem.mesh.exchange import Crossing, Exchange, Ragged, Share
from stratagem.mesh.mesh import AXIS, ReplicaMesh, Tree
from stratagem.mesh.packs import sum_over_replicas
from stratagem.mesh.shards import Sharding
from stratagem.mesh.values import CombinedItself
from stratagem.mesh.worker_counts import Layout
from stratagem.program.compat import trace_state
from stratagem.program.tracing import current_tracing, leave_tracing
from stratagem.replica.merge import merged, resumed


class StrategyLike(Protocol):
    """A strategy, as far as the lower layers know it."""

    mesh: ReplicaMesh
    is_default: bool
    pack_bytes: int | None
    compression: Compression | None
    sharding: Sharding | None

    @property
    def num_replicas_in_sync(self) -> int: ...

    layout: Layout

    @property
    def is_chief(self) -> bool: ...

    @property
    def worker_count(self) -> int: ...

    @property
    def worker_index(self) -> int: ...

    def from_chief(self, name: str, value: Any) -> Any: ...

    def from_all(self, name: str, value: Any) -> list[Any]: ...

    def check_agreement(self, name: str, fields: Mapping[str, str | int]) -> None: ...

    def take_variable(self, variable: Any) -> None: ...

    def make_adapter(self, arguments: dict[str, Any], *, in_order: bool) -> Any: ...

    def build(self, model: Any, kind: Any, batch: Tree) -> None: ...

    def make_step(self, model: Any, kind: Any) -> Any: ...

    def finish_steps(self, model: Any) -> bool: ...

    def follow_workers(self) -> None: ...

    def status(self) -> str: ...


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.scopes: list[StrategyLike] = []
        self.replicas: list[ReplicaContext | None] = []


_stacks = _Stacks()
_global_strategy: list[StrategyLike] = []
_global_scope = contextlib.ExitStack()


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
        self.gradients_are_combined = False
        self._alike: list[jax.Array] = []
        self._trace = trace_state()

    def note_alike(self, value: Tree) -> Tree:
        """Note that the arrays of a structure are equal on all replicas, and return it."""
        self._alike.extend(leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, jax.Array))
        return value

    def is_alike(self, value: jax.Array) -> bool:
        """Whether an array is known to be equal on all replicas: a result of a collective as it is, or a constant."""
        return not isinstance(value, Tracer) or any(value is each for each in self._alike)

    @property
    def replica_id_in_sync_group(self) -> jax.Array:
        """Id of this replica, 0 to `num_replicas_in_sync - 1`: a traced int32 scalar."""
        return lax.axis_index(AXIS) if self.strategy.mesh.size > 1 else jnp.zeros((), jnp.int32)

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas that run this step."""
        return self.strategy.num_replicas_in_sync

    @property
    def combines_gradients(self) -> bool:
        """Whether gradients go anywhere before they are applied: to other replicas, or to a centre."""
        return self.strategy.mesh.size > 1 or self.strategy.mesh.central

    def replicas_counted(self, value: jax.Array) -> Any:
        """Return how many replicas' values count in a mean: a number, or traced where some replicas have no rows.

        Args:
            value: This replica's value; the number may differ between its elements.
        """
        if self.share.present is True:
            return self.num_replicas_in_sync
        (replicas,) = self.exchange.call(self._counted, [lax.stop_gradient(value)])
        return replicas

    def _counted(self, values: list[jax.Array]) -> list[jax.Array]:
        counts = [jnp.broadcast_to(self.share.counts(value), value.shape).astype(jnp.float32) for value in values]
        return sum_over_replicas(counts, self.strategy.pack_bytes)

    def sum(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Sum values over all replicas, in packs; what does not count (`Share.counts`) is left out.

        Args:
            values: Arrays of any shapes, the same on every replica.
        """
        return list(values) if self.strategy.mesh.size == 1 else self.exchange.call(self._summing, list(values))

    @property
    def _summing(self) -> Crossing:
        return functools.partial(sum_over_replicas, pack_bytes=self.strategy.pack_bytes, share=self.share)

    def _pulled(self, _: Any, __: Any, cotangents: Sequence[jax.Array]) -> list[jax.Array]:
        """Return the derivative of the loss by something that reaches every replica.

        The loss that is minimised is the weighted sum of the replicas' losses, so cotangents of the
        others count with their weights, relative to this replica's own.
        """
        weight = self.share.weight if self.mean_gradients else 1.0
        summed = self.all_reduce(ReduceOp.SUM, [ct * jnp.asarray(weight, ct.dtype) for ct in cotangents])
        return [jnp.where(weight > 0, ct / jnp.asarray(weight, ct.dtype), 0) for ct in summed]

    def _require_step(self, method: str) -> None:
        if self.strategy.mesh.size > 1 and not inside_step():
            raise UsageError(
                f"{method} of a replica context was called after the step that it belongs to.",
                "No replica is running there.",
                "Ask for stratagem.get_replica_context() inside the function given to strategy.run; outside, combine "
                "its results with strategy.reduce or strategy.gather.",
            )

    def all_reduce(self, reduce_op: ReduceOp | str, value: Tree, options: Any = None) -> Tree:
        """Combine a value over all replicas; every replica gets the result. It can be differentiated.

        A replica without rows runs on zero rows. Its values count, except NaN, such as a mean over no rows.
        (https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext#all_reduce)

        Args:
            reduce_op: SUM, MEAN, MIN or MAX.
            value: Nested structure of arrays, the same on every replica.
            options: Accepted as in TensorFlow, where they are a hint.

        Raises:
            InputError: A value is not a number.
            UsageError: Called after the step.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> float(strategy.run(lambda: stratagem.get_replica_context().all_reduce("sum", 2.0)))
            2.0
        """
        op = ReduceOp.of(reduce_op)
        self._require_step("all_reduce")
        leaves, structure = jax.tree.flatten(value, is_leaf=lambda leaf: isinstance(leaf, CombinedItself))
        if any(isinstance(leaf, CombinedItself) for leaf in leaves):
            return structure.unflatten(
                [
                    leaf.all_reduced(self, op) if isinstance(leaf, CombinedItself) else self.all_reduce(op, leaf)
                    for leaf in leaves
                ]
            )
        arrays = [as_operand("all_reduce", leaf) for leaf in leaves]
        if self.strategy.mesh.size == 1:
            return structure.unflatten(arrays)
        if op in (ReduceOp.MIN, ReduceOp.MAX):
            return self.note_alike(structure.unflatten(self._extremes(op, arrays)))
        sums = self.exchange.call(self._summing, [lax.stop_gradient(array) for array in arrays])
        combined = linked(arrays, sums, self._pulled)
        if op is ReduceOp.MEAN:
            replicas = [self.replicas_counted(array) for array in arrays]
            combined = [
                c / jnp.asarray(r, c.dtype if is_floating(c) else jnp.float32)
                for c, r in zip(combined, replicas, strict=True)
            ]
        return self.note_alike(structure.unflatten(combined))

    def _extremes(self, op: ReduceOp, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Return the least or greatest over replicas; where several share it, each has its part of the derivative."""
        collective, last = (lax.pmin, max) if op is ReduceOp.MIN else (lax.pmax, min)

        def crossing(operands: list[jax.Array]) -> list[jax.Array]:
            ends = [last(bounds(operand)) for operand in operands]
            return [
                collective(self.share.masked(operand, end), AXIS) for operand, end in zip(operands, ends, strict=True)
            ]

        def pull(values: list[jax.Array], extremes: list[jax.Array], cotangents: list[jax.Array]) -> list[jax.Array]:
            reached = [(v == e).astype(v.dtype) for v, e in zip(values, extremes, strict=True)]
            shared = zip(self._pulled(values, extremes, cotangents), reached, self.sum(reached), strict=True)
            return [ct * own / count for ct, own, count in shared]

        extremes = self.exchange.call(crossing, [lax.stop_gradient(value) for value in values])
        return linked(values, extremes, pull)

    def all_gather(self, value: Tree, axis: int, options: Any = None) -> Tree:
        """Concatenate a value of all replicas along an axis; every replica gets the result. It can be differentiated.

        Sizes along the axis may differ on a batch that does not divide; replicas without rows add nothing.
        (https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext#all_gather)

        Args:
            value: Nested structure of arrays of rank 1 or more, the same on every replica.
            axis: Axis to concatenate along.
            options: Accepted as in TensorFlow, where they are a hint.

        Raises:
            InputError: An array has no such axis, or a value is not a number.
            UsageError: Called after the step.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> strategy.run(lambda: stratagem.get_replica_context().all_gather(jnp.array([1, 2]), axis=0)).tolist()
            [1, 2]
        """
        self._require_step("all_gather")
        leaves, structure = jax.tree.flatten(value, is_leaf=lambda leaf: isinstance(leaf, CombinedItself))
        arrays = [as_operand("all_gather", leaf) for leaf in leaves]
        axes = [checked_axis("all_gather", axis, a.ndim, f"a value of shape {a.shape}") for a in arrays]
        if self.strategy.mesh.size == 1:
            return structure.unflatten(arrays)
        wholes: list[Ragged] = self.exchange.call(
            gathered, [Ragged(lax.stop_gradient(array), a) for array, a in zip(arrays, axes, strict=True)]
        )
        floating = [whole for whole, array in zip(wholes, arrays, strict=True) if is_floating(array)]

        def pull(values: list[jax.Array], whole: list[jax.Array], cotangents: list[jax.Array]) -> list[jax.Array]:
            parts = zip(self._pulled(values, whole, cotangents), values, floating, strict=True)
            return [own_part(ct, value, whole) for ct, value, whole in parts]

        return self.note_alike(structure.unflatten(linked(arrays, [whole.value for whole in wholes], pull)))

    def merge_call(
        self, merge_fn: Callable[..., Tree], args: Sequence[Tree] = (), kwargs: Mapping[str, Tree] | None = None
    ) -> Tree:
        """Call a function once for all replicas, in cross-replica context.

        `merge_fn` can use `strategy.reduce`, `gather` and `strategy.extended`. Each of its arguments stands for the
        components on all replicas. A value that it assigns to a variable is one value for all replicas.
        (https://www.tensorflow.org/api_docs/python/tf/distribute/ReplicaContext#merge_call)

        Args:
            merge_fn: Function of `(strategy, *args, **kwargs)`.
            args: This replica's values.
            kwargs: The same, by name.

        Returns:
            The result of `merge_fn`; for a per-replica value, this replica's component.

        Raises:
            UsageError: Called outside the step of this context, in a `merge_fn`, or in a loop or branch on tensors.
            InputError: `merge_fn` is not callable, or `args` is not a tuple or list.

        Example:
            >>> import stratagem
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> def merge_fn(strategy, value):
            ...     return strategy.reduce("SUM", value, axis=None)
            >>> def step(x):
            ...     return stratagem.get_replica_context().merge_call(merge_fn, args=(x,))
            >>> float(strategy.run(step, args=(2.0,)))
            2.0
        """
        if not callable(merge_fn):
            raise InputError(
                f"merge_call was given {merge_fn!r}, of type {type(merge_fn).__name__}.",
                "Give it a function of (strategy, *values): merge_call(merge_fn, args=(value,)).",
            )
        if not isinstance(args, list | tuple):
            raise InputError(
                f"merge_call was given args of type {type(args).__name__}.", "Write args=(value,), with the comma."
            )
        if current_replica_context() is not self and (inside_step() or has_strategy()):
            raise UsageError(
                "merge_call was called in cross-replica context.",
                "The replicas are not running there, or have already been merged.",
                "Call it in the function given to strategy.run, on stratagem.get_replica_context().",
            )
        if trace_state() != self._trace and inside_step():
            raise UsageError(
                "`merge_call` called while defining a new graph: in a loop or branch on tensors, or under jax.jit.",
                "Replicas that call it a different number of times would wait for each other forever.",
                "Call it before or after the loop. A loop over range(n) may contain it if n is a Python number.",
            )
        with strategy_scope(self.strategy), replica_context(None):
            return merged(self, merge_fn, args, kwargs or {})

    def run(self, fn: Callable[..., Tree], args: Sequence[Tree], kwargs: Mapping[str, Tree]) -> Tree:
        """Run a function on the replicas from their `merge_call`, as `strategy.run` does there."""
        with replica_context(self):
            return resumed(self, fn, args, kwargs)


@contextlib.contextmanager
def strategy_scope(strategy: StrategyLike) -> Iterator[None]:
    """Make `strategy` the current one.

    Raises:
        UsageError: Another strategy's scope is open.
    """
    current = _stacks.scopes[-1] if _stacks.scopes else None
    if current is not None and current is not strategy:
        raise UsageError(
            f"The scope of {type(strategy).__name__} was entered inside the scope of {type(current).__name__}.",
            "Variables of the two strategies would lie on different sets of devices.",
            "Use one strategy, and leave its scope before entering another.",
        )
    _stacks.scopes.append(strategy)
    try:
        with patches.during(Extent.SCOPE):
            yield
    finally:
        _stacks.scopes.pop()


@contextlib.contextmanager
def replica_context(context: ReplicaContext | None) -> Iterator[None]:
    """Make `context` the current replica context while a step is traced; None while replicas are merged."""
    _stacks.replicas.append(context)
    sharding = None if context is None else context.strategy.sharding
    try:
        with patches.during(Extent.SCOPE), contextlib.nullcontext() if sharding is None else sharding.of_outputs():
            yield
    finally:
        _stacks.replicas.pop()


def current_replica_context() -> ReplicaContext | None:
    """Return the context of the step that is being traced, or None outside any."""
    return _stacks.replicas[-1] if _stacks.replicas else None


def inside_step() -> bool:
    """Whether a step is being traced, in replica context or in `merge_call`."""
    return bool(_stacks.replicas)


def merging_context() -> ReplicaContext | None:
    """Return the context whose `merge_call` is running, or None."""
    merging = len(_stacks.replicas) > 1 and _stacks.replicas[-1] is None
    return _stacks.replicas[-2] if merging else None


def current_strategy() -> Any:
    """Return the strategy of the current scope or step, or None outside both."""
    if _stacks.scopes:
        return _stacks.scopes[-1]
    context = current_replica_context()
    if context is not None:
        return context.strategy
    return _global_strategy[-1] if _global_strategy else None


def has_strategy() -> bool:
    """Return whether a strategy other than the default one is current."""
    strategy = current_strategy()
    return strategy is not None and not strategy.is_default


def in_cross_replica_context() -> bool:
    """Return whether values of all replicas can be combined here: in a scope, outside `run`."""
    return has_strategy() and current_replica_context() is None


def experimental_set_strategy(strategy: StrategyLike | None) -> None:
    """Make a strategy current for the whole program, for example in a notebook; None undoes it.

    Args:
        strategy: The strategy, or None.

    Raises:
        UsageError: Called inside a `with strategy.scope()` block.
        InputError: The argument is not a strategy.
    """
    if _stacks.scopes:
        raise UsageError(
            "experimental_set_strategy was called inside a `with strategy.scope()` block.",
            "Call it outside the block, or use only the block.",
        )
    if strategy is not None and not hasattr(strategy, "num_replicas_in_sync"):
        raise InputError(
            f"experimental_set_strategy was given {strategy!r}, of type {type(strategy).__name__}.",
            "Give it a strategy, such as stratagem.MirroredStrategy(); or None.",
        )
    _global_strategy[:] = [] if strategy is None else [strategy]
    _global_scope.close()
    if strategy is not None:
        _global_scope.enter_context(patches.during(Extent.SCOPE))


def _before_reading(repeats: bool) -> bool:
    """Return whether data read now becomes constants of a replica's program; leave a function that is being traced.

    Args:
        repeats: Whether each pass over the data has the same elements.
    """
    if current_tracing() is None:
        return False
    if not inside_step():
        leave_tracing()
    if not repeats:
        raise UsageError(
            "An iterator, or a dataset whose passes differ, was read inside a function that strategy.run is running.",
            "The function is compiled once: every later call would get the same elements as the first.",
            "Give the replica its element: strategy.run(replica_fn, args=(next(iterator),)).",
        )
    return True


ask_before_reading(_before_reading)
