"""Shards: variables of which each replica, or each device of a replica, keeps one piece between steps.

A step sees such a variable whole. `whole_of` says in a program that a shard stands for its whole, `shard_of` that of a
whole only the replica's shard is wanted. Each does what it says; `program.rules.gathers` removes those that undo each
other, so that nothing is gathered that nobody needs.

Source of the semantics: ZeRO (https://arxiv.org/abs/1910.02054), of which the three kinds below are the stages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from stratagem.core.errors import InputError
from stratagem.mesh.layouts import Layouts
from stratagem.mesh.mesh import AXIS, MODEL_AXIS, spec_of
from stratagem.mesh.packs import packs, parted

MIN_SIZE: Final = 1 << 14
"""Elements of a variable below which it stays whole, unless the user says otherwise: its latency costs more."""

_WHOLE: Final = "whole_of_shards"
_RENEWED: Final = "renewed_of_shards"
_SHARD: Final = "shard_of_whole"


class Stage(enum.Enum):
    """Stages of ZeRO: the variables that rest in shards, each with those of the stage before."""

    OPTIMIZER = "optimizer"
    """The slots of the optimizer: stage 1 of ZeRO."""
    GRADIENTS = "gradients"
    """Gradients that are accumulated over steps too: stage 2."""
    PARAMETERS = "parameters"
    """The weights of the model too: stage 3, also called FSDP."""


@dataclass(frozen=True)
class Sharding:
    """Choice of the variables that a strategy divides.

    Args:
        stage: Which variables rest in shards of the replicas; None for none.
        min_size: Elements from which a variable is divided.
        replicas: Among how many.
        layouts: Which are divided among the devices of each replica; None where a replica has one.
    """

    stage: Stage | None
    min_size: int
    replicas: int
    layouts: Layouts | None = None

    def among(self, replicas: int) -> Sharding:
        """Return what a strategy divides that has another number of replicas.

        Args:
            replicas: How many.
        """
        return dataclasses.replace(self, replicas=replicas)

    def axis_of(self, shape: Sequence[int]) -> int | None:
        """Return the axis along which an array of this shape is divided: the first that divides; None for none."""
        if self.stage is None or self.replicas == 1 or math.prod(shape) < self.min_size:
            return None
        return next((axis for axis, length in enumerate(shape) if length and length % self.replicas == 0), None)

    def model_axis_of(self, shape: Sequence[int]) -> int | None:
        """Return the axis along which weights of this shape are divided among the devices of a replica."""
        return None if self.layouts is None else self.layouts.axis_of_shape(shape)

    def mark_slots(self, slots: Iterable[Any], targets: Iterable[Any]) -> None:
        """Let variables of an optimizer rest divided: those as large as a variable that it is applied to.

        Args:
            slots: The optimizer's variables.
            targets: What it is applied to.
        """
        divisible = [target for target in targets if is_divisible(target)]
        self._lay_out(divisible)
        shapes = {tuple(target.shape) for target in divisible}
        for slot in slots:
            if tuple(slot.shape) in shapes:
                slot.shard_axis = self.axis_of(slot.shape)
                if self.layouts is not None:
                    slot.model_axis = model_axis(_target_of(slot, divisible))

    @property
    def divides_weights(self) -> bool:
        """Whether the weights of a model rest divided, not only what belongs to its optimizer."""
        return self.stage is Stage.PARAMETERS or self.layouts is not None

    def mark_weights(self, variables: Iterable[Any]) -> None:
        """Let weights rest divided, those that a model trains and those that are frozen; no metrics."""
        weights = [variable for variable in variables if _is_weight(variable)]
        self._lay_out(weights)
        if self.stage is Stage.PARAMETERS:
            for variable in weights:
                variable.shard_axis = self.axis_of(variable.shape)

    def spec_of_weight(self, variable: Any) -> PartitionSpec:
        """Return how a variable would lie if `mark_weights` marked it."""
        if not _is_weight(variable):
            return PartitionSpec()
        axis = self.axis_of(variable.shape)
        return spec_of(axis if self.stage is Stage.PARAMETERS else None, self._model_axis_of_weight(variable))

    def of_outputs(self) -> contextlib.AbstractContextManager[object]:
        """Let layers that are traced in this context lay out their outputs on the devices of a replica."""
        return contextlib.nullcontext() if self.layouts is None else self.layouts.of_outputs()

    def _lay_out(self, weights: Iterable[Any]) -> None:
        if self.layouts is not None:
            for variable in weights:
                variable.model_axis = self._model_axis_of_weight(variable)

    def _model_axis_of_weight(self, variable: Any) -> int | None:
        if self.layouts is None:
            return None
        taken = self.axis_of(variable.shape)
        return self.layouts.axis_of(variable.path, variable.shape, min_size=self.min_size, taken=taken)


def sharding_of(
    shard: str | None, min_size: int | None, replicas: int, layouts: Layouts | None = None
) -> Sharding | None:
    """Return what the arguments of a strategy ask for; None for nothing.

    Args:
        shard: The stage by its name; None for none.
        min_size: Elements from which a variable is divided; None for `MIN_SIZE`.
        replicas: Among how many.
        layouts: Which are divided among the devices of each replica; None where a replica has one.

    Raises:
        InputError: There is no such stage, or the size is no number of elements.
    """
    names = [stage.value for stage in Stage]
    if shard is not None and shard not in names:
        raise InputError(
            f"shard is {shard!r}.",
            f"Write one of {', '.join(map(repr, names))}, or leave it out to keep all of a model on each device.",
        )
    if min_size is not None and (isinstance(min_size, bool) or not isinstance(min_size, int) or min_size < 1):
        raise InputError(
            f"shard_min_size is {min_size!r}.",
            "Variables with at least this number of elements are divided. The number must be 1 or more.",
            f"Write shard_min_size={MIN_SIZE}, say, or leave it out.",
        )
    stage = None if shard is None or replicas == 1 else Stage(shard)
    if shard is None and layouts is None:
        if min_size is not None:
            raise InputError(
                f"shard_min_size={min_size} was given without shard.",
                "Nothing is divided among the replicas.",
                'Write shard="optimizer", "gradients" or "parameters" too.',
            )
        return None
    if stage is None and layouts is None:
        return None
    return Sharding(stage, MIN_SIZE if min_size is None else min_size, replicas, layouts)


def is_divisible(variable: Any) -> bool:
    """Whether a variable may be divided: not one that its gradient replaces, a scale of float8 say."""
    return not getattr(variable, "overwrite_with_gradient", False)


def _is_weight(variable: Any) -> bool:
    return is_divisible(variable) and (variable.trainable or _is_frozen_weight(variable))


def _is_frozen_weight(variable: Any) -> bool:
    """Whether a variable that is not trained may be a layer's weight: not what replicas sum or have each their own."""
    own = variable.aggregation == "sum" or variable.synchronization == "on_read"
    return len(variable.shape) > 1 and not own


def _target_of(slot: Any, targets: Sequence[Any]) -> Any:
    """Return the variable that a slot is of: Keras names a slot by it. Of others it is the first of their shape."""
    like = [target for target in targets if tuple(target.shape) == tuple(slot.shape)]
    named = [target for target in like if slot.name.startswith(target.path.replace("/", "_"))]
    return max(named, key=lambda target: len(target.path)) if named else like[0]


def keep_whole(variables: Iterable[Any]) -> None:
    """Let variables rest whole that were taken for weights when they were made, a metric's own say."""
    for variable in variables:
        if rests_divided(variable):
            variable.shard_axis = variable.model_axis = None


def shard_axis(variable: Any) -> int | None:
    """Return the axis along which a variable is divided among the replicas; None where each has the whole."""
    axis: int | None = getattr(variable, "shard_axis", None)
    return axis


def model_axis(variable: Any) -> int | None:
    """Return the axis along which a variable is divided among a replica's devices; None where each has the whole."""
    axis: int | None = getattr(variable, "model_axis", None)
    return axis


def rests_divided(variable: Any) -> bool:
    """Whether a device keeps a piece of a variable only, between steps."""
    return resting_spec(variable) != PartitionSpec()


def resting_spec(variable: Any) -> PartitionSpec:
    """Return how the value of a variable lies between steps."""
    return spec_of(shard_axis(variable), model_axis(variable))


# In a program of one replica -----------------------------------------------------------------------


def whole_of(shard: jax.Array, axis: int | None, before: jax.Array | None = None) -> jax.Array:
    """Return the whole of which a replica holds a shard; with None the value is whole already.

    Args:
        shard: The replica's.
        axis: Along which the whole is divided.
        before: What the whole was. Where workers share the memory of a host and the first axis is divided, the new one
            lies in its place (`program.rules.exchanges`).
    """
    if axis is None:
        return shard
    return _marked(_WHOLE, axis)(shard) if before is None else _marked(_RENEWED, axis)(shard, before)


def shard_of(whole: jax.Array, axis: int | None) -> jax.Array:
    """Return this replica's shard of a value; with None the value.

    Args:
        whole: Equal on all replicas.
        axis: Along which it is divided.
    """
    return whole if axis is None else _marked(_SHARD, axis)(whole)


def wholes_of(shards: Sequence[jax.Array], axes: Sequence[int | None]) -> list[jax.Array]:
    """Return the wholes of several shards; see `whole_of`."""
    return [whole_of(shard, axis) for shard, axis in zip(shards, axes, strict=True)]


def shards_of(wholes: Sequence[jax.Array], axes: Sequence[int | None]) -> list[jax.Array]:
    """Return the shards of several values; see `shard_of`."""
    return [shard_of(whole, axis) for whole, axis in zip(wholes, axes, strict=True)]


def gathered(shard: jax.Array, axis: int, model_axis: int | None = None) -> jax.Array:
    """Put the shards of all replicas together.

    Args:
        shard: The replica's.
        axis: Along which the whole is divided.
        model_axis: Along which it is divided among the devices of a replica too.
    """
    gather = functools.partial(lax.all_gather, axis_name=AXIS, axis=axis, tiled=True)
    return _on_each_device(gather, axis, model_axis)(shard)


def _scattered(value: jax.Array, axis: int, model_axis: int | None) -> jax.Array:
    """Sum a value over the replicas, each of which gets its shard of the sum."""
    scatter = functools.partial(lax.psum_scatter, axis_name=AXIS, scatter_dimension=axis, tiled=True)
    return _on_each_device(scatter, axis, model_axis)(value)


def _on_each_device(
    function: Callable[[jax.Array], jax.Array], axis: int, model_axis: int | None
) -> Callable[[jax.Array], jax.Array]:
    """Let each device of a replica run a function on what it has of an array. XLA would first put that together."""
    if model_axis is None or model_axis == axis:
        return function
    part = PartitionSpec(*[None] * model_axis, MODEL_AXIS)
    return jax.shard_map(function, in_specs=part, out_specs=part, axis_names={MODEL_AXIS}, check_vma=False)


def own_shard(whole: jax.Array, axis: int) -> jax.Array:
    """Cut this replica's shard out of a value."""
    size = whole.shape[axis] // lax.axis_size(AXIS)
    return lax.dynamic_slice_in_dim(whole, lax.axis_index(AXIS) * size, size, axis)


def gathers(name: str | None) -> int | None:
    """Return the axis along which a function of this name puts shards together; None if it is no `whole_of`."""
    axis = _axis_in(name, _WHOLE)
    return renews(name) if axis is None else axis


def renews(name: str | None) -> int | None:
    """Return the axis along which a function of this name puts shards together that has the whole of before too."""
    return _axis_in(name, _RENEWED)


def cuts(name: str | None) -> int | None:
    """Return the axis along which a function of this name divides; None if it is no `shard_of`."""
    return _axis_in(name, _SHARD)


def _axis_in(name: str | None, kind: str) -> int | None:
    return int(name[len(kind) + 1 :]) if name is not None and name.startswith(f"{kind}_") else None


_FUNCTIONS: Final[Mapping[str, Callable[[jax.Array, int], jax.Array]]] = {
    _WHOLE: gathered,
    _RENEWED: gathered,
    _SHARD: own_shard,
}


@functools.cache
def _marked(kind: str, axis: int) -> Callable[..., jax.Array]:
    """Return a function that a program calls by its name."""

    def function(value: jax.Array, *_: jax.Array) -> jax.Array:
        return _FUNCTIONS[kind](value, axis)

    function.__name__ = f"{kind}_{axis}"
    return jax.jit(function)


# Sums ------------------------------------------------------------------------------------------------


def sums_in_shards(
    values: Sequence[tuple[jax.Array, int]],
    pack_bytes: int | None = 0,
    model_axes: Sequence[int | None] | None = None,
) -> list[jax.Array]:
    """Sum values over all replicas, each of which gets its shard of the sum only. Only inside a step on the mesh.

    Args:
        values: Arrays, the same on every replica in shape and dtype, each with the axis along which it is divided.
        pack_bytes: Largest size of a pack in bytes, of what a replica has; 0 means one pack for each dtype, None no
            packs.
        model_axes: For each, along which it is divided among the devices of a replica; None where a replica has one.

    Returns:
        The shards, in the order of `values`.
    """
    if pack_bytes is None:
        on_devices = [None] * len(values) if model_axes is None else model_axes
        return [_scattered(value, axis, along) for (value, axis), along in zip(values, on_devices, strict=True)]
    replicas = lax.axis_size(AXIS)
    results: dict[int, jax.Array] = {}
    for members in packs([value for value, _ in values], pack_bytes):
        fronts = [jnp.moveaxis(*values[i], 0) for i in members]
        rows = [jax.ShapeDtypeStruct((each.shape[0] // replicas, *each.shape[1:]), each.dtype) for each in fronts]
        pack = jnp.concatenate([front.reshape(replicas, -1) for front in fronts], axis=1)
        total = lax.psum_scatter(pack, AXIS, scatter_dimension=0, tiled=True)[0]
        for i, shard in zip(members, parted(total, rows), strict=True):
            results[i] = jnp.moveaxis(shard, 0, values[i][1])
    return [results[i] for i in range(len(values))]
