"""The sum of gradients over replicas, where the optimizer is applied.

`optimizer.stateless_apply` (and `apply`) called inside a step first combine the gradients of all
replicas, so clipping, loss scaling and every optimizer see what one device would have seen.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.core.errors import UnsupportedError
from stratagem.fit import compat
from stratagem.fit.slots import Places, accumulates_apart, add_slots, mark_slots, places_of_slots, warn_without_slots
from stratagem.fit.step_kinds import indices_of
from stratagem.mesh.mesh import AXIS, Tree, spec_of
from stratagem.mesh.packs import sum_over_replicas
from stratagem.mesh.shards import shards_of, sums_in_shards, wholes_of
from stratagem.program.dividing import whole
from stratagem.program.rules.at_centre import update_at_centre
from stratagem.program.rules.sharded_update import in_shards
from stratagem.program.tracing import TracedVariables, note_updated_alike
from stratagem.replica.context import ReplicaContext, current_replica_context, current_strategy

Reduced = tuple[list[jax.Array | None], list[Any]]
"""Gradients of all replicas, and the state after that."""

_WIDE: Final = 4
"""Bytes of a float that has room for a sum over replicas before it becomes a mean."""


def reducing_stateless_apply(original: Callable) -> Callable:
    """Wrap an optimizer's `stateless_apply` so that gradients are combined over replicas first.

    Args:
        original: The method as Keras defines it.
    """

    def stateless_apply(
        optimizer: Any, optimizer_variables: Sequence[Any], grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> Tree:
        context = current_replica_context()
        if context is None or context.applying_gradients or not context.combines_gradients:
            return original(optimizer, optimizer_variables, grads, trainable_variables)
        warn_without_slots(context.strategy, optimizer)
        targets = compat.applied_to(optimizer)

        def crossing(state: list[Any], gradients: list[Any], weights: list[Any]) -> Tree:
            with _applying(context):
                places = places_of_slots(optimizer, targets, optimizer.variables)
                update = functools.partial(original, optimizer)
                apart = accumulates_apart(context.strategy, optimizer)
                if apart and context.strategy.sharding is not None and context.strategy.sharding.stage is not None:
                    return _updated_beside_accumulators(context, update, optimizer, (state, gradients, weights), places)
                reduced = functools.partial(_reduced_at_update, optimizer=optimizer) if apart else combine
                gradients, state = _replaced_or(reduced, context, gradients, state, places, targets)
                return _updated(context, update, (state, gradients, weights), before=(weights, state))

        return context.exchange.call(crossing, list(optimizer_variables), list(grads), list(trainable_variables))

    return stateless_apply


def reducing_apply(original: Callable) -> Callable:
    """Wrap an optimizer's `apply` so that, in a replica function, gradients are combined first.

    The update itself is part of what crosses replicas: on an uneven batch replicas run different
    branches, and the same update compiled into each could round differently.

    Args:
        original: The method as Keras defines it.
    """

    def apply(optimizer: Any, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        context = current_replica_context()
        if context is None or context.applying_gradients:
            return original(optimizer, grads, trainable_variables)
        targets = list(compat.applied_to(optimizer, trainable_variables))
        add_slots(context.strategy, optimizer)
        mark_slots(context.strategy, optimizer)
        variables = [*targets, *optimizer.variables]
        places = places_of_slots(optimizer, targets, variables)
        note_updated_alike(variables)
        if not context.combines_gradients:
            return original(optimizer, grads, targets)

        # Looked up here: on an uneven batch the crossing runs when `apply_gradients` has been left.
        combined = context.gradients_are_combined

        def update(gradients: list[Any], values: list[Any]) -> list[Any]:
            scope = TracedVariables(list(zip(variables, values, strict=True)))
            with scope:
                original(optimizer, gradients, targets)
            return [scope.get_current_value(variable) for variable in variables]

        def crossing(gradients: list[Any], values: list[Any]) -> list[Any]:
            with _applying(context):
                if not combined:
                    gradients, values = _replaced_or(combine, context, gradients, values, places, targets)
                return _updated(context, update, (gradients, values), before=values)

        new = context.exchange.call(crossing, list(grads), [variable.value for variable in variables])
        for variable, value in zip(variables, new, strict=True):
            variable.assign(value)
        return None

    return apply


def _updated(context: ReplicaContext, update: Callable[..., Tree], operands: Sequence[Tree], before: Tree) -> Tree:
    """Run an update where the variables rest: on each replica, at a centre, or by each replica for its shards."""
    sharding = context.strategy.sharding
    if sharding is not None and sharding.stage is not None:
        return in_shards(update, sharding.axis_of, operands, before)
    return update_at_centre(context.strategy.mesh, update, *operands)


@contextlib.contextmanager
def _applying(context: ReplicaContext) -> Iterator[None]:
    """Note that gradients are being applied: what an optimizer calls of another must not combine them again."""
    context.applying_gradients = True
    try:
        yield
    finally:
        context.applying_gradients = False


def traceable(original: Callable) -> Callable:
    """Return what takes the place of `LossScaleOptimizer.apply`.

    Keras assigns to variables inside a `cond` there, which fails on JAX, with a strategy or without
    (UnexpectedTracerError); its `stateless_apply` works.

    Args:
        original: The method as Keras defines it.
    """

    @functools.wraps(original)
    def apply(optimizer: Any, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        targets = compat.applied_to(optimizer, trainable_variables)
        changing = [*targets, *optimizer.variables]
        weights, state = optimizer.stateless_apply(
            [variable.value for variable in optimizer.variables], grads, [variable.value for variable in targets]
        )
        for variable, value in zip(changing, [*weights, *state], strict=True):
            variable.assign(value)

    return apply


class OptimizerOfStrategy:
    """A base of Keras's optimizers: makes slots in shards where they rest in shards, and lets a program opt out.

    `apply_gradients` is told if a program has combined gradients itself. Keras 3 has dropped the argument by which
    `tf.keras` was told (https://www.tensorflow.org/api_docs/python/tf/keras/optimizers/Optimizer#apply_gradients).
    Clipping and the rest of the optimizer come after, as always.
    """

    def add_variable(self, shape: Sequence[int], initializer: Any = "zeros", *args: Any, **kwargs: Any) -> Any:
        """Add a variable to the optimizer; one of zeros is never whole on a device where it rests in shards."""
        keras_optimizer: Any = super()
        strategy = current_strategy()
        is_zeros = initializer == "zeros" or isinstance(initializer, keras.initializers.Zeros)
        if strategy is not None and strategy.sharding is not None and is_zeros:
            spec = spec_of(strategy.sharding.axis_of(shape), strategy.sharding.model_axis_of(shape))
            if spec != PartitionSpec():
                initializer = functools.partial(strategy.mesh.zeros_in_shards, spec)
        with whole():  # it is no weight; what becomes of it the step decides
            return keras_optimizer.add_variable(shape, initializer, *args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        *,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        keras_optimizer: Any = super()
        context = current_replica_context()
        if context is None or (experimental_aggregate_gradients and not skip_gradients_aggregation):
            return keras_optimizer.apply_gradients(grads_and_vars)
        if context.strategy.mesh.central:
            raise UnsupportedError(
                "apply_gradients was called under CentralStorageStrategy with an option that skips the sum of "
                "gradients over replicas.",
                "The variable has one value, on the centre. The gradient of a single replica would change it.",
                "Leave out experimental_aggregate_gradients and skip_gradients_aggregation, and do not call "
                "all_reduce.",
            )
        context.gradients_are_combined = True
        try:
            return keras_optimizer.apply_gradients(grads_and_vars)
        finally:
            context.gradients_are_combined = False


def _replaced_or(
    reduced: Callable[..., Reduced],
    context: ReplicaContext,
    gradients: list[Any],
    state: list[Any],
    places: Places,
    targets: Sequence[Any],
) -> Reduced:
    """Return reduced gradients; for a variable that its gradient replaces, the greatest value of all replicas.

    Keras keeps the greatest numbers that it has seen there, and the scales of float8 that follow from them
    (https://keras.io/api/quantizers): one device would have seen those of all rows.
    """
    several = context.strategy.mesh.size > 1
    replacing = [
        lax.pmax(context.share.masked(gradient, -jnp.inf), AXIS)
        if several and gradient is not None and target.overwrite_with_gradient
        else None
        # Not strict: a model that its first call builds has no variables when they are asked for gradients.
        for gradient, target in zip(gradients, targets, strict=False)
    ]
    sums, state = reduced(context, gradients, state, places)
    return [total if new is None else new for total, new in zip(sums, replacing, strict=True)], state


def combine(
    context: ReplicaContext, gradients: Sequence[jax.Array | None], state: list[Any], places: Places
) -> Reduced:
    """Sum gradients over replicas; inside `fit`, average them by rows.

    Args:
        context: The replica that calls.
        gradients: One for each variable; None where a variable has none.
        state: Values of variables.
        places: Where those stand in it that compression keeps for each gradient.

    Returns:
        The gradients of all replicas, and the state after it.
    """
    if context.strategy.compression is not None:
        # Weighted first: what is left out of one batch comes with the next, where a replica may count otherwise.
        return _compressed(context, _weighted(context, gradients), state, places)
    return _plainly_combined(context, gradients), state


def _plainly_combined(context: ReplicaContext, gradients: Sequence[jax.Array | None]) -> list[jax.Array | None]:
    weight = context.share.weight if context.mean_gradients else 1.0
    weighted = _weighted(context, gradients)
    if not isinstance(weight, float) or weight == 1.0:
        return _summed(context, weighted)
    # All replicas count alike, so the sums can be scaled: XLA does it while it applies them, where gradients that are
    # scaled before would be read and written once more. Not those of short floats, which could overflow.

    def scaled_late(gradient: jax.Array) -> bool:
        return gradient.dtype.itemsize >= _WIDE

    chosen = jax.tree.map(lambda own, early: own if scaled_late(own) else early, list(gradients), weighted)
    return _summed(context, chosen, lambda sum_: sum_ * jnp.asarray(weight, sum_.dtype) if scaled_late(sum_) else sum_)


def _weighted(context: ReplicaContext, gradients: Sequence[jax.Array | None]) -> list[jax.Array | None]:
    """Return this replica's summands: nothing from a replica without rows."""
    weight = context.share.weight if context.mean_gradients else 1.0
    return jax.tree.map(lambda own: context.share.masked(own) * jnp.asarray(weight, own.dtype), list(gradients))


def _summed(
    context: ReplicaContext,
    summands: Sequence[jax.Array | None],
    scaled: Callable[[jax.Array], jax.Array] = lambda sum_: sum_,
) -> list[jax.Array | None]:
    """Sum gradients over replicas, and do something to each element of the sums."""
    present, structure = jax.tree.flatten(list(summands))  # without those that are None
    if context.strategy.mesh.size == 1:
        return structure.unflatten(map(scaled, present))
    axes = _axes(context, present)
    sums = map(scaled, _sums_where_they_rest(context, present, axes))
    return structure.unflatten(wholes_of([*sums], axes))


def _axes(context: ReplicaContext, arrays: Sequence[jax.Array]) -> list[int | None]:
    """Return the axis along which each of some gradients is divided among the replicas; None where it is whole."""
    sharding = context.strategy.sharding
    return [None if sharding is None else sharding.axis_of(array.shape) for array in arrays]


def _sums_where_they_rest(
    context: ReplicaContext, summands: Sequence[jax.Array], axes: Sequence[int | None]
) -> list[jax.Array]:
    """Sum gradients over replicas; of one that is divided along an axis each replica gets its shard of the sum."""
    pack_bytes = context.strategy.pack_bytes
    whole = [summand for summand, axis in zip(summands, axes, strict=True) if axis is None]
    divided = [(summand, axis) for summand, axis in zip(summands, axes, strict=True) if axis is not None]
    sharding = context.strategy.sharding
    model_axes = None if sharding is None else [sharding.model_axis_of(summand.shape) for summand, _ in divided]
    shards = iter(sums_in_shards(divided, pack_bytes, model_axes))
    sums = iter(sum_over_replicas(whole, pack_bytes))
    return [next(sums if axis is None else shards) for axis in axes]


def _compressed(
    context: ReplicaContext, summands: Sequence[jax.Array | None], state: list[Any], places: Places
) -> Reduced:
    """Sum gradients over replicas, compressed where the strategy says so; return them and the state after it."""
    compression = context.strategy.compression
    if compression is None:
        return _summed(context, summands), state
    present = [i for i, summand in enumerate(summands) if summand is not None]
    values: list[Any] = [summands[i] for i in present]
    if places.loss_scale is not None:  # what is left out may come when the scale is another
        values = [value / state[places.loss_scale].astype(value.dtype) for value in values]
    kept = [[state[place] for place in places.slots[i]] for i in present]
    sums, kept = compression.sum(values, kept, context.strategy.pack_bytes)
    totals: list[jax.Array | None] = [None] * len(summands)
    for i, total in zip(present, sums, strict=True):
        scale = 1 if places.loss_scale is None else state[places.loss_scale].astype(total.dtype)
        totals[i] = total * scale
    state = list(state)
    for i, slots in zip(present, kept, strict=True):
        for place, value in zip(places.slots[i], slots, strict=True):
            state[place] = value
    return totals, state


def _updated_beside_accumulators(
    context: ReplicaContext, update: Callable[..., Tree], optimizer: Any, operands: Sequence[Tree], places: Places
) -> Tree:
    """Accumulate gradients on each replica, whole, and update in shards once for each update.

    As with `_reduced_at_update`; but what is accumulated stays beside the optimizer, which updates shards only. Between
    updates it is handed zeros.

    Args:
        context: The replica.
        update: What the optimizer does.
        optimizer: The optimizer.
        operands: Its state, this step's gradients, the weights.
        places: As of `combine`.
    """
    state, gradients, weights = operands
    slots = indices_of(compat.accumulators(optimizer), optimizer.variables)
    accumulated = [state[slot] for slot in slots]
    iterations = state[compat.iterations_index(optimizer)]
    is_update = (iterations + 1) % optimizer.gradient_accumulation_steps == 0
    totals = [
        total if own is None else total + own
        for total, own in zip(accumulated, _weighted(context, gradients), strict=True)
    ]

    def reduced(context: ReplicaContext, gradients: list[Any], state: list[Any], places: Places) -> Reduced:
        axes = _axes(context, totals)

        def nothing() -> list[jax.Array]:
            return shards_of([jnp.zeros_like(total) for total in totals], axes)

        sums = lax.cond(is_update, lambda: _sums_where_they_rest(context, totals, axes), nothing)
        pairs = zip(wholes_of(sums, axes), gradients, strict=True)
        return [None if gradient is None else total for total, gradient in pairs], _with(state, slots, zeros)

    zeros = [jnp.zeros_like(total) for total in totals]
    handed, before = _replaced_or(reduced, context, gradients, state, places, compat.applied_to(optimizer))
    new_weights, new_state = _updated(context, update, (before, handed, weights), before=(weights, before))
    left = [jnp.where(is_update, nothing, total) for nothing, total in zip(zeros, totals, strict=True)]
    return new_weights, _with(new_state, slots, left)


def _with(state: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Return a state with other values at some places."""
    changed = dict(zip(places, values, strict=True))
    return [changed.get(place, value) for place, value in enumerate(state)]


def _reduced_at_update(
    context: ReplicaContext, gradients: list[Any], state: list[Any], places: Places, *, optimizer: Any
) -> Reduced:
    """Combine accumulated gradients once for each update, not at each step.

    Between updates every replica's accumulators hold its own sum. At an update the sum of all, with
    this step's gradients, is handed to the optimizer as the gradient, and its accumulators as zeros.
    """
    slots = indices_of(compat.accumulators(optimizer), optimizer.variables)
    own = _weighted(context, gradients)
    iterations = state[compat.iterations_index(optimizer)]
    is_update = (iterations + 1) % optimizer.gradient_accumulation_steps == 0
    accumulated = [state[slot] for slot in slots]

    kept = [place for slots_of_one in places.slots for place in slots_of_one]

    def update() -> tuple[list[Any], list[Any], list[Any]]:
        totals = [a if g is None else a + g for a, g in zip(accumulated, own, strict=True)]
        summed, after = _compressed(context, totals, state, places)
        handed = [None if g is None else s for s, g in zip(summed, own, strict=True)]
        return handed, [jnp.zeros_like(a) for a in accumulated], [after[place] for place in kept]

    def accumulate() -> tuple[list[Any], list[Any], list[Any]]:
        return own, accumulated, [state[place] for place in kept]

    handed, left, slots_left = lax.cond(is_update, update, accumulate)
    return handed, _with(state, [*slots, *kept], [*left, *slots_left])
