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
import itertools
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        extent: How long they stay replaced.
        reason: What would not work without it.
        names: Each as module:attribute; where releases differ, the newest first: "a:b|c".
    """

    user: str
    extent: Extent
    reason: str
    names: tuple[str, ...]

    @property
    def keys(self) -> list[str]:
        """The names as `install` is given them: without their modules, the newest of alternatives."""
        return [_key(name) for name in self.names]


_JAX_TRAINER: Final = "keras.src.backend.jax.trainer:JAXTrainer|Trainer"
_BASE_TRAINER: Final = "keras.src.trainers.trainer:BaseTrainer|Trainer"
_BATCH_NORMALIZATION: Final = "keras.src.layers.normalization.batch_normalization:BatchNormalization"
_BASE_OPTIMIZER: Final = "keras.src.optimizers.base_optimizer:BaseOptimizer"
_OPTIMIZER: Final = "keras:optimizers.Optimizer"
_SCALING: Final = "keras:optimizers.LossScaleOptimizer"
_OPERATIONS: Final = "keras.src.backend.jax:ops"
_ARRAY: Final = "jax._src.array:ArrayImpl"
_TRACER: Final = "jax.core:Tracer"

_TABLE: Final[Mapping[tuple[str, Extent], Mapping[str, Sequence[str]]]] = {
    ("stratagem.fit.bind", Extent.PROCESS): {
        "a model that is made or compiled inside strategy.scope() belongs to the strategy": (
            f"{_JAX_TRAINER} __init__",
            f"{_BASE_TRAINER} compile",
        ),
        "models of a strategy train with it; so do others where Keras alone cannot run their input or step": (
            f"{_JAX_TRAINER} fit evaluate predict train_on_batch test_on_batch predict_on_batch",
        ),
        "all workers may save: one file, written once, there whole or not at all": ("keras:Model save save_weights",),
        "callbacks and checkpoints read the state of a model as its steps have left it, wherever that is": (
            f"{_JAX_TRAINER} state_sync|jax_state_sync",
        ),
        "BatchNormalization(synchronized=True), which Keras refuses on JAX": (
            f"{_BATCH_NORMALIZATION} __init__",
            f"{_OPERATIONS}.nn|nn moments",
        ),
        "apply_gradients(skip_gradients_aggregation=True); LossScaleOptimizer.apply, which fails on JAX": (
            f"{_OPTIMIZER} apply_gradients",
            f"{_SCALING} apply",
        ),
    },
    ("stratagem.fit.bind", Extent.FIT): {
        "Keras's own loops run the steps of the strategy on batches of the strategy": (
            "keras.src.trainers.data_adapters: get_data_adapter",
            "keras.src.backend.jax.trainer:JAXEpochIterator _get_iterator",
            "keras.src.trainers.epoch_iterator:EpochIterator _enumerate_iterator",
            "keras:callbacks.CallbackList __init__",
            f"{_JAX_TRAINER} _get_jax_state _maybe_symbolic_build",
            f"{_JAX_TRAINER} make_train_function make_test_function make_predict_function",
            f"{_BASE_TRAINER} _symbolic_build",
        ),
    },
    ("stratagem.fit.while_tracing", Extent.STEP): {
        "gradients are summed over replicas where an optimizer is applied": (
            f"{_OPTIMIZER} apply stateless_apply",
            f"{_SCALING} stateless_apply",
        ),
        "losses and statistics of a share add up to those of the batch": (
            "keras.src.losses.loss: apply_mask reduce_values",
            *("keras:losses.Circle call", "keras:losses.Dice call", "keras:losses.Tversky call"),
            f"{_BATCH_NORMALIZATION} _moments",
        ),
        "a step of (data), as in TensorFlow, may end with `return super().train_step(data)`": (
            f"{_JAX_TRAINER} train_step test_step predict_step",
        ),
    },
    ("stratagem.tf.keras.compat", Extent.PROCESS): {
        "arguments and names that optimizers had in Keras 2: Adam(lr=...), optimizer.lr, minimize": (
            f"{_BASE_OPTIMIZER} __init__ get_weights lr set_weights weights",
            f"{_OPTIMIZER} minimize",
            f"{_SCALING} apply_gradients get_scaled_loss get_unscaled_gradients loss_scale",
        ),
        "add_weight('name', ...) and reset_states, as a program's own layers and metrics use them in Keras 2": (
            "keras:Layer add_weight",
            "keras:metrics.Metric add_weight reset_state reset_states",
        ),
        "Constant([1.0, 2.0]) and InputLayer(input_shape=...)": (
            "keras:initializers.Constant __call__",
            "keras:layers.InputLayer __init__",
        ),
        "arguments, file names and attributes that models had in Keras 2": (
            f"{_BASE_TRAINER} compile",
            "keras:Model build compiled_loss compiled_metrics fit evaluate predict save save_weights load_weights",
        ),
    },
    ("stratagem.tf.keras.derivatives.compat", Extent.PROCESS): {
        "TensorFlow's derivatives in Keras's losses, activations, regularisers and layers": (
            f"{_OPERATIONS}.core|core stop_gradient",
            f"{_OPERATIONS}.math|math rsqrt",
            f"{_OPERATIONS}.nn|nn categorical_crossentropy elu leaky_relu max_pool selu softsign",
            f"{_OPERATIONS}.numpy|numpy absolute clip maximum minimum power sign sqrt",
        ),
    },
    ("stratagem.tf.eager.compat", Extent.PROCESS): {
        "methods of tf.Tensor and tf.Variable: tensor.numpy(), variable.read_value()": (
            f"{_ARRAY} get_shape numpy set_shape",
            f"{_TRACER} get_shape numpy set_shape",
            "keras:KerasTensor get_shape set_shape",
            "keras:Variable __iter__ get_shape initialized_value numpy read_value set_shape",
        ),
        "TensorFlow's derivatives of abs(x) and x ** y": (
            f"{_ARRAY} __abs__ __pow__ __rpow__",
            f"{_TRACER} __abs__ __pow__ __rpow__",
            "keras:Variable __pow__ __rpow__",
        ),
        "x[5] of five elements is refused, where JAX takes the last one": (
            f"{_ARRAY} __getitem__",
            f"{_TRACER} __getitem__",
        ),
    },
    ("stratagem.estimator.updates", Extent.PROCESS): {
        "optimizer.minimize(loss) in a model function": (f"{_OPTIMIZER} compute_gradients minimize",),
    },
    ("stratagem.estimator.variables", Extent.PROCESS): {
        "a model function that runs again finds the variables and optimizers that it made at first": (
            "keras:Variable __init__ __new__ assign",
            f"{_OPTIMIZER} __init__",
        ),
    },
}
"""For each user and extent the reasons, and for each reason "module:Class attribute attribute ...".

Where releases differ, the newest stands first: "module:Class|OldClass attribute|old_attribute".
"""


def _names(entry: str) -> Iterator[str]:
    """Yield each attribute of an entry of the table as module:attribute."""
    place, *attributes = entry.split()
    module, _, owners = place.partition(":")
    for attribute in attributes:
        each = itertools.product(attribute.split("|"), owners.split("|"))
        yield f"{module}:" + "|".join(f"{owner}.{name}".removeprefix(".") for name, owner in each)


PATCHES: Final = tuple(
    Patch(user, extent, reason, tuple(name for entry in entries for name in _names(entry)))
    for (user, extent), reasons in _TABLE.items()
    for reason, entries in reasons.items()
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


def attributes(owner: str, values: Mapping[str, Any], *, where_missing: bool = False) -> dict[str, Wrap]:
    """Return what gives a class attributes that do not depend on those it has, as `install` takes it.

    Args:
        owner: The class, without its module.
        values: The attributes by their names.
        where_missing: Whether those that the class has stay.

    Example:
        >>> attributes("Metric", {"count": 3})["Metric.count"](None)
        3
    """
    return {
        f"{owner}.{name}": lambda own, value=value: None if where_missing and own is not None else value
        for name, value in values.items()
    }


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
        owner, _, attribute = path.rpartition(".")
        with contextlib.suppress(AttributeError):
            places.append((look_up(f"{module}:{owner}") if owner else importlib.import_module(module), attribute))
    if not places:
        raise AttributeError(name)
    return next((place for place in places if hasattr(*place)), places[0])
