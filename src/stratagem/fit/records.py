"""State that is kept beside a model, for as long as the model lives, and which strategies nobody uses."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stratagem.core.errors import UsageError, explain
from stratagem.core.log import logger
from stratagem.replica.context import StrategyLike


@dataclass
class ModelRecord:
    """What `fit` knows of a model.

    Args:
        strategy: The strategy that it belongs to, or None.
        keeper: Keeps its state where the strategy wants it (`fit.state.StateKeeper`).
        own_steps: Its own steps of (data), by the name of the method.
        running: The thread that `fit` or a sibling runs in, and its name; None where none runs.
    """

    strategy: StrategyLike | None = None
    keeper: Any = None
    own_steps: dict[str, Any] = field(default_factory=dict)
    running: tuple[int, str] | None = None


_records: weakref.WeakKeyDictionary[Any, ModelRecord] = weakref.WeakKeyDictionary()


_unused: weakref.WeakSet[Any] = weakref.WeakSet()
"""Strategies of several replicas that nothing has been asked of yet."""


_made_in: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The process that each strategy was made in."""


def note_made(strategy: StrategyLike) -> None:
    """Note that a strategy was made."""
    _made_in[strategy] = os.getpid()
    if strategy.mesh.size > 1:
        _unused.add(strategy)


def note_used(strategy: StrategyLike) -> None:
    """Note that its scope was entered, or something was run or trained under it.

    Raises:
        UsageError: This process is a fork of the one that made it. What JAX starts for it has threads, and a fork has
            none of them: it would wait for ever.
    """
    made_in = _made_in.get(strategy, os.getpid())
    if made_in != os.getpid():
        raise UsageError(
            f"A {type(strategy).__name__} made by process {made_in} was used in process {os.getpid()}, a fork of it.",
            "A fork does not have the threads of JAX, and would wait for them forever.",
            'Start processes with multiprocessing.get_context("spawn"), and make the strategy in each; for several '
            "workers, use `stratagem run`.",
        )
    _unused.discard(strategy)


def warn_of_unused(model: Any) -> None:
    """Say once for each strategy that a model trains without it, while nothing else uses it either."""
    for strategy in list(_unused):
        note_used(strategy)
        logger.warning(
            explain(
                f"Model {model.name!r} was made and compiled outside the scope of the {type(strategy).__name__}.",
                f"It trains on one device; the {strategy.mesh.size} replicas of the strategy do nothing.",
                "Write `with strategy.scope(): model = make_model(); model.compile(...)`.",
            )
        )


def record_of(model: Any) -> ModelRecord:
    """Return the record of a model; an empty one at first."""
    return _records.setdefault(model, ModelRecord())


def strategy_of(model: Any) -> StrategyLike | None:
    """Return the strategy a model belongs to, or None."""
    return record_of(model).strategy


@contextlib.contextmanager
def running_alone(model: Any, method: str) -> Iterator[None]:
    """Make sure that no other thread trains or evaluates a model in this context.

    Args:
        model: The model.
        method: `fit` or a sibling, which runs in this context. Several threads may predict.

    Raises:
        UsageError: Another thread does.
    """
    record, thread = record_of(model), threading.get_ident()
    other = record.running
    if other is not None and other[0] != thread and not (method.startswith("predict") and other[1] == method):
        raise UsageError(
            f"model.{method} of {model.name!r} was called while model.{other[1]} of the same model runs in another "
            "thread.",
            "While a loop runs, the loop holds the values of the variables, and the model does not.",
            "Call them one after another, or give each thread a model of its own.",
        )
    if other is None:
        record.running = (thread, method)
    try:
        yield
    finally:
        if other is None:
            record.running = None
