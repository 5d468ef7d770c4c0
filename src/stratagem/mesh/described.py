"""The mesh of devices that are only described: programs are compiled for them, and nothing runs there.

Values of variables and rows of batches stay in the memory of this machine, once. What is compiled for the devices gets
shapes in their place (`program.described`).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from stratagem.core.described import described_devices
from stratagem.core.errors import UsageError
from stratagem.host_memory.memory import HostMemory
from stratagem.mesh.mesh import AXIS, Device, ReplicaMesh, Tree


def mesh_on(
    devices: Sequence[Device],
    centre: Device | None = None,
    memory: HostMemory | None = None,
    model_parallel: int = 1,
) -> ReplicaMesh:
    """Return the mesh of a strategy's devices, which may be described.

    Args:
        devices: As of `ReplicaMesh`, as are the others.
        centre: As there.
        memory: As there.
        model_parallel: As there.

    Raises:
        UsageError: Variables should lie at the centre of described devices.
    """
    if not set(devices) & set(described_devices() or ()):
        return ReplicaMesh(devices, centre, memory, model_parallel)
    if centre is not None:
        raise UsageError(
            "CentralStorageStrategy was made for devices that are only described.",
            "Its step consists of several programs, with transfers of variables between them, and these cannot be "
            "planned.",
            "Plan the program with MirroredStrategy: it computes the same, and keeps a copy of the variables on each "
            "device.",
        )
    return DescribedMesh(devices, model_parallel)


class DescribedMesh(ReplicaMesh):
    """The mesh of devices that are only described. All values stay in the memory of this machine, once.

    Args:
        devices: As of `ReplicaMesh`, of any number of hosts.
        model_parallel: As there.
    """

    def __init__(self, devices: Sequence[Device], model_parallel: int = 1) -> None:
        super().__init__(devices, model_parallel=model_parallel)
        self.local_replicas = tuple(range(self.size))  # one process stands for those of all hosts
        self.waits_for_steps = False
        self._specs: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._spread_steps: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def shape_of(self, value: Any, spec: PartitionSpec | None = None) -> jax.ShapeDtypeStruct:
        """Return the shape of a value as a program for the devices takes it.

        Args:
            value: An array, or a number.
            spec: How it lies there; None for the way in which this mesh was given it.
        """
        typed = jax.typeof(value)
        sharding = NamedSharding(self.mesh, self._spec_of(value) if spec is None else spec)
        return jax.ShapeDtypeStruct(typed.shape, typed.dtype, sharding=sharding, weak_type=typed.weak_type)

    def _spec_of(self, value: Any) -> PartitionSpec:
        if self._specs.get(id(value)) is value:
            return PartitionSpec(AXIS)
        return PartitionSpec(None, AXIS) if self._spread_steps.get(id(value)) is value else PartitionSpec()

    def is_spread(self, value: Any) -> bool:
        """Whether a value holds rows of a batch, which the replicas share."""
        return self._spec_of(value) != PartitionSpec()

    def _spread(self, value: Any, *, steps: bool = False) -> jax.Array:
        array = jnp.asarray(value)
        (self._spread_steps if steps else self._specs)[id(array)] = array
        return array

    def is_replicated(self, value: object) -> bool:
        return isinstance(value, jax.Array)

    def rests(self, value: object, spec: PartitionSpec) -> bool:
        return isinstance(value, jax.Array)

    def keeps_apart(self, value: object) -> bool:
        return self._specs.get(id(value)) is value

    def keep_apart(self, value: Any) -> Any:
        return value if isinstance(value, Tracer) or self.keeps_apart(value) else self._spread(value)

    def _placed(self, value: Any, sharding: NamedSharding) -> jax.Array:
        return jnp.asarray(value)

    def keep_on_first(self, value: Any) -> jax.Array:
        return jnp.asarray(value)

    def keep_from_chief(self, values: Sequence[Any]) -> list[jax.Array]:
        return [jnp.asarray(value) for value in values]

    def zeros_in_shards(self, spec: PartitionSpec, shape: Sequence[int], dtype: Any = None) -> jax.Array:
        return jnp.zeros(tuple(shape), dtype)

    def shard_from_chief(self, value: Any, spec: PartitionSpec) -> jax.Array:
        return jnp.asarray(value)

    def shard_blocks(self, rows: np.ndarray, *, steps: bool = False) -> jax.Array:
        return self._spread(rows, steps=steps)

    def on_replicas(self, function: Any, values: Sequence[jax.Array]) -> list[jax.Array]:
        return list(values)  # of the same shapes


def shapes_like(mesh: DescribedMesh, args: Sequence[Tree], specs: Sequence[Tree] | None) -> list[Tree]:
    """Return the shapes of arguments as a program for the devices takes them.

    Args:
        mesh: The devices.
        args: The arguments.
        specs: For each, a `PartitionSpec`, or a structure of such above its leaves; None for the way in which the mesh
            was given each array.
    """
    if specs is None:
        return [jax.tree.map(mesh.shape_of, arg) for arg in args]

    def below(spec: PartitionSpec, part: Tree) -> Tree:
        return jax.tree.map(lambda leaf: mesh.shape_of(leaf, spec), part)

    return [
        jax.tree.map(below, spec, arg, is_leaf=lambda node: isinstance(node, PartitionSpec))
        for spec, arg in zip(specs, args, strict=True)
    ]
