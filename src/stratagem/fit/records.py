"""State that is kept beside a model, for as long as the model lives."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from stratagem.replica.context import StrategyLike


@dataclass
class ModelRecord:
    """What `fit` knows of a model.

    Args:
        strategy: The strategy that it belongs to, or None.
        keeper: Keeps its state where the strategy wants it (`fit.state.StateKeeper`).
        own_steps: Its own steps of (data), by the name of the method.
    """

    strategy: StrategyLike | None = None
    keeper: Any = None
    own_steps: dict[str, Any] = field(default_factory=dict)


_records: weakref.WeakKeyDictionary[Any, ModelRecord] = weakref.WeakKeyDictionary()


def record_of(model: Any) -> ModelRecord:
    """Return the record of a model; an empty one at first."""
    return _records.setdefault(model, ModelRecord())


def strategy_of(model: Any) -> StrategyLike | None:
    """Return the strategy a model belongs to, or None."""
    return record_of(model).strategy
