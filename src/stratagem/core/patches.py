"""Attributes of Keras and JAX that Stratagem replaces or adds: one table, with reasons, and one call that undoes it.

Nothing changes when Stratagem is imported. A part of it installs its rows when it is first needed: `fit` with the first
strategy, `stratagem.tf` when a program uses the first of its names. What a replacement does for models and arrays that
are none of ours is what the original does. Rows that are needed only while `fit` runs or a step is traced are set then
and restored afterwards. `install` refuses what the table does not list, so the table is complete.
`stratagem doctor` prints it.
"""

from __future__ import annotations

import contextlib
import importlib
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from stratagem.core.foundations import look_up

Wrap = Callable[[Any], Any]
"""Function from an attribute (None where there is none) to what takes its place; None leaves everything as it is."""


class Extent(Enum):
    """How long a replacement stays."""

    PROCESS = "until undo()"
    FIT = "while fit, evaluate or predict of a model of a strategy runs"
    STEP = "while a step is traced"


class Patch(NamedTuple):
    """Attributes that one part of Stratagem replaces for one reason.

    Attributes:
        user: The module that does it.
        reason: What would not work without it.
        names: Each as module:attribute; where releases differ, the newest first: "a:b|c".
        extent: How long they stay replaced.
    """

    user: str
    reason: str
    names: tuple[str, ...]
    extent: Extent = Extent.PROCESS

    @property
    def keys(self) -> list[str]:
        """The names as `install` is given them: without their modules, the newest of alternatives."""
        return [_key(name) for name in self.names]


def _of(owner: str, *names: str) -> tuple[str, ...]:
    """Return attributes of a class or module; of "module:Class|ClassInOtherReleases" those of either."""
    return tuple("|".join(f"{each}.{name}" for each in owner.split("|")) for name in names)


_JAX_TRAINER: Final = "keras.src.backend.jax.trainer:JAXTrainer|Trainer"
_BASE_TRAINER: Final = "keras.src.trainers.trainer:BaseTrainer|Trainer"
_BATCH_NORMALIZATION: Final = "keras.src.layers.normalization.batch_normalization:BatchNormalization"
_OPTIMIZER: Final = "keras:optimizers.Optimizer"
_SCALING: Final = "keras:optimizers.LossScaleOptimizer"
_ARRAY: Final = "jax._src.array:ArrayImpl"
_TRACER: Final = "jax.core:Tracer"

PATCHES: Final = (
    Patch(
        "stratagem.fit.bind",
        "a model that is made or compiled inside strategy.scope() belongs to the strategy",
        (*_of(_JAX_TRAINER, "__init__"), *_of(_BASE_TRAINER, "compile")),
    ),
    Patch(
        "stratagem.fit.bind",
        "models of a strategy train with it; so do others where Keras alone cannot run their input or step",
        _of(_JAX_TRAINER, "fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"),
    ),
    Patch(
        "stratagem.fit.bind",
        "all workers may save: one file, written once, there whole or not at all",
        _of("keras:Model", "save", "save_weights"),
    ),
    Patch(
        "stratagem.fit.bind",
        "BatchNormalization(synchronized=True), which Keras refuses on JAX",
        (*_of(_BATCH_NORMALIZATION, "__init__"), *_of("keras.src.backend.jax:ops.nn|nn", "moments")),
    ),
    Patch(
        "stratagem.fit.bind",
        "apply_gradients(skip_gradients_aggregation=True); LossScaleOptimizer.apply, which fails on JAX",
        (*_of(_OPTIMIZER, "apply_gradients"), *_of(_SCALING, "apply")),
    ),
    Patch(
        "stratagem.fit.bind",
        "Keras's own loops run the steps of the strategy on batches of the strategy",
        (
            "keras.src.trainers.data_adapters:get_data_adapter",
            "keras.src.backend.jax.trainer:JAXEpochIterator._get_iterator",
            "keras.src.trainers.epoch_iterator:EpochIterator._enumerate_iterator",
            "keras:callbacks.CallbackList.__init__",
            "|".join(_of(_JAX_TRAINER, "state_sync", "jax_state_sync")),  # the first since Keras 3.16
            *_of(_JAX_TRAINER, "_get_jax_state", "_maybe_symbolic_build"),
            *_of(_JAX_TRAINER, "make_train_function", "make_test_function", "make_predict_function"),
            *_of(_BASE_TRAINER, "_symbolic_build"),
        ),
        Extent.FIT,
    ),
    Patch(
        "stratagem.fit.while_tracing",
        "gradients are summed over replicas where an optimizer is applied",
        (*_of(_OPTIMIZER, "apply", "stateless_apply"), *_of(_SCALING, "stateless_apply")),
        Extent.STEP,
    ),
    Patch(
        "stratagem.fit.while_tracing",
        "losses and statistics of a share add up to those of the batch",
        (
            "keras.src.losses.loss:apply_mask",
            "keras.src.losses.loss:reduce_values",
            *("keras:losses.Circle.call", "keras:losses.Dice.call", "keras:losses.Tversky.call"),
            *_of(_BATCH_NORMALIZATION, "_moments"),
        ),
        Extent.STEP,
    ),
    Patch(
        "stratagem.fit.while_tracing",
        "a step of (data), as in TensorFlow, may end with `return super().train_step(data)`",
        _of(_JAX_TRAINER, "train_step", "test_step", "predict_step"),
        Extent.STEP,
    ),
    Patch(
        "stratagem.tf.keras.compat",
        "arguments and names that optimizers had in Keras 2: Adam(lr=...), optimizer.lr, minimize",
        (
            *_of("keras.src.optimizers.base_optimizer:BaseOptimizer", "__init__", "get_weights", "lr", "set_weights"),
            *_of("keras.src.optimizers.base_optimizer:BaseOptimizer", "weights"),
            *_of(_OPTIMIZER, "minimize"),
            *_of(_SCALING, "apply_gradients", "get_scaled_loss", "get_unscaled_gradients", "loss_scale"),
        ),
    ),
    Patch(
        "stratagem.tf.keras.compat",
        "add_weight('name', ...) and reset_states, as a program's own layers and metrics use them in Keras 2",
        (*_of("keras:Layer", "add_weight"), *_of("keras:metrics.Metric", "add_weight", "reset_state", "reset_states")),
    ),
    Patch(
        "stratagem.tf.keras.compat",
        "Constant([1.0, 2.0]) and InputLayer(input_shape=...)",
        ("keras:initializers.Constant.__call__", "keras:layers.InputLayer.__init__"),
    ),
    Patch(
        "stratagem.tf.keras.compat",
        "arguments, file names and attributes that models had in Keras 2",
        (
            *_of(_BASE_TRAINER, "compile"),
            *_of("keras:Model", "build", "compiled_loss", "compiled_metrics", "fit", "evaluate", "predict"),
            *_of("keras:Model", "save", "save_weights", "load_weights"),
        ),
    ),
    Patch(
        "stratagem.tf.keras.derivatives.compat",
        "TensorFlow's derivatives in Keras's losses, activations, regularisers and layers",
        (
            *_of("keras.src.backend.jax:ops.core|core", "stop_gradient"),
            *_of("keras.src.backend.jax:ops.math|math", "rsqrt"),
            *_of("keras.src.backend.jax:ops.nn|nn", "categorical_crossentropy", "elu", "leaky_relu", "max_pool"),
            *_of("keras.src.backend.jax:ops.nn|nn", "selu", "softsign"),
            *_of("keras.src.backend.jax:ops.numpy|numpy", "absolute", "clip", "maximum", "minimum", "power"),
            *_of("keras.src.backend.jax:ops.numpy|numpy", "sign", "sqrt"),
        ),
    ),
    Patch(
        "stratagem.tf.eager.compat",
        "methods of tf.Tensor and tf.Variable: tensor.numpy(), variable.read_value()",
        (
            *_of(_ARRAY, "get_shape", "numpy", "set_shape"),
            *_of(_TRACER, "get_shape", "numpy", "set_shape"),
            *_of("keras:KerasTensor", "get_shape", "set_shape"),
            *_of("keras:Variable", "__iter__", "get_shape", "initialized_value", "numpy", "read_value", "set_shape"),
        ),
    ),
    Patch(
        "stratagem.tf.eager.compat",
        "TensorFlow's derivatives of abs(x) and x ** y",
        (
            *_of(_ARRAY, "__abs__", "__pow__", "__rpow__"),
            *_of(_TRACER, "__abs__", "__pow__", "__rpow__"),
            *_of("keras:Variable", "__pow__", "__rpow__"),
        ),
    ),
    Patch(
        "stratagem.tf.eager.compat",
        "x[5] of five elements is refused, where JAX takes the last one",
        (*_of(_ARRAY, "__getitem__"), *_of(_TRACER, "__getitem__")),
    ),
    Patch(
        "stratagem.estimator.updates",
        "optimizer.minimize(loss) in a model function",
        _of(_OPTIMIZER, "compute_gradients", "minimize"),
    ),
    Patch(
        "stratagem.estimator.variables",
        "a model function that runs again finds the variables and optimizers that it made at first",
        (*_of("keras:Variable", "__init__", "__new__", "assign"), *_of(_OPTIMIZER, "__init__")),
    ),
)
"""All of them."""


_NONE: Final = object()
_UNKNOWN: Final = object()


class _Replacement:
    """An attribute and what takes its place, made when it is first set, and again if the attribute has changed since.

    Args:
        name: The attribute, as in the table.
        wrap: What makes its replacement.

    Raises:
        AttributeError: This release of JAX or Keras lacks the class or module that has it.
    """

    def __init__(self, name: str, wrap: Wrap) -> None:
        self._owner, self._name = _place(name)
        self._wrap = wrap
        self._own: Any = _UNKNOWN
        self._new: Any = None

    def set(self) -> None:
        """Replace the attribute."""
        own = vars(self._owner).get(self._name, _NONE)
        if own is not self._own:
            self._own, self._new = own, self._wrap(getattr(self._owner, self._name, None))
        if self._new is not None:
            setattr(self._owner, self._name, self._new)

    def restore(self) -> None:
        """Let the attribute be what it was."""
        if self._new is None:
            return
        if self._own is not _NONE:
            setattr(self._owner, self._name, self._own)
        elif self._name == "__new__":  # where one was deleted, CPython goes on to refuse the arguments of `__init__`
            setattr(self._owner, self._name, staticmethod(lambda cls, *_, **__: object.__new__(cls)))
        else:  # it was inherited, or was not there
            delattr(self._owner, self._name)


_lock = threading.RLock()
_installed: dict[str, list[_Replacement]] = {}
"""Of each user what stays replaced, in the order in which it was."""

_for_a_while: dict[Extent, dict[str, list[_Replacement]]] = {Extent.FIT: {}, Extent.STEP: {}}
"""Of each user what is replaced meanwhile."""

_depths: dict[Extent, int] = dict.fromkeys(_for_a_while, 0)
_set_now: dict[Extent, list[_Replacement]] = {extent: [] for extent in _for_a_while}


def install(user: str, wraps: Mapping[str, Wrap]) -> None:
    """Install the rows of one module; a second call does nothing.

    Args:
        user: The module.
        wraps: What makes the replacement of each name in its rows, by the name without its module ("Model.save").

    Raises:
        LookupError: The names are not those of the table.
    """
    with _lock:
        if user in _installed:
            return
        rows = [patch for patch in PATCHES if patch.user == user]
        listed = {key for patch in rows for key in patch.keys}
        if listed != set(wraps):
            raise LookupError(f"{user} and core/patches.py differ in {sorted(listed ^ set(wraps))}.")
        lasting = _installed[user] = []
        for patch in rows:
            made = [_Replacement(name, wraps[_key(name)]) for name in patch.names]
            if patch.extent is not Extent.PROCESS:
                _for_a_while[patch.extent].setdefault(user, []).extend(made)
                continue
            for each in made:
                each.set()
            lasting += made


def undo(user: str | None = None) -> None:
    """Give Keras and JAX their own attributes back.

    Models that belong to a strategy, and programs that use `stratagem.tf`, do not work afterwards until their parts are
    installed again.

    Args:
        user: The module whose rows are undone; None for all.
    """
    with _lock:
        for each in reversed([*_installed] if user is None else [user]):
            for replacement in reversed(_installed.pop(each, [])):
                replacement.restore()
            for of_users in _for_a_while.values():
                of_users.pop(each, None)


@contextlib.contextmanager
def during(extent: Extent) -> Iterator[None]:
    """Replace what is replaced only for a while. May be nested, and entered by several threads at once.

    Args:
        extent: FIT or STEP.
    """
    with _lock:
        _depths[extent] += 1
        if _depths[extent] == 1:
            _set_now[extent] = [each for of_user in _for_a_while[extent].values() for each in of_user]
            for each in _set_now[extent]:
                each.set()
    try:
        yield
    finally:
        with _lock:
            _depths[extent] -= 1
            if not _depths[extent]:
                for each in reversed(_set_now[extent]):
                    each.restore()


def table() -> str:
    """Return the rows as text for a terminal.

    Example:
        >>> print(table()[:63])
        what Stratagem replaces in Keras and JAX, and why
        until undo():
    """
    lines = ["what Stratagem replaces in Keras and JAX, and why"]
    for extent in Extent:
        lines.append(f"{extent.value}:")
        for patch in PATCHES:
            if patch.extent is extent:
                lines.append(f"  {patch.user.removeprefix('stratagem.')}: {patch.reason}")
                lines += textwrap.wrap(", ".join(patch.keys), 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def _key(name: str) -> str:
    path = name.partition("|")[0].partition(":")[2]
    return ".".join(path.split(".")[-2:])


def _place(name: str) -> tuple[Any, str]:
    """Return the owner of an attribute, and the attribute's name in this release.

    Raises:
        AttributeError: This release lacks the owner.
    """
    module, _, paths = name.partition(":")
    places = []
    for path in paths.split("|"):
        owner, _, attribute = path.rpartition(":")[2].rpartition(".")
        with contextlib.suppress(AttributeError):
            places.append((look_up(f"{module}:{owner}") if owner else importlib.import_module(module), attribute))
    if not places:
        raise AttributeError(name)
    return next((place for place in places if hasattr(*place)), places[0])
