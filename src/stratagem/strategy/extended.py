"""`strategy.extended`: what programs that update variables by themselves call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from stratagem.core.types import ReduceOp
from stratagem.mesh.device_names import device_of_task
from stratagem.mesh.exchange import Exchange
from stratagem.mesh.mesh import Tree
from stratagem.mesh.placing import placed
from stratagem.mesh.values import local_results
from stratagem.replica.context import StrategyLike, merging_context, replica_context
from stratagem.replica.merge import updated
from stratagem.replica.on_read import has_parts


class Reducing(StrategyLike, Protocol):
    """A strategy, as far as its less common methods know it."""

    def reduce(self, reduce_op: ReduceOp | str, value: Tree, axis: int | None) -> Tree: ...

    def run(self, fn: Callable[..., Tree], args: Sequence[Tree], kwargs: Mapping[str, Tree] | None) -> Tree: ...

    def require_cross_replica(self, method: str, instead: str) -> None: ...


class StrategyExtended:
    """Less common methods of a strategy (`tf.distribute.StrategyExtended`).

    A variable is one value, so there are no copies to choose between. All methods are
    called in cross-replica context: in a scope outside `run`, or in a function given to `merge_call`.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/StrategyExtended

    Args:
        strategy: The strategy.
    """

    def __init__(self, strategy: Reducing) -> None:
        self._strategy = strategy

    def reduce_to(self, reduce_op: ReduceOp | str, value: Tree, destinations: Any, options: Any = None) -> Tree:
        """Combine a per-replica value over all replicas; the result lies where variables do.

        Args:
            reduce_op: SUM, MEAN, MIN or MAX.
            value: A per-replica value, or a structure of them.
            destinations: Accepted as in TensorFlow: a variable or device that is to hold the result.
            options: Accepted as in TensorFlow, where they are a hint.

        Raises:
            UsageError: Called inside `run`, outside `merge_call`.
            InputError: A plain value is summed over several replicas.
        """
        return self._strategy.reduce(reduce_op, value, axis=None)

    def batch_reduce_to(
        self, reduce_op: ReduceOp | str, value_destination_pairs: Sequence[tuple[Tree, Any]], options: Any = None
    ) -> list[Tree]:
        """Combine several per-replica values, inside `merge_call` in few packs.

        Args:
            reduce_op: SUM, MEAN, MIN or MAX.
            value_destination_pairs: Pairs of a value and what `reduce_to` calls its destinations.
            options: Accepted as in TensorFlow, where they are a hint.
        """
        return self._strategy.reduce(reduce_op, [value for value, _ in value_destination_pairs], axis=None)

    def update(
        self,
        var: Any,
        fn: Callable[..., Tree],
        args: Sequence[Tree] = (),
        kwargs: Mapping[str, Tree] | None = None,
        group: bool = True,
    ) -> Tree:
        """Update a variable by a function, wherever it lies.

        Args:
            var: A Keras variable.
            fn: Function of (var, *args, **kwargs) that assigns it.
            args: Values equal on all replicas: results of `reduce_to`, or of a replica's `all_reduce`. For an `ON_READ`
                variable, whose replicas have a value each, they may be per-replica values.
            kwargs: The same, by name.
            group: Whether to return one result; else a tuple with one for each replica of this worker.

        Returns:
            What `fn` returns.

        Raises:
            UsageError: Called inside `run`, outside `merge_call`; or `fn` combines values of replicas.
            InputError: An argument is a per-replica value.

        Example:
            >>> import stratagem
            >>> from stratagem import keras
            >>> strategy = stratagem.OneDeviceStrategy("cpu:0")
            >>> with strategy.scope():
            ...     v = keras.Variable(1.0)
            >>> float(strategy.extended.update(v, lambda v, x: v.assign_add(x), args=(2.0,))), float(v.value)
            (3.0, 3.0)
        """
        strategy = self._strategy
        strategy.require_cross_replica("extended.update", "get_replica_context().merge_call")
        context = merging_context()
        if context is None and has_parts(var, strategy.mesh):  # each replica changes its own value
            result = strategy.run(lambda *own, **named: fn(var, *own, **named), args, kwargs)
            return result if group else local_results(result)
        if context is None:
            var.assign(placed(strategy, [var.value], [var])[0])
        exchange = Exchange() if context is None else context.exchange
        with replica_context(None):
            result = updated(exchange, strategy.mesh, var, fn, args, kwargs or {})
        return result if group else (result,) * len(strategy.mesh.local_replicas)

    def read_var(self, v: Any) -> Any:
        """Return the value of a variable, with the replicas' parts put together.

        Args:
            v: A variable of `tf.Variable`, or a Keras variable.
        """
        return v.value

    def call_for_each_replica(
        self, fn: Callable[..., Tree], args: Sequence[Tree] = (), kwargs: Mapping[str, Tree] | None = None
    ) -> Tree:
        """Run a function on each replica: `strategy.run` (older programs call this).

        Args:
            fn: The function.
            args: Its arguments; each replica gets its own component of a per-replica value.
            kwargs: The same, by name.
        """
        return self._strategy.run(fn, args, kwargs)

    def variable_created_in_scope(self, v: Any) -> bool:
        """Whether a variable was made with this strategy current; of the default strategy, with none.

        Args:
            v: A variable.
        """
        made_with = getattr(v, "strategy_id", None)
        return made_with is None if self._strategy.is_default else made_with == id(self._strategy)

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
        """Do nothing: all variables lie at the same place, on all devices or on one.

        Args:
            colocate_with_variable: Accepted as in TensorFlow.
        """
        yield

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each worker runs the program: True where there are several."""
        return self._strategy.worker_count > 1

    @property
    def should_checkpoint(self) -> bool:
        """Whether this worker is the one that writes: the chief."""
        return self._strategy.is_chief

    should_save_summary = should_checkpoint

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Names of this worker's devices that replicas run on, as tensors give them (`tf.Tensor.device`)."""
        devices = self._strategy.mesh.devices
        return tuple(device_of_task(devices[replica]) for replica in self._strategy.mesh.local_replicas)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """Names of this worker's devices that hold variables: all of them, or the one at the centre."""
        centre = self._strategy.mesh.centre
        return self.worker_devices if centre is None else (device_of_task(centre),)
