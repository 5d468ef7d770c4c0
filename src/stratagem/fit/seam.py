"""Where Stratagem enters Keras's `fit`, `evaluate` and `predict`.

Keras's own loops run unchanged. Three things are put in their way for a model that belongs to a
strategy: its data adapter (`feed.adapter`), its step functions (`fit.steps`), and, on workers that
are not chief, its callbacks (`fit.callbacks`). A model belongs to a strategy when it is made or
compiled inside `strategy.scope()`; models of no strategy are left to Keras alone, unless it cannot run them:
their step is one as in TensorFlow (`fit.own_steps`), or their input a dataset of ours.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import keras
import numpy as np

from stratagem.core.errors import UsageError
from stratagem.core.progress import Phase
from stratagem.data.batches import DatasetIterator
from stratagem.data.dataset import Dataset
from stratagem.feed.adapter import ShareAdapter, ShareIterator
from stratagem.feed.batch import GlobalBatch, as_numpy, count_rows, place_batch, valid_rows
from stratagem.feed.compat import DataAdapter
from stratagem.fit import compat, gradients, losses, own_steps
from stratagem.fit.callbacks import for_this_worker, with_own
from stratagem.fit.metrics import as_returned
from stratagem.fit.own_steps import own_step
from stratagem.fit.resuming import ResumesFit, Session, resumer_among, resumer_last, skipping_steps
from stratagem.fit.saving import saving_once
from stratagem.fit.slots import leaving_out_slots
from stratagem.fit.state import StateKeeper
from stratagem.fit.step_kinds import KIND_OF, PREDICT, TEST, TRAIN, State, StepKind, group_variables
from stratagem.fit.steps import Step
from stratagem.mesh.mesh import Tree
from stratagem.mesh.placing import holds_parts, make_whole
from stratagem.mesh.split import Split
from stratagem.program.remote_values import assign_all, values_of
from stratagem.replica.context import StrategyLike, current_strategy

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
            f"Model {model.name!r} was made under {type(current).__name__} and is compiled under "
            f"{type(strategy).__name__}.",
            "Its variables would lie on the devices of one strategy and its steps run on those of the other.",
            "Make and compile it in one scope: `with strategy.scope(): model = make_model(); model.compile(...)`.",
        )
    _strategies[model] = strategy
    if model not in _keepers:
        _keepers[model] = StateKeeper(strategy)
        holds_parts(model, _keepers[model].consolidate)


class StepOfStrategy:
    """A step function that `Strategy.make_step` has made.

    Attributes:
        needs_state: Whether Keras hands it the values of the model's variables and keeps those it returns.
    """

    needs_state = True


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
        _check_stateless(model, strategy)
        self.keeper = _keepers[model]
        self.step = Step(model, strategy, kind)
        self.steps_per_execution = model.steps_per_execution
        self._whole: State = ()
        self._handed: State | None = None

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
        try:
            batches, session = self._read(iterator)
            state = self.keeper.placed(self.step, self._with_beyond(state))
            results = []
            for batch in batches:
                result, state = self.step(state, batch)
                results.append(self._rows(result, batch) if self.kind is PREDICT else result)
        except StopIteration:
            raise
        except BaseException:
            # Keras empties the variables while its loops run: a first batch that cannot be read would cost the weights.
            compat.put_back_state(self.step.model, self.step.variables, [v for group in state for v in group])
            raise
        self.keeper.remember(state)
        state = self._without_beyond(state)
        if session is not None:
            session.wait.stepped(results)
        if isinstance(iterator, ShareIterator) and iterator.fetches_ahead:
            with self.mesh.progress.during(Phase.INPUT) as phase:
                iterator.fetch_ahead(self.steps_per_execution)
            if session is not None:
                session.wait.took(phase.seconds, 0)
        if self.kind is PREDICT:
            return _concatenated(results), state
        return as_returned(results[-1], self.step.returns_own_values), state

    def _with_beyond(self, state: State) -> State:
        """Return the state with the values of what the model's own step uses beside."""
        if not self.step.beyond:
            return state
        values = values_of(self.step.beyond)
        if state is self._handed and all(map(operator.is_, values, self._whole[-1])):
            return self._whole
        return (*state, values)

    def _without_beyond(self, state: State) -> State:
        """Return the state as Keras keeps it; the rest goes back into its variables."""
        if not self.step.beyond:
            return state
        assign_all(self.step.beyond, state[-1])
        self._whole, self._handed = (*state[:-1], values_of(self.step.beyond)), state[:-1]
        return self._handed

    def _read(self, iterator: Iterator[Tree]) -> tuple[list[GlobalBatch], Session | None]:
        """Return the batches of this call, and the session that counts the wait for them."""
        with self.mesh.progress.during(Phase.INPUT) as phase:
            batches = self._take(iterator)
        session = _session.get() if self.kind is TRAIN else None
        if session is not None:
            session.wait.took(phase.seconds, sum(batch.steps for batch in batches))
        return batches, session

    def _take(self, iterator: Iterator[Tree]) -> list[GlobalBatch]:
        if isinstance(iterator, ShareIterator):
            return iterator.take(self.steps_per_execution)
        batch = as_numpy(next(iterator))
        rows = count_rows(batch)
        part = self.mesh.local_rows(rows)
        return [place_batch(self.mesh, Split(rows, self.mesh.size), jax.tree.map(lambda leaf: leaf[part], batch))]

    def _rows(self, outputs: Tree, batch: GlobalBatch) -> Tree:
        """Return outputs of the batch's own rows, whole on every worker."""
        if batch.split.even:
            return jax.tree.map(lambda leaf: leaf.addressable_data(0), outputs)
        rows = valid_rows(batch.split)
        return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0))[rows], outputs)


def _check_stateless(model: Any, strategy: StrategyLike) -> None:
    stateful = [layer.name for layer in compat.layers_of(model) if getattr(layer, "stateful", False)]
    if stateful and strategy.mesh.size > 1:
        raise UsageError(
            f"Layer {stateful[0]!r} keeps a state for each row of the global batch (stateful=True).",
            f"The rows are divided among {strategy.mesh.size} replicas, none of which holds the states of all.",
            "Train it on one device, or write stateful=False.",
        )


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


def _in_session(default_strategy: Callable[[], StrategyLike], original: Callable) -> Callable:
    """Wrap `fit` and its siblings: tell the wrappers below which model is running."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(model, *args, **kwargs)
        bound.apply_defaults()
        resumer = resumer_among(bound.arguments["callbacks"]) if original.__name__ == "fit" else None
        if resumer is not None and strategy_of(model) is None:
            attach(model, resumer.strategy_for(model))
        if strategy_of(model) is None and _is_beyond_keras(model, KIND_OF[original.__name__], bound.arguments):
            attach(model, default_strategy())
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


def _is_beyond_keras(model: Any, kind: StepKind, arguments: dict[str, Any]) -> bool:
    """Whether Keras alone could not run it: a step as in TensorFlow, or input that is ours."""
    given = [arguments.get(name) for name in ("x", "validation_data")]
    ours = any(isinstance(value, Dataset | DatasetIterator) or callable(value) for value in given)
    return ours or own_steps.takes_data_alone(model, kind)


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
        if session is None or isinstance(arguments["x"], DataAdapter):
            return original(*args, **kwargs)
        strategy = session.strategy
        arguments["steps_per_execution"] = int(session.model.steps_per_execution)
        adapter = strategy.make_adapter(arguments, in_order=session.method == "predict")
        session.add(adapter)
        strategy.check_agreement(f"data of {session.method}", _facts(session.model, adapter, arguments))
        strategy.build(session.model, session.kind, adapter.source.first())
        return adapter

    return get_data_adapter


def build(model: Any, strategy: StrategyLike, kind: StepKind, batch: Tree) -> None:
    """Create all variables of a model, its metrics and its optimizers, for a step.

    Args:
        model: The model.
        strategy: The strategy it belongs to.
        kind: Which step.
        batch: Structure of arrays (x, y, sample_weight), as `fit` gets it.
    """
    own = own_step(model, kind)
    if own is None:
        with strategy.mesh.making_variables():
            compat.build_from_batch(model, batch, inputs_only=kind is PREDICT)
    elif getattr(model, kind.function) is None:  # not since it was compiled
        own.discover(strategy, batch)


def _building_by_own_step(original: Callable) -> Callable:
    """Wrap Keras's building of a model from a batch: its own step of (data) shows what there is to build."""

    @functools.wraps(original)
    def build(model: Any, iterator: Any = None, data_batch: Any = None) -> None:
        session = _session.get()
        if session is None or session.model is not model or own_step(model, session.kind) is None:
            original(model, iterator, data_batch)
        elif data_batch is not None:
            session.strategy.build(model, session.kind, data_batch)

    return build


def _facts(model: Any, adapter: ShareAdapter, arguments: dict[str, Any]) -> dict[str, str | int]:
    """Return what workers must have in common before they step together."""
    shapes = [f"{leaf.dtype}{list((leaf.shape or ())[1:])}" for leaf in jax.tree.leaves(adapter.source.element_spec)]
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


def _making(kind: StepKind) -> Callable[[Callable], Callable]:
    """Wrap `make_train_function` and its siblings."""

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def make(model: Any, force: bool = False) -> Any:
            strategy = strategy_of(model)
            if strategy is None:
                return original(model, force)
            if force or not isinstance(getattr(model, kind.function), StepOfStrategy):
                setattr(model, kind.function, strategy.make_step(model, kind))
            return getattr(model, kind.function)

        return make

    return wrap


def _whole_in_one_process(original: Callable) -> Callable:
    """Wrap Keras's `state_sync`, by which callbacks read a model while it trains: gradients accumulate in parts.

    With several workers a callback may run on the chief alone, and no collective can. There the parts are put
    together at the end of each epoch, and where a `Checkpoint` is saved.
    """

    @functools.wraps(original)
    def state_sync(model: Any) -> None:
        strategy = strategy_of(model)
        if strategy is not None and strategy.finish_steps(model):
            compat.give_back_state(model)  # of variables that live elsewhere it is older than what the steps have left
            return
        original(model)
        if strategy is not None and not strategy.mesh.multi_process:
            make_whole(model)

    return state_sync


def _state_where_it_is_needed(original: Callable) -> Callable:
    """Wrap `_get_jax_state`, which reads the values of all variables and takes them away from a model that trains.

    Of variables that live elsewhere it would read one after another, and huge ones whole.
    """

    @functools.wraps(original)
    def _get_jax_state(model: Any, **chosen: bool) -> State:
        kind = TRAIN if chosen.get("optimizer_variables") else TEST if chosen.get("metrics_variables") else PREDICT
        step = getattr(model, kind.function)
        if isinstance(step, StepOfStrategy) and not step.needs_state:
            return tuple([] for _ in kind.groups)
        if strategy_of(model) is not None and any(hasattr(variable, "residence") for variable in model.variables):
            return tuple(values_of(group_variables(model, group)) for group in kind.groups)
        return original(model, **chosen)

    return _get_jax_state


def _allowing_synchronized(original: Callable) -> Callable:
    """Wrap `BatchNormalization.__init__`, which refuses `synchronized=True` on JAX."""

    # Not functools.wraps: Keras reads this signature both with and without following wrappers.
    def init(self: Any, *args: Any, synchronized: bool = False, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.synchronized = synchronized

    return init


def by_one_worker(original: Callable) -> Callable:
    """Wrap `Model.save` and `save_weights`: all workers may call them."""

    def is_shared(model: Any) -> bool:
        strategy = strategy_of(model)
        return strategy is not None and strategy.worker_count > 1

    return saving_once(original, is_shared, is_fitting)


def is_fitting() -> bool:
    """Whether `fit` or one of its siblings is running."""
    return _session.get() is not None


def install(default_strategy: Callable[[], StrategyLike]) -> None:
    """Put the seam into Keras. Called when a strategy is made; a second call does nothing.

    Args:
        default_strategy: Returns the strategy of models that belong to none and that Keras alone cannot run.
    """
    trainer = compat.Trainer
    compat.replace(trainer, "__init__", _attaching)
    compat.replace(compat.BaseTrainer, "compile", _attaching)
    for name in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        compat.replace(trainer, name, functools.partial(_in_session, default_strategy))
    compat.replace(trainer, compat.STATE_SYNC, _whole_in_one_process)
    compat.replace(trainer, "_get_jax_state", _state_where_it_is_needed)
    for kind in (TRAIN, TEST, PREDICT):
        compat.replace(trainer, f"make_{kind.function}", _making(kind))
        compat.replace(trainer, kind.method, own_steps.also_of_data_alone(kind))
    for point in compat.BUILDING:
        compat.replace(*point, _building_by_own_step)
    for optimizer in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        compat.replace(optimizer, "stateless_apply", gradients.reducing_stateless_apply)
    compat.replace(keras.optimizers.Optimizer, "apply", gradients.reducing_apply)
    compat.replace(
        keras.optimizers.LossScaleOptimizer, "apply", lambda apply: gradients.reducing_apply(gradients.traceable(apply))
    )
    compat.replace(keras.optimizers.Optimizer, "apply_gradients", gradients.opting_out)
    for name in ("save_own_variables", "load_own_variables"):
        compat.replace(keras.optimizers.Optimizer, name, leaving_out_slots)
    points = compat.seam_points()
    compat.replace(*points["data_adapter"], _choosing_adapter)
    compat.replace(*points["epoch_iterator"], _direct_iterator)
    compat.replace(*points["steps_of_epoch"], skipping_steps)
    for name in ("save", "save_weights"):
        compat.replace(keras.Model, name, by_one_worker)
    compat.replace(keras.callbacks.CallbackList, "__init__", resumer_last)
    compat.replace(*points["reduce_values"], losses.sharing_reduce_values)
    compat.replace(*points["apply_mask"], losses.sharing_apply_mask)
    for loss in (keras.losses.Dice, keras.losses.Tversky, keras.losses.Circle):
        compat.replace(loss, "call", losses.seeing_all_rows)
    compat.replace(*points["moments"], losses.sharing_moments)
    compat.replace(*points["masked_moments"], losses.sharing_masked_moments)
    compat.replace(*points["batch_normalization"], _allowing_synchronized)
