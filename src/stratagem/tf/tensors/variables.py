"""`tf.Tensor`; `tf.Variable`, which is a `keras.Variable`; `tf.Module`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/Variable
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras

from stratagem.checkpoint.objects import WITH_STATE, Holder, tracked
from stratagem.core.eager import EagerArray, EagerText
from stratagem.core.errors import InputError, UsageError
from stratagem.core.made_here import note
from stratagem.core.types import ReduceOp
from stratagem.data.specs import TensorSpec
from stratagem.mesh.values import CombinedItself
from stratagem.program.compat import innermost_scope, value_of_constants
from stratagem.program.made import made_once
from stratagem.program.tracing import is_traced, own_array
from stratagem.replica.context import ReplicaContext, current_strategy
from stratagem.tf.tensors import assigned
from stratagem.tf.tensors.creators import created
from stratagem.tf.tensors.operation import held, tensor


def is_tensor(x: Any) -> bool:
    """Return whether a value is a tensor or a variable (`tf.is_tensor`)."""
    return isinstance(x, (keras.Variable, *_TENSORS))


_TENSORS: tuple[type, ...] = (jax.Array, EagerArray, EagerText, keras.KerasTensor)


class _TensorKind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _TENSORS)


class Tensor(metaclass=_TensorKind):
    """Class for `isinstance(x, tf.Tensor)`: true for arrays of JAX, traced or not, and for elements of datasets."""


class IndexedSlices(CombinedItself):
    """Slices of a tensor at indices (`tf.IndexedSlices`), as `v.scatter_add` takes them.

    Gradients are never such slices here: `isinstance(gradient, tf.IndexedSlices)` is False. `all_reduce` joins the
    slices of the replicas. `tf.convert_to_tensor` makes a tensor, in which slices at one index are summed.

    Args:
        values: The slices, one after the other.
        indices: The index of each slice along the first axis.
        dense_shape: The shape of the whole tensor.

    Example:
        >>> v = Variable([1.0, 2.0, 3.0])
        >>> v.scatter_add(IndexedSlices(values=tensor([10.0, 20.0]), indices=[0, 2])).tolist()
        [11.0, 2.0, 23.0]
    """

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values, self.indices = tensor(values), tensor(indices)
        self.dense_shape = None if dense_shape is None else tensor(dense_shape)

    def todense(self) -> jax.Array:
        """Return the whole tensor, with zeros where there are no slices."""
        if self.dense_shape is None:
            raise InputError(
                "tf.IndexedSlices without dense_shape was used as a tensor.",
                "Write tf.IndexedSlices(values, indices, dense_shape).",
            )
        shape = tuple(int(size) for size in self.dense_shape)
        indices, values = tensor(self.indices), tensor(self.values)  # where each worker has one replica, its own
        return jnp.zeros(shape, values.dtype).at[indices].add(values)

    def all_reduced(self, context: ReplicaContext, op: ReduceOp) -> IndexedSlices:
        if op not in (ReduceOp.SUM, ReduceOp.MEAN):
            raise InputError(
                f"all_reduce of tf.IndexedSlices was given {op.name}.",
                "Slices at one index are summed.",
                "Write SUM or MEAN; or give tf.convert_to_tensor(slices).",
            )
        values, indices = context.all_gather((self.values, self.indices), axis=0)
        if op is ReduceOp.MEAN:
            values = values / context.num_replicas_in_sync
        return IndexedSlices(values, indices, self.dense_shape)


def _of_parts(_: None, parts: Any) -> IndexedSlices:
    slices = object.__new__(IndexedSlices)
    slices.values, slices.indices, slices.dense_shape = parts
    return slices


jax.tree_util.register_pytree_node(
    IndexedSlices, lambda slices: ((slices.values, slices.indices, slices.dense_shape), None), _of_parts
)


class _SpecKind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TensorSpec)


class TypeSpec(metaclass=_SpecKind):
    """Class for `isinstance(x, tf.TypeSpec)`: true for a `tf.TensorSpec`."""


class VariableAggregation:
    """Ways to combine the values that replicas assign (`tf.VariableAggregation`), as Keras names them."""

    NONE: Final = "none"
    SUM: Final = "sum"
    MEAN: Final = "mean"
    ONLY_FIRST_REPLICA: Final = "only_first_replica"


class VariableSynchronization:
    """Times when assigned values are combined (`tf.VariableSynchronization`), as Keras names them."""

    AUTO: Final = "auto"
    NONE: Final = "none"
    ON_WRITE: Final = "on_write"
    ON_READ: Final = "on_read"


def _check_mode(what: str, mode: Any, modes: type, name: str | None) -> None:
    """Refuse what is no aggregation or synchronization."""
    known = {key: value for key, value in vars(modes).items() if key.isupper()}
    if mode not in known.values():
        raise InputError(
            f"Invalid variable {what} mode: {mode} for variable: {name}.",
            f"Write one of {', '.join(f'tf.{modes.__name__}.{key}' for key in known)}.",
        )


def _called(initial_value: Callable[[], Any], dtype: Any) -> Any:
    return tensor(initial_value(), dtype)


def _first_value(initial_value: Any, dtype: Any) -> tuple[Any, Any, Callable[..., Any]]:
    """Return the shape and the dtype of the first value, and the function that Keras asks for it."""
    if callable(initial_value) and innermost_scope() is None:
        initial_value = initial_value()
    if callable(initial_value):  # Keras makes its variables when the step is traced; they begin behind it.
        first = functools.partial(_called, initial_value, dtype)
        with keras.StatelessScope():  # which takes away the traced state of generators that it draws from
            spec = jax.eval_shape(first)
        once = functools.cache(first)
        return spec.shape, spec.dtype, lambda shape, dtype=None: once()
    value = None if initial_value is None else tensor(initial_value, dtype)
    if is_traced(value):  # as in a layer's `build`, which a model calls while it is traced
        value = value_of_constants(value)
    if value is None:
        raise UsageError(
            "The initial_value of tf.Variable is missing."
            if initial_value is None
            else "The initial_value of tf.Variable is computed in the function that is being compiled, "
            "from its arguments, variables or random numbers.",
            "A variable needs a first value that is known when it is made.",
            "Write tf.Variable(0.0), or give a function: tf.Variable(lambda: tf.zeros([2])).",
        )
    value = own_array(value)
    return value.shape, value.dtype, lambda shape, dtype=None: value


def _made(
    *,
    initial_value: Any,
    trainable: bool | None = None,
    name: str | None = None,
    dtype: Any = None,
    constraint: Callable[[Any], Any] | None = None,
    synchronization: str | None = None,
    aggregation: str | None = None,
    **_: Any,
) -> Any:
    """Make a variable."""
    strategy = current_strategy()
    aggregation = aggregation or VariableAggregation.NONE
    synchronization = synchronization or VariableSynchronization.AUTO
    _check_mode("aggregation", aggregation, VariableAggregation, name)
    _check_mode("synchronization", synchronization, VariableSynchronization, name)
    if synchronization == VariableSynchronization.NONE and strategy is not None:
        raise InputError(
            f"`NONE` variable synchronization mode is not supported with {type(strategy).__name__}: tf.Variable "
            "was given synchronization=NONE in the scope of a strategy.",
            "Each replica would assign its own value, and it is not defined when these values are combined.",
            "Leave synchronization out, or write tf.VariableSynchronization.ON_READ with an aggregation.",
        )
    shape, kind, start = _first_value(initial_value, dtype)
    facts: dict[str, Any] = {
        "shape": shape,
        "dtype": str(held(kind)),
        "autocast": False,
        "aggregation": aggregation,
        "name": None if name is None else re.sub(r"[/:]", "_", name),
    }
    on_read = synchronization == VariableSynchronization.ON_READ
    trains = not on_read if trainable is None else bool(trainable)

    def make() -> Any:
        if on_read and strategy is not None and strategy.mesh.size > 1:
            made: Any = assigned.SyncOnReadVariable(start, mesh=strategy.mesh, trainable=trains, **facts)
        else:
            made = assigned.Variable(start, trainable=trains, synchronization=synchronization, **facts)
        made.constraint = constraint
        if strategy is not None and not strategy.is_default:
            made.distribute_strategy = strategy
        if strategy is not None:
            strategy.take_variable(made)
        note(made)
        return made

    return made_once(tuple(facts.values()), make)


def _made_for_each_worker(**arguments: Any) -> Any:
    strategy = current_strategy()
    make_for_each = getattr(strategy, "make_for_each_worker", None)
    if make_for_each is None:
        raise UsageError(
            "tf.Variable was given per_worker_variable=True "
            + (f"in the scope of {type(strategy).__name__}." if strategy else "outside the scope of a strategy."),
            "Only a ParameterServerStrategy has workers with variables of their own.",
            "Write it in the scope of a ParameterServerStrategy, or leave it out.",
        )
    return make_for_each(functools.partial(_made, **{**arguments, "trainable": False}))


class _VariableKind(type):
    def __call__(
        cls,
        initial_value: Any = None,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        import_scope: Any = None,
        constraint: Callable[[Any], Any] | None = None,
        synchronization: str | None = VariableSynchronization.AUTO,
        aggregation: str | None = VariableAggregation.NONE,
        shape: Any = None,
        experimental_enable_variable_lifting: bool = True,
        per_worker_variable: bool = False,
    ) -> Any:
        return created(
            _made_for_each_worker if per_worker_variable else _made,
            initial_value=initial_value,
            trainable=trainable,
            validate_shape=validate_shape,
            caching_device=caching_device,
            name=name,
            variable_def=variable_def,
            dtype=dtype,
            import_scope=import_scope,
            constraint=constraint,
            synchronization=synchronization,
            aggregation=aggregation,
            shape=shape,
            experimental_enable_variable_lifting=experimental_enable_variable_lifting,
        )

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, keras.Variable)


class Variable(metaclass=_VariableKind):
    """A value that a program assigns (`tf.Variable`): makes a `keras.Variable`, and every one is an instance.

    In `strategy.scope()` the variable is mirrored. `v.value` (a method in TensorFlow) and `v.read_value()` give the
    value; `assign`, `assign_add` and `assign_sub` return the new value. In `strategy.run` the values that replicas
    assign are combined at once, as `aggregation` says, and so are the slices of `scatter_add` and the like.

    Args:
        initial_value: The first value, or a function that returns it.
        trainable: Whether it is trained; None for yes, or for no if `synchronization` is ON_READ.
        validate_shape: No effect: the shape cannot change.
        caching_device: No effect.
        name: Its name; a slash becomes an underscore.
        variable_def: No effect.
        dtype: The dtype; None for that of the value.
        import_scope: No effect.
        constraint: Function of the value that an optimizer applies after each update.
        synchronization: When the values that replicas assign are combined.
        aggregation: How these values are combined.
        shape: No effect: the shape is that of the value.
        experimental_enable_variable_lifting: No effect.
        per_worker_variable: Whether each worker of a `ParameterServerStrategy` has its own variable
            (docs/parameter_servers.md); `read_all()` returns all values.

    Raises:
        InputError: `aggregation` or `synchronization` is not such a mode, or `synchronization` is NONE in the scope of
            a strategy.
        UsageError: There is no first value; or a compiled function computes it from more than constants; or
            `per_worker_variable` is True without workers.

    Example:
        >>> v = Variable([1.0, 2.0])
        >>> _ = v.assign_add([1.0, 1.0])
        >>> v.numpy(), v.trainable, isinstance(v, Variable)
        (array([2., 3.], dtype=float32), True, True)
    """


class Module(Holder):
    """A group of variables (`tf.Module`): those of its attributes, and of lists, dicts and modules in them.

    Args:
        name: The name; None for that of the class.

    Example:
        >>> class Line(Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.slope = Variable(2.0)
        >>> [variable.numpy().item() for variable in Line().trainable_variables]
        [2.0]
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name or re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def name_scope(self) -> Any:
        """A context in which operations have the name of the module."""
        return jax.named_scope(self._name)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The modules inside it, including modules inside these."""
        return tuple(
            part for part in _parts(self, set()) if isinstance(part, Module | keras.Layer) and part is not self
        )

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables; attributes are read in the order of their names."""
        return tuple(part for part in _parts(self, set()) if isinstance(part, keras.Variable))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """The variables that are trained."""
        return tuple(variable for variable in self.variables if variable.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """The variables that are not trained."""
        return tuple(variable for variable in self.variables if not variable.trainable)

    def checkpoint_parts(self) -> dict[str, Any]:
        """Return what a checkpoint saves, by name: variables and the like, also in lists and dictionaries."""
        attributes = {name: value for name, value in vars(self).items() if value is not self}
        return dict(part for name, value in attributes.items() for part in tracked(name, value, WITH_STATE))

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method unchanged."""
        return method


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the variables and modules below a value, each once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, keras.Variable):
        yield value
    elif isinstance(value, keras.Layer):
        yield value
        for variable in value.variables:
            yield from _parts(variable, seen)
    elif isinstance(value, Module):
        yield value
        for name in sorted(vars(value)):
            yield from _parts(vars(value)[name], seen)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from _parts(value[key], seen)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _parts(part, seen)
