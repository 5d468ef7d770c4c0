"""Slots for what compression keeps of gradients between steps: variables of the optimizer, which every step carries on.

Files that Keras writes do not have them: they open without a strategy as well. A backup of `fit` has them.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras

from stratagem.compression.residuals import keep_in
from stratagem.core.errors import explain
from stratagem.fit import compat
from stratagem.mesh.shards import Stage
from stratagem.replica.context import StrategyLike


@dataclass(frozen=True)
class Places:
    """Positions in a list of variables of those that compression needs.

    Args:
        slots: The slots of each gradient.
        loss_scale: The factor that gradients have at this step and may not have at the next; None where there is none.
    """

    slots: Sequence[Sequence[int]]
    loss_scale: int | None


_DTYPE: Final = "float32"
"""Gradients of other dtypes travel as they are: shorter ones gain little, longer ones are meant to be exact."""

_slots: weakref.WeakKeyDictionary[Any, dict[int, list[Any]]] = weakref.WeakKeyDictionary()


def add_slots(strategy: StrategyLike, optimizer: Any) -> None:
    """Give an optimizer what the compression of a strategy keeps; a second call does nothing.

    Args:
        strategy: Whose replicas sum the gradients.
        optimizer: A Keras optimizer that is built.
    """
    if strategy.compression is None:
        return
    if optimizer not in _slots:
        _leave_out_of_files(optimizer)
    known = _slots.setdefault(optimizer, {})
    for variable in compat.applied_to(optimizer):
        # A variable that is overwritten by its gradient, a scale of float8 say, has none that may come late.
        compressed = variable.dtype == _DTYPE and not getattr(variable, "overwrite_with_gradient", False)
        if not compressed or id(variable) in known:
            continue
        known[id(variable)] = []
        for slot in strategy.compression.slots(variable.shape):
            made = compat.add_slot(optimizer, variable, slot.name, slot.shape)
            keep_in(made, slot)
            known[id(variable)].append(made)


def accumulates_apart(strategy: StrategyLike, optimizer: Any) -> bool:
    """Whether each replica accumulates gradients of its own between updates.

    At a centre, and where accumulated gradients rest in shards, those of all replicas are summed at each step. So they
    are where workers may change: what one of them had accumulated alone would be lost with it.

    Args:
        strategy: Whose replicas.
        optimizer: A Keras optimizer.
    """
    in_shards = strategy.sharding is not None and strategy.sharding.stage in (Stage.GRADIENTS, Stage.PARAMETERS)
    at_each_step = strategy.mesh.central or in_shards or strategy.mesh.world is not None
    return compat.accumulates(optimizer) and not at_each_step


def mark_slots(strategy: StrategyLike, optimizer: Any, *, apart: bool = False) -> None:
    """Let the variables of an optimizer rest in shards that are as large as those it is applied to.

    Args:
        strategy: Which may keep something in shards.
        optimizer: A Keras optimizer that is built.
        apart: Whether each replica accumulates gradients of its own, which are left whole.
    """
    sharding = strategy.sharding
    if sharding is None:
        return
    whole = set(map(id, compat.accumulators(optimizer))) if apart else set()
    slots = [variable for variable in optimizer.variables if id(variable) not in whole]
    sharding.mark_slots(slots, compat.applied_to(optimizer))


def warn_without_slots(strategy: StrategyLike, optimizer: Any) -> None:
    """Say that the gradients of an optimizer travel as they are, although the strategy compresses.

    Its state is in the hands of a program that applies it as a function, which would not carry slots.

    Args:
        strategy: Whose replicas sum the gradients.
        optimizer: A Keras optimizer that is built.
    """
    if strategy.compression is None or optimizer in _slots:
        return
    warnings.warn(
        explain(
            f"stateless_apply of optimizer {optimizer.name!r}, which is not the one that the model was compiled with.",
            "Its gradients travel uncompressed, because it cannot store what compression would leave out of them.",
            "Call optimizer.apply_gradients in a train_step(self, data) with a stratagem.GradientTape, where every "
            "optimizer is compressed.",
        ),
        stacklevel=3,
    )


def places_of_slots(optimizer: Any, targets: Sequence[Any], variables: Sequence[Any]) -> Places:
    """Return where the slots of gradients stand.

    Args:
        optimizer: A Keras optimizer.
        targets: The variables that the gradients are of.
        variables: The list in which to look for slots.
    """
    known = _slots.get(optimizer, {})
    places = {id(variable): place for place, variable in enumerate(variables)}
    slots = [[places[id(slot)] for slot in known.get(id(target), ())] for target in targets]
    scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return Places(slots, places[id(optimizer.dynamic_scale)] if scaled and optimizer.built else None)


def _leave_out_of_files(optimizer: Any) -> None:
    """Let this optimizer's `save_own_variables` and `load_own_variables`, which go by number, pass over its slots."""
    known = weakref.ref(optimizer)  # no circle: it is freed with the last reference
    for name in ("save_own_variables", "load_own_variables"):
        # Not by its own `__setattr__`, which tracks what it is given.
        object.__setattr__(optimizer, name, functools.partial(_without_slots, known, name))


def _without_slots(known: Callable[[], Any], name: str, store: Any) -> Any:
    optimizer = known()
    with compat.without(optimizer, [slot for slots in _slots[optimizer].values() for slot in slots]):
        return getattr(type(optimizer), name)(optimizer, store)
