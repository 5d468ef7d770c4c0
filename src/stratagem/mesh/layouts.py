"""Layouts: along which axis each weight is divided among the devices of one replica (tensor parallelism).

A layout map says it by the weight's path, as Keras's `keras.distribution.LayoutMap` does; `auto` says it by the
weight's name and shape. Numbers do not depend on it: XLA divides the computation, and puts together what it must.

Source of the semantics: https://keras.io/api/distribution/layout_map/, https://arxiv.org/abs/1909.08053 (Megatron-LM:
which axes of attention and of dense layers are divided, so that little is exchanged).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import jax
import keras
from jax.sharding import NamedSharding, PartitionSpec

from stratagem.core.errors import InputError, UnsupportedError, name_some
from stratagem.mesh.mesh import MODEL_AXIS

AUTO: Final = "auto"
"""The layout map that is made from names and shapes."""

_OUTPUT: Final = "/output"
"""Ending of the path of a layer's output in a layout map."""

_JAX_WITH_OUTPUTS: Final = (0, 8)
"""The first JAX that lets a value be laid out where one axis of the mesh is the function's own."""

_HEADS: Final = ("query", "key", "value")
"""Layers of attention whose kernels (features, heads, size of a head) make heads of features."""

LayoutMap = keras.distribution.LayoutMap | Mapping[str, Sequence[str | None]] | str
"""Kinds of `layout_map` that a strategy takes: Keras's, a mapping of patterns to axes, or "auto"."""


class Layouts:
    """Choice of the axis along which each weight is divided among the devices of a replica.

    Args:
        devices: How many devices a replica has.
        layout_map: Keras's map; None finds layouts by names and shapes.
    """

    def __init__(self, devices: int, layout_map: keras.distribution.LayoutMap | None) -> None:
        self.devices = devices
        self._map = layout_map
        self._of_shapes: dict[tuple[int, ...], int | None] = {}
        names = () if layout_map is None or layout_map.device_mesh is None else layout_map.device_mesh.axis_names
        self._name = names[-1] if names else MODEL_AXIS
        self._other_names = tuple(names[:-1])

    def __str__(self) -> str:
        """Return what the map says, for comparison with that of other workers."""
        said = AUTO if self._map is None else {pattern: tuple(layout.axes) for pattern, layout in self._map.items()}
        return f"{said}, along {self._name!r}"

    def axis_of(self, path: str, shape: Sequence[int], *, min_size: int, taken: int | None = None) -> int | None:
        """Return the axis along which a weight is divided; None leaves it whole on each device.

        Args:
            path: The weight's, as `variable.path` gives it.
            shape: The weight's.
            min_size: Elements from which a weight is divided that no map names.
            taken: The axis along which it is divided among the replicas. It is not chosen where there is a choice.

        Raises:
            InputError: The layout map has no such axis of the weight, or it does not divide, or several patterns match.
        """
        axis = self._given(path, shape) if self._map is not None else self._found(path, shape, min_size, taken)
        self._of_shapes.setdefault(tuple(shape), axis)
        return axis

    def axis_of_shape(self, shape: Sequence[int]) -> int | None:
        """Return the axis along which the first known weight of a shape is divided."""
        return self._of_shapes.get(tuple(shape))

    def of_outputs(self) -> contextlib.AbstractContextManager[object]:
        """Let layers that are traced in this context lay out their outputs as the map says ("layer/output")."""
        if self._map is None or not any(pattern.endswith(_OUTPUT) for pattern in self._map):
            return contextlib.nullcontext()
        return _OutputLayouts(self).scope()

    def output_spec(self, path: str) -> PartitionSpec | None:
        """Return how the output of a layer lies on the devices of a replica; None where the map says nothing of it.

        Args:
            path: The layer's path, and "/output", as Keras looks it up.
        """
        axes = self._axes(path)
        return None if axes is None else PartitionSpec(*[MODEL_AXIS if name == self._name else None for name in axes])

    def unmatched(self, paths: Iterable[str]) -> list[str]:
        """Return the patterns of the map that match no weight, but for those of layers' outputs.

        Args:
            paths: Of all weights.
        """
        if self._map is None:
            return []
        matched = [self._map[path] for path in paths]
        return [
            pattern
            for pattern, layout in self._map.items()
            if not pattern.endswith(_OUTPUT) and not any(layout is each for each in matched)
        ]

    def _given(self, path: str, shape: Sequence[int]) -> int | None:
        axes = self._axes(path)
        if axes is None or not any(axes):
            return None
        said = f"The layout of {path} {list(shape)} is {axes!r}"
        if len(axes) != len(shape):
            raise InputError(
                f"{said}, with {len(axes)} entries for {len(shape)} axes.",
                "Write one entry for each axis: a name, or None for one that is not divided.",
            )
        if set(axes) & set(self._other_names):
            raise InputError(
                f"{said}; {name_some(map(repr, self._other_names))} is the axis of batches.",
                "Replicas divide weights without a map, together with the optimizer's slots.",
                f'Write shard="parameters" when the strategy is made, and only {self._name!r} in the map.',
            )
        places = [place for place, name in enumerate(axes) if name == self._name]
        if len(places) != 1 or set(axes) - {None, self._name}:
            raise InputError(
                f"{said}. A replica's devices lie on one axis, {self._name!r}.",
                f"Write {self._name!r} for the one axis of the weight that is divided, and None for the others.",
            )
        if shape[places[0]] % self.devices:
            raise InputError(
                f"{said}; {shape[places[0]]} does not divide among {self.devices} devices.",
                "Each device of a replica holds an equal part.",
                f"Choose another axis, a width that {self.devices} divides, or leave the weight out of the map.",
            )
        return places[0]

    def _axes(self, path: str) -> tuple[str | None, ...] | None:
        assert self._map is not None, "who has no map finds layouts"
        try:
            layout = self._map[path]
        except ValueError as error:  # Keras's, of several patterns
            raise InputError(
                f"The layout map has several patterns for {path}: {error}", "Write patterns of which only one matches."
            ) from error
        return None if layout is None else tuple(layout.axes)

    def _found(self, path: str, shape: Sequence[int], min_size: int, taken: int | None) -> int | None:
        if len(shape) < 2 or math.prod(shape) < min_size:
            return None
        possible = [axis for axis in _preferred(path, shape) if shape[axis] % self.devices == 0]
        return next((axis for axis in possible if axis != taken), None)


class _OutputLayouts:
    """Distribution that Keras asks how a layer's output lies. Variables are laid out elsewhere.

    Args:
        layouts: What says it.
    """

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Let Keras ask this in the context, in which a replica's step is traced."""
        outer = keras.distribution.distribution()
        keras.distribution.set_distribution(self)
        try:
            yield
        finally:
            keras.distribution.set_distribution(outer)

    def get_variable_layout(self, variable: object) -> None:
        """Leave a variable that is made while a step is traced as it is."""
        del variable

    def get_tensor_layout(self, path: str) -> NamedSharding | None:
        """Return how a layer's output lies; nothing where operations run one by one, on no mesh."""
        mesh, spec = jax.sharding.get_abstract_mesh(), self._layouts.output_spec(path)
        return None if mesh.empty or spec is None else NamedSharding(mesh, spec)


def _preferred(path: str, shape: Sequence[int]) -> list[int]:
    """Return axes of a weight, the one along which it is best divided first.

    | weights                                       | axis                                                    |
    | --------------------------------------------- | ------------------------------------------------------- |
    | embeddings (rows, features)                   | rows, then features                                     |
    | attention, three axes, two of them heads      | heads; none of the others, so that few heads stay whole |
    | experts (experts, ...)                        | experts                                                 |
    | dense (in, out) that narrows                  | in: what a wider layer before it has divided            |
    | any other, convolutions too                   | the last, features of the output, then the others       |
    """
    *layers, name = path.split("/")
    layer = layers[-1] if layers else ""
    if name == "embeddings":
        return [0, 1]
    if len(shape) == 3 and (layer in _HEADS or layer == "attention_output"):
        return [0 if layer == "attention_output" or shape[0] < shape[1] else 1]
    if len(shape) > 2 and "expert" in path:
        return [0, *range(len(shape) - 1, 0, -1)]
    if len(shape) == 2 and shape[0] > shape[1]:
        return [0, 1]
    return list(range(len(shape) - 1, -1, -1))


def layouts_of(layout_map: LayoutMap | None, model_parallel: int | None) -> Layouts | None:
    """Return what the arguments of a strategy ask for; None where a replica has one device.

    Args:
        layout_map: Keras's `LayoutMap`, a mapping of patterns to axes, or "auto"; None is "auto" for several devices.
        model_parallel: How many devices a replica has; None is what a `LayoutMap` has on the last axis of its mesh.

    Raises:
        InputError: They are of another kind, or contradict each other.
        UnsupportedError: The map is for outputs of layers too, and JAX is too old.
    """
    if layout_map is None and model_parallel is None:
        return None
    known = _as_keras_map(layout_map)
    meant = None if known is None or known.device_mesh is None else known.device_mesh.shape[-1]
    devices = meant if model_parallel is None else model_parallel
    if devices is None:
        raise InputError(
            f"layout_map={layout_map!r} was given without model_parallel.",
            "The number of devices of a replica is not known.",
            "Write model_parallel=2, say.",
        )
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise InputError(f"model_parallel is {devices!r}.", "Write the number of devices of each replica: 2, say.")
    if meant is not None and meant != devices:
        raise InputError(
            f"model_parallel is {devices}, and the mesh of the layout map has {meant} devices on its last axis.",
            "Leave model_parallel out, or make both equal.",
        )
    _check_outputs(known)
    return None if devices == 1 else Layouts(devices, known)


def _check_outputs(layout_map: keras.distribution.LayoutMap | None) -> None:
    outputs = [pattern for pattern in layout_map or () if pattern.endswith(_OUTPUT)]
    if outputs and jax.__version_info__ < _JAX_WITH_OUTPUTS:
        raise UnsupportedError(
            f"The map has {name_some(map(repr, outputs))}, for outputs of layers; this is JAX {jax.__version__}.",
            "This JAX lays out only weights on the devices of a replica. XLA chooses the layout of outputs.",
            "Leave it out of the map, or install JAX 0.8 or newer.",
        )


def _as_keras_map(layout_map: LayoutMap | None) -> keras.distribution.LayoutMap | None:
    if layout_map is None or (isinstance(layout_map, str) and layout_map == AUTO):
        return None
    if isinstance(layout_map, keras.distribution.LayoutMap):
        return layout_map
    if not isinstance(layout_map, Mapping):
        raise InputError(
            f"layout_map is {layout_map!r}, of type {type(layout_map).__name__}.",
            'Write "auto", a keras.distribution.LayoutMap, or a dict of patterns and axes: '
            '{".*dense/kernel": (None, "model")}.',
        )
    known = keras.distribution.LayoutMap(None)
    for pattern, axes in layout_map.items():
        known[pattern] = axes if isinstance(axes, keras.distribution.TensorLayout) else tuple(axes)
    return known
