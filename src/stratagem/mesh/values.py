"""Values that hold one component for each replica."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError, UsageError
from stratagem.core.types import ReduceOp
from stratagem.mesh import trees
from stratagem.mesh.device_names import device_of_task
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.mesh.shapes import Shape, cut


class DistributedValues:
    """One value for each replica (`tf.distribute.DistributedValues`).

    Component `i` is on device `i` of the mesh.

    Args:
        stacked: Global array whose first axis is the replica.
        mesh: The mesh it lies on.
        shapes: The shape of each component if they differ, else None.
        empty: Which replicas had no rows of the batch; None if all had some. NaN of such a replica, for example a mean
            over no rows, does not count when components are combined.
        rows: Number of batch rows of each component, if its own first axis does not count them: the values of a ragged
            tensor.
    """

    def __init__(
        self,
        stacked: jax.Array,
        mesh: ReplicaMesh,
        shapes: tuple[Shape, ...] | None = None,
        empty: tuple[bool, ...] | None = None,
        rows: tuple[int, ...] | None = None,
    ) -> None:
        self.stacked = stacked
        self.mesh = mesh
        self.shapes = shapes
        self.empty = empty
        self.rows = rows

    @property
    def shares(self) -> tuple[int, ...] | None:
        """Rows of each component if they differ, else None."""
        rows = self.rows
        if rows is None and self.shapes is not None:
            rows = tuple([shape[0] if shape else 1 for shape in self.shapes])
        return rows if rows is not None and len(set(rows)) > 1 else None

    @property
    def values(self) -> tuple[EagerArray, ...]:
        """The components of this worker's replicas, in order."""
        if isinstance(self.stacked, Tracer):
            return self._traced_values()
        pieces = sorted(self.stacked.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        if self.mesh.model_parallel > 1:
            pieces = [piece for piece in pieces if piece.device in self.mesh.devices]  # the first of each replica's
        components = [np.asarray(piece.data)[0] for piece in pieces]
        if self.shapes is not None:
            components = [
                cut(component, self.shapes[replica])
                for component, replica in zip(components, self.mesh.local_replicas, strict=True)
            ]
        names = [device_of_task(piece.device) for piece in pieces]
        return tuple(EagerArray.of_device(*each) for each in zip(components, names, strict=True))

    def _traced_values(self) -> tuple[Any, ...]:
        """Return the components in a function that is being compiled: one program, the same for all workers."""
        if self.mesh.multi_process and len(self.mesh.local_replicas) == 1:
            return (self,)  # with one program for all workers, only outside is it the one of each
        if self.mesh.multi_process:
            raise UsageError(
                "The components of a per-replica value were asked for in a function that is being compiled, "
                "with several workers.",
                "All workers run the same program, but each has different components.",
                "Return the value and ask outside the function; or combine it there: strategy.reduce, strategy.gather.",
            )
        if self.shapes is None:
            return tuple(self.stacked)
        return tuple(cut(component, shape) for component, shape in zip(self.stacked, self.shapes, strict=True))

    def __repr__(self) -> str:
        if not isinstance(self.stacked, jax.Array) or isinstance(self.stacked, Tracer):  # in a function being compiled
            return f"{type(self).__name__}({self.stacked})"
        lines = [
            f"  {replica}: {component.numpy()!r}"
            for replica, component in zip(self.mesh.local_replicas, self.values, strict=True)
        ]
        return "\n".join([f"{type(self).__name__}:{{", *lines, "}"])


class SingleValueError(UsageError, AttributeError, TypeError, ValueError):
    """A per-replica value has no one value. An AttributeError, so that `hasattr` answers no; a ValueError as there."""


class PerReplica(DistributedValues):
    """A value that may differ between replicas.

    If this worker has one replica, use the value like the array of that replica.
    """

    def numpy(self) -> Any:
        """Return the component, if this worker has exactly one. TensorFlow's value is a plain tensor then.

        Raises:
            SingleValueError: This worker has several replicas, or the value is not known yet.
        """
        return self._only("numpy()").numpy()

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ARRAYS:
            return getattr(self._only(name), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._only("one array"), dtype)

    def __eq__(self, other: object) -> Any:
        return _eager(operator.eq(self.values[0], other)) if self._is_one() else NotImplemented

    def __ne__(self, other: object) -> Any:
        return _eager(operator.ne(self.values[0], other)) if self._is_one() else NotImplemented

    __hash__ = DistributedValues.__hash__

    def __bool__(self) -> bool:
        return bool(self.values[0]) if self._is_one() else True

    def _is_one(self) -> bool:
        return len(self.mesh.local_replicas) == 1 and not isinstance(self.stacked, Tracer)

    def __format__(self, spec: str) -> str:
        return format(self._only(f"a format, {spec!r},").item(), spec) if spec else str(self)

    def _only(self, what: str) -> EagerArray:
        """Return the only component of this worker.

        Args:
            what: What was asked of the value, for the message.
        """
        if len(self.mesh.local_replicas) > 1:
            raise SingleValueError(
                f"{what} was asked of a per-replica value, not inside a replica context: this worker has "
                f"{len(self.mesh.local_replicas)} replicas, and each has a component.",
                "The components may differ, so there is no single value.",
                'Combine them with strategy.reduce("MEAN", value, axis=None), or take them one by one: '
                "strategy.experimental_local_results(value).",
            )
        if isinstance(self.stacked, Tracer):
            raise SingleValueError(
                f"{what} was asked of a per-replica value in a function that is being compiled.",
                "It is traced once, before its values exist.",
                "Return the value, and look at it outside.",
            )
        return self.values[0]


_OF_ARRAYS: Final = ("item", "tolist", "shape", "dtype", "ndim", "size", "T")
"""Names of an array's attributes that a value with one component here has."""

_BINARY: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")


def _eager(found: Any) -> Any:
    """Return a result as an array with `.numpy()`, as the component is one."""
    return np.asarray(found).view(EagerArray) if isinstance(found, np.ndarray | np.generic) else found


def _with_the_only_one(name: str, what: str, function: Callable[..., Any]) -> None:
    """Let a method of Python's apply a function to the component, in the place of the value."""

    def method(self: PerReplica, *others: Any) -> Any:
        return _eager(function(self._only(what), *others))

    method.__name__ = name
    setattr(PerReplica, name, method)


for _function in (float, int, len, iter):
    _with_the_only_one(f"__{_function.__name__}__", f"{_function.__name__}()", _function)
_with_the_only_one("__getitem__", "a part", operator.getitem)
for _name in (*_BINARY, "neg", "abs", "lt", "le", "gt", "ge"):
    _with_the_only_one(f"__{_name}__", "arithmetic or a comparison", getattr(operator, _name))
for _name in _BINARY:
    _reflected = functools.partial(lambda function, own, other: function(other, own), getattr(operator, _name))
    _with_the_only_one(f"__r{_name}__", "arithmetic or a comparison", _reflected)


trees.register()
jax.tree_util.register_pytree_node(
    PerReplica,
    lambda value: ((value.stacked,), (value.mesh, value.shapes, value.empty, value.rows)),
    lambda facts, children: PerReplica(children[0], *facts),
)


class PerReplicaText(DistributedValues):
    """Text for each replica. It stays on the host, as no device holds text, and only Python can look at it.

    Args:
        components: Arrays of bytes, of this worker's replicas in order.
        mesh: The mesh of the replicas.
    """

    def __init__(self, components: Sequence[np.ndarray], mesh: ReplicaMesh) -> None:
        self._components = tuple(components)
        self.mesh = mesh

    @property
    def values(self) -> tuple[EagerArray, ...]:
        """The components of this worker's replicas, in order."""
        return tuple(component.view(EagerArray) for component in self._components)

    def _no_array(self, *args: Any, **kwargs: Any) -> Any:
        raise text_in_step()

    __jax_array__ = __array__ = _no_array
    stacked = shapes = property(_no_array)


def refuse_text(value: Any) -> None:
    """Raise an error for an array of text, which no device holds."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        raise text_in_step()


def text_in_step() -> InputError:
    """Return the error for text where a compiled step would compute with it."""
    return InputError(
        "Text was given to strategy.run, reduce or gather, or used as one array.",
        "A compiled step holds numbers only, and no device holds text.",
        "Turn it into numbers with dataset.map before the strategy gets it, for example by StringLookup; what a "
        "distributed dataset holds can be read from strategy.experimental_local_results(value).",
    )


class CombinedItself:
    """A base of structures that replicas do not combine array by array."""

    def all_reduced(self, context: Any, op: ReduceOp) -> Any:
        """Return what the replicas' structures make together.

        Args:
            context: The replica context.
            op: How they combine.
        """
        raise NotImplementedError


class Component:
    """A per-replica value inside `merge_call`: this replica's component, which stands for those of all.

    Args:
        own: The component, traced.
        context: The replica context that merges.
    """

    def __init__(self, own: jax.Array, context: Any) -> None:
        self.own = own
        self.context = context

    def __jax_array__(self) -> jax.Array:
        raise UsageError(
            f"A per-replica value of shape {tuple(self.own.shape)} was used as one array inside merge_call.",
            "Each replica holds a different component, and inside merge_call no single replica is running.",
            "Combine it first with strategy.reduce(stratagem.ReduceOp.SUM, value, axis=None), or compute before "
            "merge_call, where each replica has its own component.",
        )

    def __repr__(self) -> str:
        return f"Component({self.own!r})"


def local_results(value: Tree) -> tuple[Any, ...]:
    """Return this worker's components of a value (`Strategy.experimental_local_results`).

    Args:
        value: A `DistributedValues`, a structure of them, or a plain value.

    Returns:
        One entry for each local replica; a plain value gives a tuple of itself.

    Raises:
        UsageError: Called in a function that is being compiled, with several workers.
    """
    leaves, structure = jax.tree.flatten(value, is_leaf=lambda leaf: isinstance(leaf, DistributedValues))
    if not any(isinstance(leaf, DistributedValues) for leaf in leaves):
        return (value,)
    columns = [leaf.values if isinstance(leaf, DistributedValues) else itertools.repeat(leaf) for leaf in leaves]
    return tuple(structure.unflatten(row) for row in zip(*columns, strict=False))
