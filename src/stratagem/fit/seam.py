"""Where Stratagem enters Keras's `fit`, `evaluate` and `predict`.

Keras's own loops run unchanged. Three things are put in their way for a model that belongs to a
strategy: its data adapter (`fit.adapter`), its step functions (`fit.steps`), and, on workers that
are not chief, its callbacks (`fit.callbacks`). A model belongs to a strategy when it is made or
compiled inside `strategy.scope()`; models of no strategy are left to Keras alone.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import keras
import numpy as np

from stratagem.core.errors import UsageError, explain
from stratagem.core.progress import Phase
from stratagem.fit import compat, gradients, losses
from stratagem.fit.adapter import ShareAdapter, ShareIterator, make_adapter
from stratagem.fit.batch import GlobalBatch, as_numpy, count_rows, place_batch, valid_rows
from stratagem.fit.callbacks import for_this_worker, with_own
from stratagem.fit.resuming import ResumesFit, Session, resumer_among, resumer_last, skipping_steps
from stratagem.fit.saving import saving_once
from stratagem.fit.state import StateKeeper
from stratagem.fit.steps import PREDICT, TEST, TRAIN, State, Step, StepKind
from stratagem.replica.context import StrategyLike, current_strategy
from stratagem.replica.mesh import Tree
from stratagem.replica.parts import holds_parts, make_whole
from stratagem.replica.split import Split

_strategies: weakref.WeakKeyDictionary[Any, StrategyLike] = weakref.WeakKeyDictionary()
_keepers: weakref.WeakKeyDictionary[Any, StateKeeper] = weakref.WeakKeyDictionary()
_session: contextvars.ContextVar[Session | None] = contextvars.ContextVar("stratagem_session", default=None)


def strategy_of(model: Any) -> StrategyLike | None:
    """Return the strategy a model belongs to, or None."""
    return _strategies.get(model)


def attach(model: Any, strategy: StrategyLike) -> None:
    """Make a model belong to a strategy.

    Args:
        model: A Keras model.
        strategy: The strategy.

    Raises:
        UsageError: The model belongs to another strategy.
    """
    current = _strategies.get(model)
    if current is not None and current is not strategy:
        raise UsageError(
            explain(
                f"Model {model.name!r} was made under {type(current).__name__} and is compiled under "
                f"{type(strategy).__name__}.",
                "Its variables would lie on the devices of one strategy and its steps run on those of the other.",
                "Make and compile it in one scope: `with strategy.scope(): model = make_model(); model.compile(...)`.",
            )
        )
    _strategies[model] = strategy
    if model not in _keepers:
        _keepers[model] = StateKeeper(strategy)
        holds_parts(model, _keepers[model].consolidate)


class StepOfStrategy:
    """A step function that `Strategy.make_step` has made."""


class StepFunction(StepOfStrategy):
    """What Keras calls as `model.train_function`, `test_function` or `predict_function`.

    Args:
        model: A built and compiled model.
        strategy: The strategy it belongs to.
        kind: Which step.
    """

    def __init__(self, model: Any, strategy: StrategyLike, kind: StepKind) -> None:
        self.kind = kind
        self.mesh = strategy.mesh
        self.keeper = _keepers[model]
        self.step = Step(model, strategy, kind)
        self.steps_per_execution = model.steps_per_execution

    def __call__(self, state: State, iterator: Iterator[Tree]) -> tuple[Tree, State]:
        """Run up to `steps_per_execution` steps.

        Args:
            state: Values of the variables, as Keras's trainer keeps them.
            iterator: Our iterator; or any iterator of whole global batches, as `train_on_batch` makes.

        Returns:
            (logs, new state); for `predict`, (rows of the outputs, state).

        Raises:
            StopIteration: There is no batch left.
        """
        with self.mesh.progress.during(Phase.INPUT) as phase:
            batches = self._take(iterator)
        session = _session.get() if self.kind is TRAIN else None
        if session is not None:
            session.wait.took(phase.seconds, len(batches))
        state = self.keeper.placed(self.step, state)
        groups = [batches] if self._fusible(batches) else [[batch] for batch in batches]
        results = []
        for group in groups:
            result, state = self.step(state, group)
            results.append(self._rows(result, group) if self.kind is PREDICT else result)
        self.keeper.remember(state)
        if session is not None:
            session.wait.stepped(results)
        if isinstance(iterator, ShareIterator) and iterator.fetches_ahead:
            with self.mesh.progress.during(Phase.INPUT) as phase:
                iterator.fetch_ahead()
            if session is not None:
                session.wait.took(phase.seconds, 0)
        return (_concatenated(results) if self.kind is PREDICT else results[-1]), state

    def _take(self, iterator: Iterator[Tree]) -> list[GlobalBatch]:
        if isinstance(iterator, ShareIterator):
            return iterator.take(self.steps_per_execution)
        batch = as_numpy(next(iterator))
        rows = count_rows(batch)
        part = self.mesh.local_rows(rows)
        return [place_batch(self.mesh, Split(rows, self.mesh.size), jax.tree.map(lambda leaf: leaf[part], batch))]

    def _fusible(self, batches: Sequence[GlobalBatch]) -> bool:
        """Whether one program can run all batches: a full set of equal, even ones, without a stop at a centre."""
        full = len(batches) == self.steps_per_execution and not self.mesh.central
        return full and all(batch.split.even and batch.split == batches[0].split for batch in batches)

    def _rows(self, outputs: Tree, batches: Sequence[GlobalBatch]) -> Tree:
        """Return outputs of the batches' own rows, whole on every worker."""
        split = batches[0].split
        if split.even:
            return jax.tree.map(lambda leaf: leaf.addressable_data(0), outputs)
        rows = valid_rows(split)
        return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0))[rows], outputs)


def _concatenated(outputs: Sequence[Tree]) -> Tree:
    if len(outputs) == 1:
        return outputs[0]
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *outputs)


# Wrappers ----------------------------------------------------------------------------------------


def _attaching(original: Callable) -> Callable:
    """Wrap `Trainer.__init__` and `compile`: inside a scope, the model joins the strategy."""

    @functools.wraps(original)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(model, *args, **kwargs)
        strategy = current_strategy()
        if strategy is not None:
            attach(model, strategy)
        return result

    return wrapper


def _in_session(original: Callable) -> Callable:
    """Wrap `fit` and its siblings: tell the wrappers below which model is running."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(model, *args, **kwargs)
        bound.apply_defaults()
        resumer = resumer_among(bound.arguments["callbacks"]) if original.__name__ == "fit" else None
        if resumer is not None and strategy_of(model) is None:
            attach(model, resumer.strategy_for(model))
        strategy = strategy_of(model)
        if strategy is None:
            return original(model, *args, **kwargs)
        session = Session(model, original.__name__, strategy)
        if "callbacks" in signature.parameters:
            for_this_worker(bound.arguments, strategy)
            if original.__name__ == "fit":
                with_own(bound.arguments, session)
        with _running(session, resumer, bound.arguments.get("callbacks")):
            result = original(*bound.args, **bound.kwargs)
        make_whole(model)  # not after an exception: the other workers may never come to this collective
        return result

    return wrapper


@contextlib.contextmanager
def _running(session: Session, resumer: ResumesFit | None, callbacks: Any) -> Iterator[None]:
    token = _session.set(session)
    try:
        if resumer is not None:
            resumer.begin_session(session, compat.flattened_callbacks(callbacks))
        yield
    finally:
        _session.reset(token)
        if resumer is not None:
            resumer.end_session()
            compat.begin_at_epoch(session.model, None)
        for adapter in session.adapters:
            adapter.close()


def _choosing_adapter(original: Callable) -> Callable:
    """Wrap Keras's choice of data adapter: a model of a strategy gets ours, and is built from it."""
    signature = inspect.signature(original)

    def get_data_adapter(*args: Any, **kwargs: Any) -> Any:
        session = _session.get()
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        if session is None or isinstance(arguments["x"], compat.DataAdapter):
            return original(*args, **kwargs)
        strategy = session.strategy
        adapter = make_adapter(strategy, arguments, in_order=session.method == "predict")
        session.add(adapter)
        strategy.check_agreement(f"data of {session.method}", _facts(session.model, adapter, arguments))
        with strategy.mesh.making_variables():
            compat.build_from_batch(session.model, adapter.source.first(), inputs_only=session.method == "predict")
        return adapter

    return get_data_adapter


def _facts(model: Any, adapter: ShareAdapter, arguments: dict[str, Any]) -> dict[str, str | int]:
    """Return what workers must have in common before they step together."""
    shapes = [f"{leaf.dtype}{list(leaf.shape[1:])}" for leaf in jax.tree.leaves(adapter.source.first())]
    return {
        "input": " ".join(shapes),
        "batches": str(adapter.num_batches),
        "steps": str(arguments.get("steps_per_epoch")),
        "steps_per_execution": int(model.steps_per_execution),
        "optimizer": type(getattr(model, "optimizer", None)).__name__,  # predict needs no compile
    }


def _direct_iterator(original: Callable) -> Callable:
    """Wrap `JAXEpochIterator._get_iterator`: our batches are on the devices already."""

    def get_iterator(epoch_iterator: Any) -> Any:
        if isinstance(epoch_iterator.data_adapter, ShareAdapter):
            return epoch_iterator.data_adapter.get_jax_iterator()
        return original(epoch_iterator)

    return get_iterator


def _making(name: str, kind: StepKind) -> Callable[[Callable], Callable]:
    """Wrap `make_train_function` and its siblings."""

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def make(model: Any, force: bool = False) -> Any:
            strategy = strategy_of(model)
            if strategy is None:
                return original(model, force)
            if force or not isinstance(getattr(model, name), StepOfStrategy):
                setattr(model, name, strategy.make_step(model, kind))
            return getattr(model, name)

        return make

    return wrap


def _whole_in_one_process(original: Callable) -> Callable:
    """Wrap `jax_state_sync`, by which callbacks read a model while it trains: gradients accumulate in parts.

    With several workers a callback may run on the chief alone, and no collective can. There the parts are put
    together at the end of each epoch, and where a `Checkpoint` is saved.
    """

    @functools.wraps(original)
    def jax_state_sync(model: Any) -> None:
        strategy = strategy_of(model)
        if strategy is not None and strategy.finish_steps():
            compat.give_back_state(model)  # of variables that live elsewhere it is older than what the steps have left
            return
        original(model)
        if strategy is not None and not strategy.mesh.multi_process:
            make_whole(model)

    return jax_state_sync


def _allowing_synchronized(original: Callable) -> Callable:
    """Wrap `BatchNormalization.__init__`, which refuses `synchronized=True` on JAX."""

    # Not functools.wraps: Keras reads this signature both with and without following wrappers.
    def init(self: Any, *args: Any, synchronized: bool = False, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.synchronized = synchronized

    return init


def _saving_once(original: Callable) -> Callable:
    """Wrap `Model.save` and `save_weights`: all workers may call them."""

    def is_shared(model: Any) -> bool:
        strategy = strategy_of(model)
        return strategy is not None and strategy.worker_count > 1

    return saving_once(original, is_shared, lambda: _session.get() is not None)


def install() -> None:
    """Put the seam into Keras. Called when a strategy is made; a second call does nothing."""
    trainer = compat.Trainer
    compat.replace(trainer, "__init__", _attaching)
    compat.replace(compat.BaseTrainer, "compile", _attaching)
    for name in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        compat.replace(trainer, name, _in_session)
    compat.replace(trainer, "jax_state_sync", _whole_in_one_process)
    compat.replace(trainer, "make_train_function", _making("train_function", TRAIN))
    compat.replace(trainer, "make_test_function", _making("test_function", TEST))
    compat.replace(trainer, "make_predict_function", _making("predict_function", PREDICT))
    for optimizer in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        compat.replace(optimizer, "stateless_apply", gradients.reducing_stateless_apply)
    compat.replace(keras.optimizers.Optimizer, "apply", gradients.reducing_apply)
    compat.replace(
        keras.optimizers.LossScaleOptimizer, "apply", lambda apply: gradients.reducing_apply(gradients.traceable(apply))
    )
    compat.replace(keras.optimizers.Optimizer, "apply_gradients", gradients.opting_out)
    points = compat.seam_points()
    compat.replace(*points["data_adapter"], _choosing_adapter)
    compat.replace(*points["epoch_iterator"], _direct_iterator)
    compat.replace(*points["steps_of_epoch"], skipping_steps)
    for name in ("save", "save_weights"):
        compat.replace(keras.Model, name, _saving_once)
    compat.replace(keras.callbacks.CallbackList, "__init__", resumer_last)
    compat.replace(*points["reduce_values"], losses.sharing_reduce_values)
    compat.replace(*points["apply_mask"], losses.sharing_apply_mask)
    compat.replace(*points["moments"], losses.sharing_moments)
    compat.replace(*points["masked_moments"], losses.sharing_masked_moments)
    compat.replace(*points["batch_normalization"], _allowing_synchronized)
