"""Attributes of Keras and JAX that Stratagem replaces or adds: one table, with reasons, and one call that undoes it.

Nothing changes when Stratagem is imported. A part of it installs its rows when it is first needed: `fit` with the first
strategy, `stratagem.tf` when a program uses the first of its names. What a replacement does for models and arrays that
are none of ours is what the original does. Rows that are needed only for a while (in a scope, while `fit` runs, while a
step is traced) are set then and restored afterwards. `install` refuses any other. `stratagem doctor` prints the table,
which is a third of this file and stands beside what installs it, so that neither is changed without the other.

A class of Keras that is to answer to several names more gets a base class of ours, before its own bases: one attribute,
`__bases__`, as Keras itself changes those of models. The names that come by it stand behind it in the table, in
brackets; what the class itself defines stays as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from stratagem.core.foundations import look_up

Wrap = Callable[[Any], Any]
"""Function from an attribute (None where there is none) to what takes its place; None leaves everything as it is."""


class Entry(NamedTuple):
    """Entry that a mapping gets for a class.

    Attributes:
        key: The class.
        value: Its entry; None where this release needs none.
    """

    key: type
    value: Any


Given = Wrap | type | Entry
"""For a name of the table: for `__bases__` the class that becomes the first, for a mapping its entry."""


class Extent(Enum):
    """How long a replacement stays."""

    PROCESS = "until undo()"
    SCOPE = "while the scope of a strategy is open"
    FIT = "while fit, evaluate or predict of a model of a strategy runs"
    STEP = "while a step is traced"
    DERIVATIVES = "while something is traced or recorded that may be differentiated: a step, under a tape, in fit"
    MODEL_FUNCTION = "while the model function of an Estimator runs"


class Patch(NamedTuple):
    """Attributes that one part of Stratagem replaces for one reason.

    Attributes:
        user: The module that does it.
        extent: How long they stay replaced.
        reason: What would not work without it.
        names: Each as module:attribute; where releases differ, the newest first: "a:b|c".
        by_bases: What comes by each `__bases__` among the names, in their order.
    """

    user: str
    extent: Extent
    reason: str
    names: tuple[str, ...]
    by_bases: tuple[tuple[str, ...], ...] = ()

    @property
    def keys(self) -> list[str]:
        """The names as `install` is given them: without their modules, the newest of alternatives."""
        return [_key(name) for name in self.names]


_JAX_TRAINER: Final = "keras.src.backend.jax.trainer:JAXTrainer|Trainer"
_BASE_TRAINER: Final = "keras.src.trainers.trainer:BaseTrainer|Trainer"
_BATCH_NORMALIZATION: Final = "keras.src.layers.normalization.batch_normalization:BatchNormalization"
_OPTIMIZER: Final = "keras:optimizers.Optimizer"
_SCALING: Final = "keras:optimizers.LossScaleOptimizer"
_OPERATIONS: Final = "keras.src.backend.jax:ops"
_ARRAY: Final = "jax._src.array:ArrayImpl"
_TRACER: Final = "jax.core:Tracer"
_ARITHMETIC: Final = (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
)

_TABLE: Final[Mapping[tuple[str, Extent], Mapping[str, Sequence[str]]]] = {
    ("stratagem.fit.bind", Extent.PROCESS): {
        "models of a strategy train with it; so do others where Keras alone cannot run their input or step": (
            "keras:Model __bases__ < fit evaluate predict train_on_batch test_on_batch predict_on_batch",
        ),
        "all workers may save: one file, written once, there whole or not at all": ("keras:Model save save_weights",),
        "BatchNormalization(synchronized=True), which Keras refuses on JAX": (f"{_BATCH_NORMALIZATION} __init__",),
        "slots in shards; apply_gradients(skip_gradients_aggregation=True); a LossScaleOptimizer that works on JAX": (
            f"{_OPTIMIZER} __bases__ < add_variable apply_gradients",
            f"{_SCALING} apply",
        ),
    },
    ("stratagem.strategy.devices", Extent.PROCESS): {
        "keras.device('cpu') is this worker's device, not worker 0's": ("keras.src.backend: device_scope",),
    },
    ("stratagem.strategy.first_values", Extent.PROCESS): {
        "variables of a scope have the chief's first values, in shards; target.assign(source) copies": (
            "keras:Variable __bases__ < __init__ __array__ assign",
        ),
    },
    ("stratagem.strategy.first_arrays", Extent.SCOPE): {
        "first values of variables, without a program of XLA for each shape": (
            "keras.src.backend.jax:random uniform normal truncated_normal",
            f"{_OPERATIONS}.numpy|numpy zeros ones",
        ),
    },
    ("stratagem.fit.bind", Extent.SCOPE): {
        "a model that is made or compiled inside strategy.scope() belongs to the strategy": (
            f"{_JAX_TRAINER} __init__",
            f"{_BASE_TRAINER} compile",
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
        "callbacks and checkpoints read the state as its steps left it": (f"{_JAX_TRAINER} state_sync|jax_state_sync",),
    },
    ("stratagem.fit.while_tracing", Extent.STEP): {
        "gradients are summed over replicas where an optimizer is applied": (
            f"{_OPTIMIZER} apply stateless_apply",
            f"{_SCALING} stateless_apply",
        ),
        "losses and statistics of a share add up to those of the batch": (
            "keras.src.losses.loss: apply_mask reduce_values",
            *("keras:losses.Circle call", "keras:losses.Dice call", "keras:losses.Tversky call"),
            f"{_OPERATIONS}.nn|nn moments",
        ),
        "a loss for each row (reduction=None) trains with their sum, which Keras on JAX refuses": (
            f"{_JAX_TRAINER} compute_loss_and_updates",
        ),
        "a metric's result in strategy.run is that of all replicas": ("keras:metrics.Metric __getattribute__",),
        "a step of (data), as in TensorFlow, may end with `return super().train_step(data)`": (
            f"{_JAX_TRAINER} train_step test_step predict_step",
        ),
    },
    ("stratagem.loop.compat", Extent.PROCESS): {
        "arrays that a tape has recorded, where compiled functions get them": (
            "jax._src.interpreters.pxla:shard_arg_handlers RecordedArray",
            "jax._src.dtypes:canonicalize_value_handlers RecordedArray",
        ),
    },
    ("stratagem.loop.added_losses", Extent.DERIVATIVES): {
        "model.losses after tape.gradient, and after the tape's context": ("keras:Layer add_loss",),
    },
    ("stratagem.tf.keras.complex_losses", Extent.PROCESS): {
        "losses of complex numbers, of which Keras 3 drops the imaginary parts": ("keras:Loss __call__",),
    },
    ("stratagem.tf.keras.complex_losses", Extent.DERIVATIVES): {
        "metrics of complex numbers, whose squares may be negative": ("keras:metrics.MeanMetricWrapper update_state",),
    },
    ("stratagem.tf.keras.compat", Extent.PROCESS): {
        "arguments and names that optimizers had in Keras 2: Adam(lr=...), optimizer.lr, minimize; sharing one": (
            f"{_OPTIMIZER} __bases__ < __init__ apply_gradients build get_scaled_loss get_slot get_unscaled_gradients "
            "get_weights loss_scale lr minimize stateless_apply weights",
        ),
        "layer(x, True), which Keras 3 refuses": ("keras:Layer __call__",),
        "Layer(weights=..., name='block1/conv', batch_input_shape=...), and a layer's add_weight('name', ...)": (
            "keras:Layer __init__",
        ),
        "add_weight('name', ...), reset_states and weights, as a program's own metrics use them in Keras 2": (
            "keras:metrics.Metric __bases__ < __init_subclass__ reset_states weights",
        ),
        "BatchNormalization(fused=...): Keras 3 chooses the kernel itself": (f"{_BATCH_NORMALIZATION} __init__",),
        "Constant([1.0, 2.0]): the numbers fill the weights in order": ("keras:initializers.Constant __call__",),
        "arguments, file names, attributes and lookups of text that models had in Keras 2": (
            f"{_BASE_TRAINER} compile",
            "keras:Model __bases__ < __call__ __new__ add_loss begins_on_host compiled_loss compiled_metrics "
            "compute_loss compute_metrics distribute_strategy evaluate evaluate_generator fit fit_generator "
            "get_metrics_result host_part losses metrics_names predict predict_classes predict_generator predict_proba "
            "reset_states train_on_batch",
            "keras:Model save save_weights",
        ),
    },
    ("stratagem.tf.keras.compat", Extent.SCOPE): {
        "a loss that is a mean is refused, as in TensorFlow, but for those of compile": (
            "keras:Loss __call__",
            "keras.src.trainers.compile_utils:CompileLoss __call__",
        ),
    },
    ("stratagem.tf.keras.derivatives.compat", Extent.DERIVATIVES): {
        "TensorFlow's derivatives in Keras's losses, activations, regularisers and layers": (
            f"{_OPERATIONS}.core|core stop_gradient",
            f"{_OPERATIONS}.math|math rsqrt",
            f"{_OPERATIONS}.nn|nn categorical_crossentropy elu leaky_relu max_pool selu softsign",
            f"{_OPERATIONS}.numpy|numpy absolute clip maximum minimum power sign sqrt",
        ),
    },
    ("stratagem.tf.eager.compat", Extent.PROCESS): {
        "what tf.Tensor and tf.Variable answer to: tensor.numpy(), get_shape(), device, variable.read_value()": (
            *(f"{_ARRAY} __getattr__", f"{_TRACER} __getattr__", "keras:KerasTensor __getattr__"),
            "keras:Variable __bases__ < __array_priority__ __bool__ __iter__ __pow__ __rpow__ device dtype "
            "experimental_ref gather_nd get_shape initialized_value initializer is_initialized numpy read_value ref "
            "scatter_add scatter_div scatter_max scatter_min scatter_mul scatter_nd_add scatter_nd_sub "
            "scatter_nd_update scatter_sub scatter_update set_shape sparse_read",
        ),
        "x[5] of five elements is refused, where JAX takes the last one": ("jax._src.numpy.indexing: rewriting_take",),
    },
    ("stratagem.tf.eager.compat", Extent.DERIVATIVES): {
        "TensorFlow's derivatives of abs(x) and x ** y": (
            f"{_ARRAY} __abs__ __pow__ __rpow__",
            f"{_TRACER} __abs__ __pow__ __rpow__",
        ),
        "scores * (-2**32 + 1): a number of Python beside a tensor of floating-point numbers may be large": (
            f"{_ARRAY} {_ARITHMETIC}",
            f"{_TRACER} {_ARITHMETIC}",
        ),
    },
    ("stratagem.estimator.updates", Extent.PROCESS): {
        "optimizer.minimize(loss) in a model function": (f"{_OPTIMIZER} __bases__ < compute_gradients minimize",),
    },
    ("stratagem.estimator.variables", Extent.PROCESS): {
        "a model function that runs again finds the variables that it made at first": (
            "keras:Variable __bases__ < __new__",
        ),
    },
    ("stratagem.estimator.variables", Extent.MODEL_FUNCTION): {
        "variables and optimizers are made once, however often a model function runs": (
            "keras:Variable __init__ assign",
            f"{_OPTIMIZER} __init__",
        ),
    },
}
"""For each user and extent the reasons, and for each reason "module:Class attribute attribute ...".

Where releases differ, the newest stands first: "module:Class|OldClass attribute|old_attribute". What comes by a base
class stands behind "<". The owner may be a mapping of JAX's with classes for keys.
"""


def _names(entry: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each attribute of an entry of the table as module:attribute, and what comes by it."""
    head, _, by_bases = entry.partition(" < ")
    place, *attributes = head.split()
    module, _, owners = place.partition(":")
    for attribute in attributes:
        each = itertools.product(attribute.split("|"), owners.split("|"))
        yield (
            f"{module}:" + "|".join(f"{owner}.{name}".removeprefix(".") for name, owner in each),
            tuple(by_bases.split()),
        )


def _patch(user: str, extent: Extent, reason: str, entries: Sequence[str]) -> Patch:
    found = [each for entry in entries for each in _names(entry)]
    return Patch(user, extent, reason, tuple(name for name, _ in found), tuple(names for _, names in found if names))


PATCHES: Final = tuple(
    _patch(user, extent, reason, entries)
    for (user, extent), reasons in _TABLE.items()
    for reason, entries in reasons.items()
)
"""All of them."""

_USERS: Final = tuple(dict.fromkeys(patch.user for patch in PATCHES))
"""Their modules, in order: what one replaces stands round what those before it have replaced."""


_PLAIN_NEW: Final = staticmethod(lambda cls, *_, **__: object.__new__(cls))
"""What `object.__new__` does for a class that has an `__init__`."""

_Where = tuple[int, Any]
"""The class or module that has an attribute, and its name."""

_NONE: Final = object()
_UNKNOWN: Final = object()


class _Replacement:
    """An attribute and what takes its place, made when it is first set, and again if the attribute has changed since.

    Args:
        name: The attribute, as in the table.
        given: What makes its replacement.

    Raises:
        AttributeError: This release of JAX or Keras lacks the class or module that has it.
    """

    def __init__(self, name: str, given: Given) -> None:
        self._owner, self._name = _place(name)
        self._given = given
        self._own: Any = _UNKNOWN
        self._source: Any = _UNKNOWN
        self._new: Any = None
        self.place = (id(self._owner), given.key if isinstance(given, Entry) else self._name)

    def set(self) -> None:
        """Replace the attribute."""
        own = self._found()
        source = self._inherited() if own is _NONE else own
        if own is not self._own or source is not self._source:  # another base may have come, or gone
            self._own, self._source = own, source
            self._new = self._made()
        if self._new is None:
            return
        if self._makes_objects() and vars(self._owner).get("__new__") is _PLAIN_NEW:
            del self._owner.__new__  # of an earlier `restore`
        self._put(self._new)

    def restore(self) -> None:
        """Let the attribute be what it was."""
        if self._new is None:
            return
        if self._own is not _NONE:
            self._put(self._own)
        elif isinstance(self._given, Entry):
            del self._owner[self._given.key]
        else:  # it was inherited, or was not there
            delattr(self._owner, self._name)
        if self._makes_objects():
            # A class that has had a `__new__` of Python's goes on to call one, in every CPython so far; without this
            # it would be that of `object`, which then refuses the arguments of `__init__`.
            self._owner.__new__ = _PLAIN_NEW

    def _makes_objects(self) -> bool:
        """Whether a `__new__` comes by the base, and the class has none of its own."""
        if not isinstance(self._given, type) or "__new__" not in vars(self._given):
            return False
        return vars(self._owner).get("__new__") in (None, _PLAIN_NEW)

    def _found(self) -> Any:
        if isinstance(self._given, Entry):
            return None if self._given.value is None else self._owner.get(self._given.key, _NONE)
        if isinstance(self._given, type):
            return self._owner.__bases__
        return vars(self._owner).get(self._name, _NONE)

    def _inherited(self) -> Any:
        return None if isinstance(self._given, Entry) else getattr(self._owner, self._name, None)

    def _made(self) -> Any:
        if isinstance(self._given, Entry):
            return self._given.value
        if isinstance(self._given, type):
            return (self._given, *self._own)
        return self._given(self._inherited())

    def _put(self, value: Any) -> None:
        if isinstance(self._given, Entry):
            self._owner[self._given.key] = value
        else:
            setattr(self._owner, self._name, value)


_lock = threading.RLock()
_installed: dict[Extent, list[tuple[str, _Replacement]]] = {extent: [] for extent in Extent}
"""The users' names and what they have installed, in the order in which it was."""

_around: dict[str, tuple[Extent, Callable[[], contextlib.AbstractContextManager[Any]]]] = {}
"""Contexts that users want entered with an extent."""

_depths: dict[Extent, int] = {extent: int(extent is Extent.PROCESS) for extent in Extent}
"""Number of times that each extent has been entered and not left."""


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.depths: dict[Extent, int] = dict.fromkeys(Extent, 0)


_of_thread = _OfThread()


def install(
    user: str,
    wraps: Mapping[str, Given],
    around: tuple[Extent, Callable[[], contextlib.AbstractContextManager[Any]]] | None = None,
) -> None:
    """Install the rows of one module; a second call does nothing.

    Args:
        user: The module.
        wraps: What makes the replacement of each name in its rows, by the name without its module ("Model.save").
        around: An extent, and a context that each thread that enters the extent enters too.

    Raises:
        LookupError: The names are not those of the table.
    """
    with _lock:
        if any(user == each for rows in _installed.values() for each, _ in rows):
            return
        rows = [patch for patch in PATCHES if patch.user == user]
        listed = {key for patch in rows for key in patch.keys}
        if listed != set(wraps):
            raise LookupError(f"{user} and core/patches.py differ in {sorted(listed ^ set(wraps))}.")
        by_bases = {name for patch in rows for names in patch.by_bases for name in names}
        given = {name for base in wraps.values() if isinstance(base, type) for name in _defined(base)}
        if by_bases != given:
            raise LookupError(f"The bases of {user} and core/patches.py differ in {sorted(by_bases ^ given)}.")
        made = [(patch.extent, _Replacement(name, wraps[_key(name)])) for patch in rows for name in patch.names]
        # What stands elsewhere stays: other threads are using it.
        with _restored({each.place for _, each in made}):
            for extent, each in made:
                _installed[extent].append((user, each))
            for of_extent in _installed.values():  # also what is installed again stands where the table has it
                of_extent.sort(key=lambda row: _USERS.index(row[0]))
            if around is not None:
                _around[user] = around


def users(below: str) -> list[str]:
    """Return the modules that have installed something in this process.

    Args:
        below: A package; modules elsewhere are left out.
    """
    with _lock:
        found = dict.fromkeys(user for rows in _installed.values() for user, _ in rows)
    return [user for user in found if user.startswith(f"{below}.")]


_OF_ANY_CLASS: Final = {*vars(type("_", (), {})), "__annotations__", "__firstlineno__", "__static_attributes__"}


def _defined(base: type) -> set[str]:
    """Return the names that a class adds, without its own private ones."""
    names = {name for name in vars(base) if name.startswith("__") or not name.startswith("_")}
    return names - _OF_ANY_CLASS


def undo(user: str | None = None) -> None:
    """Give Keras and JAX their own attributes back.

    Models that belong to a strategy, and programs that use `stratagem.tf`, do not work afterwards until their parts are
    installed again.

    Args:
        user: The module whose rows are undone; None for all.
    """
    with _lock, _restored():
        for rows in _installed.values():
            rows[:] = [] if user is None else [(each, row) for each, row in rows if each != user]
        for each in [*_around] if user is None else [user]:
            _around.pop(each, None)


@contextlib.contextmanager
def _restored(places: Collection[_Where] | None = None) -> Iterator[None]:
    """Restore attributes, and set afterwards what is installed then: what lasts first, what is for a while round it.

    Args:
        places: Which of them; None for all.
    """
    open_ones = [extent for extent in Extent if _depths[extent]]
    for extent in reversed(open_ones):
        _restore(extent, places)
    try:
        yield
    finally:
        for extent in open_ones:
            _set(extent, places)


def _set(extent: Extent, places: Collection[_Where] | None = None) -> None:
    for _, row in _installed[extent]:
        if places is None or row.place in places:
            row.set()


def _restore(extent: Extent, places: Collection[_Where] | None = None) -> None:
    for _, row in reversed(_installed[extent]):
        if places is None or row.place in places:
            row.restore()


@contextlib.contextmanager
def during(*extents: Extent) -> Iterator[None]:
    """Replace what is replaced only for a while. May be nested, and entered by several threads at once.

    Args:
        extents: All but PROCESS.
    """
    with contextlib.ExitStack() as stack:
        with _lock:
            for extent in extents:
                _depths[extent] += 1
                _of_thread.depths[extent] += 1
                stack.callback(_leave, extent)
                if _depths[extent] == 1:
                    _set(extent)
            contexts = [context for extent, context in _around.values() if extent in extents]
        for context in contexts:
            stack.enter_context(context())
        yield


def holds_here(extent: Extent) -> bool:
    """Whether this thread is in an extent: what is replaced for all threads may ask for its own.

    Args:
        extent: All but PROCESS.
    """
    return _of_thread.depths[extent] > 0


def _leave(extent: Extent) -> None:
    with _lock:
        _depths[extent] -= 1
        _of_thread.depths[extent] -= 1
        if not _depths[extent]:
            _restore(extent)


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
                lines += textwrap.wrap(_shown(patch), 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def _shown(patch: Patch) -> str:
    by_bases = iter(patch.by_bases)
    return ", ".join(f"{key} ({', '.join(next(by_bases))})" if key.endswith("__bases__") else key for key in patch.keys)


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
