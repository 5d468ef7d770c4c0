"""`ReplicaContext.merge_call`: a pause of a step in which values of all replicas are combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from stratagem.core.errors import InputError
from stratagem.mesh.exchange import Exchange
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.mesh.values import Component, DistributedValues
from stratagem.program.interpret import trace
from stratagem.program.rules.at_centre import update_at_centre
from stratagem.program.tracing import TracedVariables, current_tracing, note_updated_alike, read


def merged(context: Any, merge_fn: Callable[..., Tree], args: Sequence[Tree], kwargs: Mapping[str, Tree]) -> Tree:
    """Call a function on the values of all replicas, inside a step.

    Every replica runs the same program, so the function is traced once, as part of it: each array among
    its arguments becomes a `Component`, and what it makes of several of them is a collective.

    Args:
        context: The replica context.
        merge_fn: Function of (strategy, *args, **kwargs).
        args: This replica's values.
        kwargs: The same, by name.
    """
    tracing = current_tracing()
    before = set(tracing.scope.assigned) if tracing is not None else set()
    spread = _spread((tuple(args), dict(kwargs)), context)
    result = merge_fn(context.strategy, *spread[0], **spread[1])
    if tracing is not None:  # what is assigned here is one value for all replicas, not each one's part
        before.update(map(id, tracing.notes.get(_BY_REPLICAS, ())))
        note_updated_alike([v for key, v in tracing.scope.assigned.items() if key not in before])
    return _own(result)


def resumed(context: Any, fn: Callable[..., Tree], args: Sequence[Tree], kwargs: Mapping[str, Tree]) -> Tree:
    """Run a function of one replica's values on all replicas, from a function that `merged` calls.

    Args:
        context: The replica context that merges.
        fn: The function.
        args: Its arguments; each replica gets its own component.
        kwargs: The same, by name.

    Returns:
        What `fn` returns; each array stands for those of all replicas.
    """
    args, kwargs = _own((tuple(args), dict(kwargs)))
    tracing = current_tracing()
    if tracing is None:
        return _spread(fn(*args, **kwargs), context)
    scope, before = tracing.scope, tracing.scope.assigned
    scope.assigned = {}
    try:
        result = read(fn(*args, **kwargs))
        tracing.notes.setdefault(_BY_REPLICAS, []).extend(scope.assigned.values())
    finally:
        scope.assigned = {**before, **scope.assigned}
    return _spread(result, context)


_BY_REPLICAS: Final = "assigned by replicas in the midst of merging"


def _spread(tree: Tree, context: Any) -> Tree:
    """Return a structure with each array as this replica's component of a per-replica value."""
    if context.strategy.mesh.size == 1:
        return tree
    return jax.tree.map(lambda leaf: Component(leaf, context) if isinstance(leaf, jax.Array) else leaf, tree)


def _own(tree: Tree) -> Tree:
    """Return a structure with this replica's component of each per-replica value."""
    return jax.tree.map(lambda leaf: leaf.own if isinstance(leaf, Component) else leaf, tree)


def updated(
    exchange: Exchange,
    mesh: ReplicaMesh,
    variable: Any,
    fn: Callable[..., Tree],
    args: Sequence[Tree],
    kwargs: Mapping[str, Tree],
) -> Tree:
    """Update a variable alike on all replicas, or at the centre: `extended.update`.

    The update is part of what crosses replicas: on an uneven batch replicas run different branches, and
    the same update compiled into each could round differently. What the function refers to (a learning
    rate, a gradient) belongs to the branch, so it is found by tracing, and crosses too.

    Args:
        exchange: How values cross replicas.
        mesh: The replicas.
        variable: A Keras variable.
        fn: Function of (variable, *args, **kwargs) that assigns it.
        args: Values equal on all replicas; results of `all_reduce` that went through `merge_call` are.
        kwargs: The same, by name.

    Returns:
        What `fn` returns.

    Raises:
        InputError: A value differs between replicas.
    """
    args, kwargs = jax.tree.map(_alike, (args, kwargs), is_leaf=_is_spread)
    for leaf in jax.tree.leaves((args, kwargs), is_leaf=_is_spread):
        if _is_spread(leaf):
            raise InputError(
                f"extended.update of variable {variable.path!r} was given a per-replica value.",
                "Each replica would give the variable another value, and they would drift apart.",
                "Combine it first: strategy.extended.reduce_to(stratagem.ReduceOp.SUM, value, variable). A result of "
                "all_reduce may be given as it is, so compute with it in the function given to extended.update.",
            )
    assigned: list[Any] = []

    def pure(value: jax.Array) -> tuple[Tree, list[jax.Array]]:
        scope = TracedVariables([(variable, value)])
        with scope:
            result = fn(variable, *args, **kwargs)
        assigned[:] = scope.assigned.values()
        return read(result), [scope.get_current_value(v) for v in assigned]

    traced, structure = trace(pure, [variable.value])

    def crossing(value: jax.Array, around: list[Any]) -> list[jax.Array]:
        def update(value: jax.Array, around: list[Any]) -> list[jax.Array]:
            return list(jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, around))(value))

        return update_at_centre(mesh, update, value, around)

    leaves = exchange.call(crossing, variable.value, list(traced.consts))
    result, values = structure.unflatten(leaves)
    for target, value in zip(assigned, values, strict=True):
        target.assign(value)
    return result


def _is_spread(leaf: object) -> bool:
    return isinstance(leaf, Component | DistributedValues)


def _alike(leaf: Any) -> Any:
    """Return the array that a component is on every replica, where it is known to be one."""
    return leaf.own if isinstance(leaf, Component) and leaf.context.is_alike(leaf.own) else leaf
