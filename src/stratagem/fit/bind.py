"""The binding of models to strategies: what Keras's `fit`, `evaluate` and `predict` do for a model of a strategy.

Keras's own loops run unchanged. Three things are put in their way for a model that belongs to a
strategy: its data adapter (`feed.adapter`), its step functions (`fit.step_function`), and, on workers that
are not chief, its callbacks (`fit.callbacks`). A model belongs to a strategy when it is made or
compiled inside `strategy.scope()`; models of no strategy are left to Keras alone, unless it cannot run them:
their step is one as in TensorFlow (`fit.own_steps`), or their input a dataset of ours.

The attributes of Keras's classes that are replaced for it stand in `core.patches`: few for the life of the process,
most while such a loop runs, others while a step is traced (`fit.while_tracing`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import keras

from stratagem.core import patches
from stratagem.core.described import described_devices
from stratagem.core.errors import UsageError
from stratagem.core.patches import Extent
from stratagem.data.batches import DatasetIterator
from stratagem.data.dataset import Dataset
from stratagem.feed.adapter import ShareAdapter
from stratagem.feed.batch import check_numbers
from stratagem.feed.compat import DataAdapter
from stratagem.feed.on_host import HostPart, as_texts, begins_on_host, host_part, split_off
from stratagem.fit import compat, gradients, losses, own_steps, while_tracing
from stratagem.fit.arguments import check_arguments, check_labels, check_model, check_outside_step
from stratagem.fit.call import COMPARED, Call
from stratagem.fit.callbacks import with_backups_of_workers
from stratagem.fit.in_shards import work_in_shards
from stratagem.fit.instead import give_others
from stratagem.fit.own_steps import own_step
from stratagem.fit.records import note_used, record_of, strategy_of, warn_of_unused
from stratagem.fit.reentry import MakesPlace, check_input, evaluated, in_changing_world
from stratagem.fit.resuming import (
    ResumesFit,
    current_session,
    resumer_among,
    resumer_last,
    skipping_steps,
    watchers_among,
)
from stratagem.fit.saving import saving_once
from stratagem.fit.state import StateKeeper
from stratagem.fit.step_function import StepOfStrategy
from stratagem.fit.step_kinds import KIND_OF, PREDICT, TEST, TRAIN, State, StepKind, group_variables
from stratagem.fit.unheard import passing_over_unheard
from stratagem.mesh.divided import is_divided
from stratagem.mesh.mesh import Tree
from stratagem.mesh.placing import holds_parts, make_whole
from stratagem.program.autograph import rewritten_functions, tracing_anew
from stratagem.program.python_values import explaining_tensors_as_python_values
from stratagem.program.remote_values import values_of
from stratagem.replica.context import StrategyLike, current_strategy, strategy_scope


class Resumers(NamedTuple):
    """Makers of the callbacks by which `fit` begins in the middle.

    Args:
        backup_like: Returns the callback of ours that does what Keras's BackupAndRestore does, for several workers.
        place_in_fit: Returns the callback that knows how far `fit` is, where workers may change.
    """

    backup_like: Callable[[Any], ResumesFit]
    place_in_fit: MakesPlace


def attach(model: Any, strategy: StrategyLike) -> None:
    """Make a model belong to a strategy.

    Args:
        model: A Keras model.
        strategy: The strategy.

    Raises:
        UsageError: The model belongs to another strategy, or Keras distributes it by its own means.
    """
    record = record_of(model)
    if record.strategy is not None and record.strategy is not strategy:
        raise UsageError(
            f"Model {model.name!r} was made under {type(record.strategy).__name__} and is compiled under "
            f"{type(strategy).__name__}.",
            "Its variables would lie on the devices of one strategy and its steps run on those of the other.",
            "Make and compile it in one scope: `with strategy.scope(): model = make_model(); model.compile(...)`.",
        )
    other = keras.distribution.distribution()
    if other is not None:
        raise UsageError(
            f"A {type(model).__name__} joins {type(strategy).__name__} while keras.distribution.set_distribution set "
            f"a {type(other).__name__}.",
            "Both decide where variables are stored and how a batch is divided, so one of them would be ignored.",
            "Use one of the two: keras.distribution.set_distribution(None), or no strategy.",
        )
    record.strategy = strategy
    note_used(strategy)
    if record.keeper is None:
        record.keeper = StateKeeper(strategy)
        holds_parts(model, record.keeper.consolidate)
        work_in_shards(model, strategy, strategy.sharding, is_fitting)


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
        with _making_variables(strategy):
            tracing_anew(lambda: _build_layers(model, kind, batch))
    elif _step_of(model, kind) is None:  # not since it was compiled, or a layer was frozen
        own.discover(strategy, batch)


@contextlib.contextmanager
def _making_variables(strategy: StrategyLike) -> Iterator[None]:
    # A layer may ask in `build` and `call` which strategy is current, and make variables of its own.
    scope = contextlib.nullcontext() if current_strategy() is not None else strategy_scope(strategy)
    with scope, strategy.mesh.making_variables():
        yield


def _build_layers(model: Any, kind: StepKind, batch: Tree) -> None:
    with rewritten_functions(), explaining_tensors_as_python_values():
        compat.build_from_batch(model, batch, inputs_only=kind is PREDICT)


def _step_of(model: Any, kind: StepKind) -> StepOfStrategy | None:
    """Return a model's step function; None where there is none that fits its variables as they are now."""
    step = getattr(model, kind.function)
    return step if isinstance(step, StepOfStrategy) and step.fits(model) else None


def by_one_worker(original: Callable) -> Callable:
    """Wrap `Model.save` and `save_weights`: all workers may call them."""

    def is_shared(model: Any) -> bool:
        strategy = strategy_of(model)
        return strategy is not None and strategy.worker_count > 1

    def divided(model: Any) -> list[Any]:
        strategy = strategy_of(model)
        if strategy is None or strategy.sharding is None:
            return []
        optimizer = getattr(model, "optimizer", None)  # not of a model that was not compiled
        variables = [*model.weights, *(() if optimizer is None else optimizer.variables)]
        return [variable for variable in variables if is_divided(variable.value)]

    return saving_once(original, is_shared, divided, is_fitting)


def is_fitting() -> bool:
    """Whether `fit` or one of its siblings is running."""
    return current_session() is not None


def install(default_strategy: Callable[[], StrategyLike], resumers: Resumers) -> None:
    """Replace what `core.patches` lists. Called when a strategy is made; a second call does nothing.

    Args:
        default_strategy: Returns the strategy of models that belong to none and that Keras alone cannot run.
        resumers: What makes the callbacks by which `fit` begins in the middle.
    """
    patches.install(
        __name__,
        {
            "JAXTrainer.__init__": _attaching,
            "BaseTrainer.compile": _attaching,
            "Model.__bases__": _model_of_strategy(default_strategy, resumers),
            "Model.save": by_one_worker,
            "Model.save_weights": by_one_worker,
            "JAXTrainer.state_sync": _whole_in_one_process,
            "BatchNormalization.__init__": _allowing_synchronized,
            "Optimizer.__bases__": gradients.OptimizerOfStrategy,
            "LossScaleOptimizer.apply": lambda apply: gradients.reducing_apply(gradients.traceable(apply)),
            "get_data_adapter": _choosing_adapter,
            "JAXEpochIterator._get_iterator": _direct_iterator,
            "EpochIterator._enumerate_iterator": skipping_steps,
            "CallbackList.__init__": lambda init: passing_over_unheard(resumer_last(init)),
            "JAXTrainer._get_jax_state": _state_where_it_is_needed,
            **{f"JAXTrainer.make_{kind.function}": _making(kind) for kind in (TRAIN, TEST, PREDICT)},
            "BaseTrainer._symbolic_build": _building_by_own_step,
            "JAXTrainer._maybe_symbolic_build": _building_by_own_step,
        },
    )
    while_tracing.install()


# While a scope is open ---------------------------------------------------------------------------


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


# For the life of the process ---------------------------------------------------------------------


def _model_of_strategy(default_strategy: Callable[[], StrategyLike], resumers: Resumers) -> type:
    """Return a base of Keras's models, whose `fit` and siblings tell the wrappers below which model is running."""
    base = type("ModelOfStrategy", (), {})
    for method in KIND_OF:
        setattr(base, method, _in_session(default_strategy, resumers, base, method))
    return base


def _in_session(default_strategy: Callable[[], StrategyLike], resumers: Resumers, base: type, method: str) -> Callable:
    of_keras = getattr(keras.Model, method)
    signature = inspect.signature(of_keras)

    @functools.wraps(of_keras)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        original = getattr(super(base, model), method)
        check_outside_step(model, method)
        bound = signature.bind(model, *args, **kwargs)
        bound.apply_defaults()
        if method == "fit" and give_others(bound.arguments):
            args, kwargs = bound.args[1:], bound.kwargs
        strategy = strategy_of(model)
        if (
            method == "fit"
            and strategy is not None
            and (strategy.worker_count > 1 or strategy.mesh.world is not None)  # others may come
        ):
            with_backups_of_workers(bound.arguments, resumers.backup_like)
        callbacks = bound.arguments.get("callbacks")
        resumer = resumer_among(callbacks) if method == "fit" else None
        if strategy_of(model) is None:
            if resumer is not None or (method == "fit" and watchers_among(callbacks)):
                attach(model, current_strategy() or default_strategy())  # where it stands is known of ours only
            elif described_devices() is not None or _is_beyond_keras(model, KIND_OF[method], bound.arguments):
                attach(model, default_strategy())  # a program that is planned trains on what is described
        strategy = strategy_of(model)
        if strategy is None:
            if method == "fit":
                warn_of_unused(model)
            with patches.during(Extent.DERIVATIVES):
                return original(*args, **kwargs)
        note_used(strategy)
        check_arguments(model, method, bound.arguments)
        if begins_on_host(model):
            _prepare(bound.arguments, model, strategy, method)
        call = Call(model, method, strategy, original, bound, resumer)
        world = strategy.mesh.world
        if method == "fit" and world is not None and world.loop is None:  # in a loop, its steps are those of the loop
            return in_changing_world(strategy, resumers.place_in_fit, call.run)
        if method in ("evaluate", "predict") and world is not None:
            return evaluated(strategy, model.weights, call.again)
        return call.run()

    return wrapper


def _is_beyond_keras(model: Any, kind: StepKind, arguments: dict[str, Any]) -> bool:
    """Whether Keras alone could not run it: a step as in TensorFlow, input that is ours, a part for the host, or a loss
    for each row.
    """
    given = [arguments.get(name) for name in ("x", "validation_data")]
    ours = any(isinstance(value, Dataset | DatasetIterator) or callable(value) for value in given)
    beyond_step = own_steps.takes_data_alone(model, kind) or losses.is_for_each_row(getattr(model, "loss", None))
    return ours or beyond_step or begins_on_host(model)


def _prepare(arguments: dict[str, Any], model: Any, strategy: StrategyLike, method: str) -> None:
    """Do to the arguments of a model that begins on the host what Keras does to numbers alone."""
    arguments["x"] = as_texts(arguments["x"])
    if method == "fit":
        split_off(arguments)
    on_host = None if method in COMPARED else _host_part(model, strategy, arguments["x"])
    if on_host is not None:
        arguments["x"] = on_host.of_inputs(arguments["x"])


def _host_part(model: Any, strategy: StrategyLike, x: Any) -> HostPart | None:
    """Return what of a model the host computes before its step; None where it is nothing."""
    if not begins_on_host(model):
        return None
    with _making_variables(strategy):
        return host_part(model, x)


def _whole_in_one_process(original: Callable) -> Callable:
    """Wrap Keras's `state_sync`, by which callbacks read a model while it trains: put accumulated gradients together.

    With several workers a callback may run on the chief alone, where no collective can run. Their gradients are put
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


def _allowing_synchronized(original: Callable) -> Callable:
    """Wrap `BatchNormalization.__init__`, which refuses `synchronized=True` on JAX."""

    # Not functools.wraps: Keras reads this signature both with and without following wrappers.
    def init(self: Any, *args: Any, synchronized: bool = False, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.synchronized = synchronized
        if synchronized:
            self._moments = functools.partial(losses.moments_of_all_replicas, self)

    return init


# While `fit` or one of its siblings runs ---------------------------------------------------------


def _choosing_adapter(original: Callable) -> Callable:
    """Wrap Keras's choice of data adapter: a model of a strategy gets ours, and is built from it."""
    signature = inspect.signature(original)

    def get_data_adapter(*args: Any, **kwargs: Any) -> Any:
        session = current_session()
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        if session is None or isinstance(arguments["x"], DataAdapter):
            return original(*args, **kwargs)
        strategy = session.strategy
        arguments["on_host"] = _host_part(session.model, strategy, arguments["x"])
        arguments["steps_per_execution"] = int(session.model.steps_per_execution)
        arguments["validates"] = session.method == "fit" and bool(session.adapters)
        adapter = strategy.make_adapter(arguments, in_order=session.method == "predict")
        if session.method == "fit" or session.begins_again:
            check_input(session, adapter)
        session.add(adapter)
        check_numbers("data", adapter.source.element_spec)
        check_model(session.model, session.kind if len(session.adapters) == 1 else TEST, adapter.source.first())
        strategy.check_agreement(f"data of {session.method}", _facts(session.model, adapter, arguments))
        strategy.build(session.model, session.kind, adapter.source.first())
        check_labels(session.model, arguments.get("y"))
        return adapter

    return get_data_adapter


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


def _building_by_own_step(original: Callable | None) -> Callable | None:
    """Wrap Keras's building of a model from a batch: its own step of (data) shows what there is to build."""
    if original is None:  # this release has one such method
        return None

    @functools.wraps(original)
    def build(model: Any, iterator: Any = None, data_batch: Any = None) -> None:
        session = current_session()
        if session is None or session.model is not model or own_step(model, session.kind) is None:
            original(model, iterator, data_batch)
        elif data_batch is not None:
            session.strategy.build(model, session.kind, data_batch)

    return build


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
            if force or _step_of(model, kind) is None:
                setattr(model, kind.function, strategy.make_step(model, kind))
            return getattr(model, kind.function)

        return make

    return wrap


def _state_where_it_is_needed(original: Callable) -> Callable:
    """Wrap `_get_jax_state`, which reads the values of all variables and takes them away from a model that trains.

    It would read variables that live elsewhere one after another, and huge ones whole.
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
