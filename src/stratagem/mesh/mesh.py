"""The one mesh: an axis named "replica" over all devices of all workers, or over groups of devices.

Where a replica is a group of devices, they lie on a second axis, "model", which no step knows of: XLA divides the
computation of a replica among them, along what is divided of its variables.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from stratagem.core.errors import PeerError
from stratagem.core.freed_memory import keep_freed_memory
from stratagem.core.progress import Progress, progress
from stratagem.host_memory.memory import HostMemory
from stratagem.mesh.changing import ChangingWorld
from stratagem.mesh.divided import is_divided
from stratagem.mesh.given import Piece
from stratagem.mesh.split import Split

AXIS: Final = "replica"
"""Name of the mesh axis that replicas lie on."""

MODEL_AXIS: Final = "model"
"""Name of the mesh axis that the devices of one replica lie on, where it has several."""

Device = Any
"""A `jax.Device`. Type checkers see that name as a variable, so it cannot stand in an annotation."""

Tree = Any
"""A nested structure of arrays (tuples, lists, dictionaries), as JAX defines pytrees."""


def spec_of(axis: int | None, model_axis: int | None = None) -> PartitionSpec:
    """Return how a value lies that is divided.

    Args:
        axis: Along which it is divided among the replicas; None where all have the whole.
        model_axis: Along which each replica's is divided among its devices; None where each has the whole.
    """
    along = [(place, name) for place, name in ((axis, AXIS), (model_axis, MODEL_AXIS)) if place is not None]
    places: list[tuple[str, ...]] = [() for _ in range(max((place + 1 for place, _ in along), default=0))]
    for place, name in along:
        places[place] = (*places[place], name)
    return PartitionSpec(*[names if len(names) > 1 else names[0] if names else None for names in places])


def _of_replicas(spec: PartitionSpec) -> PartitionSpec:
    """Return a spec without what it says of the devices of a replica."""
    return PartitionSpec(*[AXIS if name == AXIS or (name and AXIS in name) else None for name in spec])


def _is_spec(node: object) -> bool:
    return isinstance(node, PartitionSpec)


class ReplicaMesh:
    """The devices of a strategy, a replica on each or on each group, and the placing of arrays on them.

    Args:
        devices: The devices of all replicas, in the order of replica ids. Devices of one process
            stand side by side.
        centre: The one device that variables lie on between steps; None for copies on all devices.
        memory: What the workers of this host have in common, if all workers have one device each; None leaves
            collectives to XLA.
        model_parallel: How many devices each replica has.

    Attributes:
        devices: The first device of each replica.
        world: The world of the workers, where these may change while they train.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        centre: Device | None = None,
        memory: HostMemory | None = None,
        model_parallel: int = 1,
    ) -> None:
        self.model_parallel = model_parallel
        self.world: ChangingWorld | None = None
        self._memory = memory
        self.centre = centre
        self.lie_on(devices)
        # A batch is copied to an accelerator beside a running step; on the CPU there is nothing to gain.
        self.fetches_ahead = self.devices[0].platform != "cpu"
        # The steps of a part of a cluster, say an evaluation on the chief alone, are not those of the cluster.
        self.progress = progress if self.multi_process or jax.process_count() == 1 else Progress()
        if self.devices[0].platform == "cpu":
            keep_freed_memory()

    def lie_on(self, devices: Sequence[Device]) -> None:
        """Lie on other devices from now on, where workers have come or gone.

        Values that lie on the former ones are put on these where they are used next; programs are compiled anew.

        Args:
            devices: The devices of all replicas, as when this was made.

        Raises:
            PeerError: Processes have unequal numbers of devices.
        """
        self._grid = np.array(devices).reshape(-1, self.model_parallel)
        self.devices: tuple[Device, ...] = tuple(self._grid[:, 0])
        several = self.model_parallel > 1
        self.mesh = Mesh(self._grid, (AXIS, MODEL_AXIS)) if several else Mesh(self._grid[:, 0], (AXIS,))
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self.sharded = NamedSharding(self.mesh, PartitionSpec(AXIS))
        self.sharded_steps = NamedSharding(self.mesh, PartitionSpec(None, AXIS))
        self.home = self.replicated if self.centre is None else SingleDeviceSharding(self.centre)
        processes = collections.Counter(device.process_index for device in self.devices)
        process = jax.process_index() if len(processes) > 1 else self.devices[0].process_index
        self.local_replicas = tuple(i for i, d in enumerate(self.devices) if d.process_index == process)
        # XLA:CPU deadlocks when several steps are in flight on more devices than cores
        # ("rendezvous ... may be stuck", abort after 40 s). Waiting costs nothing there.
        self.waits_for_steps = self.devices[0].platform == "cpu" and self.spans_devices
        self._local_rows: dict[int, slice] = {}
        self._takes_numpy = not self.spans_devices and self.devices[0].platform == "cpu"
        if len(set(processes.values())) > 1:
            listed = ", ".join(f"worker {process}: {count}" for process, count in sorted(processes.items()))
            raise PeerError(
                f"The workers have unequal numbers of devices ({listed}).",
                "The replicas could not share batches, and collectives would never match.",
                "Give every worker the same number of devices, for example with "
                "`stratagem run --devices-per-worker K` or CUDA_VISIBLE_DEVICES.",
            )

    @property
    def memory(self) -> HostMemory | None:
        """Memory that the workers of this host have in common, where values cross through it."""
        return self._memory if self.spans_devices else None

    def wait(self, results: Tree) -> None:
        """Wait for the results of a step where two steps in flight could deadlock."""
        if self.waits_for_steps and not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(results)):
            jax.block_until_ready(results)

    @property
    def size(self) -> int:
        """Number of replicas."""
        return len(self.devices)

    @property
    def spans_devices(self) -> bool:
        """Whether it has more than one device."""
        return self.size * self.model_parallel > 1

    @property
    def axes(self) -> list[tuple[str, int]] | None:
        """The named axes of a function of one replica, as `jax.make_jaxpr` takes them."""
        return [(AXIS, self.size)] if self.spans_devices else None

    def tracing(self) -> contextlib.AbstractContextManager[Any]:
        """Let what is traced in this context, for one replica, say how values lie on the replica's devices."""
        if self.model_parallel == 1:
            return contextlib.nullcontext()
        types = (AxisType.Manual, AxisType.Auto)
        return jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh.update(axis_types=types))

    def spmd(self, function: Callable[..., Tree], in_specs: Tree, out_specs: Tree) -> Callable[..., Tree]:
        """Return a function of all replicas, given that of one.

        Args:
            function: Function of one replica's part of the arguments.
            in_specs: A `PartitionSpec` for each argument; a prefix of their structure.
            out_specs: The same for the results.
        """
        if not self.spans_devices:
            return function
        if self.model_parallel == 1:
            return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
        own = [jax.tree.map(_of_replicas, specs, is_leaf=_is_spec) for specs in (in_specs, out_specs)]
        on_replicas = jax.shard_map(
            function, mesh=self.mesh, in_specs=own[0], out_specs=own[1], axis_names={AXIS}, check_vma=False
        )

        def lying(spec: PartitionSpec, part: Tree) -> Tree:
            return lax.with_sharding_constraint(part, NamedSharding(self.mesh, spec))

        # Without it XLA would choose how results lie, and a step would find its variables otherwise than it takes them.
        return lambda *args: jax.tree.map(lying, out_specs, on_replicas(*args), is_leaf=_is_spec)

    def uncompiled(
        self, function: Callable[..., Tree], in_specs: Sequence[PartitionSpec], in_parts: Sequence[bool] = ()
    ) -> Callable[..., Tree]:
        """Return a function of all replicas that runs operation by operation, given that of one.

        Each operation runs for all replicas at once, on arrays with an axis of replicas (`jax.vmap`), so JAX keeps
        its program for the next step. In a `shard_map` that is not compiled it compiles every operation anew each
        time: 4 s for a step of two dense layers on two replicas.

        Args:
            function: Function of one replica's part of the arguments; what it returns is equal on all replicas, or of
                the kind that `in_parts` says.
            in_specs: A `PartitionSpec` for each argument.
            in_parts: Which arrays of the first argument, a list, are another one on each replica's device.
        """
        if self.size == 1:
            return function
        whole = PartitionSpec()
        axes: list[Any] = [spec.index(AXIS) if AXIS in spec else None for spec in in_specs]
        if any(in_parts):
            axes[0] = [0 if own else None for own in in_parts]
        on_all = jax.vmap(function, in_axes=tuple(axes), axis_name=AXIS, axis_size=self.size)
        stack = self.spmd(lambda leaf: leaf[None], whole, PartitionSpec(AXIS))
        own = self.spmd(lambda leaf: leaf[0], PartitionSpec(AXIS), whole)

        @jax.jit
        def apart(args: Sequence[Tree]) -> list[Tree]:
            first, *others = args
            if any(in_parts):
                first = [stack(leaf) if is_own else leaf for leaf, is_own in zip(first, in_parts, strict=True)]
            else:
                first = self._with_replicas(first, axes[0])
            return [first, *(self._with_replicas(arg, axis) for arg, axis in zip(others, axes[1:], strict=True))]

        together = jax.jit(lambda results: jax.tree.map(own, results))
        return lambda *args: together(on_all(*apart(args)))

    def _with_replicas(self, rows: Tree, axis: int | None) -> Tree:
        """Give arrays an axis of replicas before that of their rows."""
        if axis is None:
            return rows
        return jax.tree.map(lambda leaf: leaf.reshape(*leaf.shape[:axis], self.size, -1, *leaf.shape[axis + 1 :]), rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReplicaMesh:
        """Return this mesh: a copy of a variable lies on the same devices."""
        return self

    @property
    def multi_process(self) -> bool:
        """Whether some replicas run in other processes."""
        return len(self.local_replicas) < self.size

    def is_replicated(self, value: object) -> bool:
        """Whether `value` already lies on every device of this mesh, whole."""
        sharding = getattr(value, "sharding", None)
        return sharding is self.replicated or sharding == self.replicated

    def replicate(self, value: Any) -> jax.Array:
        """Put one value, equal on all workers, on every device.

        Args:
            value: An array or number of any shape.
        """
        return value if self.is_replicated(value) else self._placed(value, self.replicated)

    def _placed(self, value: Any, sharding: NamedSharding) -> jax.Array:
        """Put a value that is equal on all workers on the devices."""
        if not self.multi_process:
            return jax.device_put(_of_this_process(value), sharding)
        host = np.asarray(value)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    @property
    def central(self) -> bool:
        """Whether variables lie at one place, and are copied to the devices for each step."""
        return self.centre is not None

    def keeps(self, value: object) -> bool:
        """Whether `value` already lies where variables do."""
        if self.centre is None:
            return self.is_replicated(value)
        return getattr(value, "sharding", None) == self.home and bool(getattr(value, "committed", False))

    def keep(self, value: Any) -> jax.Array:
        """Put one value, equal on all workers, where variables lie.

        Args:
            value: An array or number of any shape. One that is being traced stays as it is.
        """
        if self.centre is None:
            return self.replicate(value)
        if isinstance(value, Tracer) or self.keeps(value):
            return value
        on_devices = isinstance(value, jax.Array) and len(value.sharding.device_set) > 1
        return jax.device_put(value.addressable_data(0) if on_devices else value, self.home)

    def keep_given(self, value: Any) -> jax.Array:
        """Put a value of another worker where variables lie.

        Args:
            value: An array, or what this worker keeps of one that is divided.
        """
        if not isinstance(value, Piece):
            return self.keep(value)
        sharding = NamedSharding(self.mesh, spec_of(value.axis))
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index or ()])

    def rests(self, value: object, spec: PartitionSpec) -> bool:
        """Whether `value` already lies where it is between steps.

        Args:
            value: Of a variable.
            spec: How that is divided (`shards.resting_spec`).
        """
        if spec == PartitionSpec():
            return self.keeps(value) or self.keeps_apart(value)
        return getattr(value, "sharding", None) == NamedSharding(self.mesh, spec)

    def keeps_apart(self, value: object) -> bool:
        """Whether `value` has a part for each replica, each on the replica's device."""
        return getattr(value, "sharding", None) == self.sharded

    def keep_apart(self, value: Any) -> Any:
        """Put a part of a value on each replica.

        Args:
            value: An array whose first axis is the replica, equal on all workers.
        """
        return value if isinstance(value, Tracer) or self.keeps_apart(value) else self._placed(value, self.sharded)

    def keep_on_first(self, value: Any) -> jax.Array:
        """Put a value on the first replica, and zeros on the others, where variables lie.

        Args:
            value: An array of any shape, the same on all workers.
        """
        host = np.asarray(value)
        own = [(i, device) for i in self.local_replicas for device in self._grid[i]]
        parts = [jax.device_put(host if i == 0 else np.zeros_like(host), device) for i, device in own]
        return jax.make_array_from_single_device_arrays(host.shape, self.replicated, parts)

    def on_replicas(self, function: Callable[..., Tree], values: Sequence[jax.Array]) -> list[jax.Array]:
        """Run a function of one replica's list of arrays, which every replica has whole, and return its list.

        Args:
            function: What it returns is of each replica, under the same name. It is compiled once: no closure.
            values: The arrays.
        """
        return list(_on_replicas(self.mesh, function)(list(values)))

    def making_variables(self) -> contextlib.AbstractContextManager[Any]:
        """Let variables that are made in this context not pass through the memory of other devices."""
        return contextlib.nullcontext() if self.centre is None else jax.default_device(self.centre)

    def whole(self, value: jax.Array) -> jax.Array:
        """Put a value that may be divided among the replicas on every device, whole. All workers call it together."""
        if self.is_replicated(value):
            return value
        if self.world is not None and is_divided(value):
            found: dict[int, np.ndarray] = {}
            self.world.put_together([value], found.__setitem__)
            return self.keep(found[0])
        return resharding(self.replicated)(value)

    def zeros_in_shards(self, spec: PartitionSpec, shape: Sequence[int], dtype: Any = None) -> jax.Array:
        """Return zeros, divided from the first.

        Args:
            spec: How they are divided.
            shape: Of all together.
            dtype: Their dtype.
        """
        return jnp.zeros(tuple(shape), dtype, device=NamedSharding(self.mesh, spec))

    def shard_from_chief(self, value: Any, spec: PartitionSpec) -> jax.Array:
        """Divide a value, taking that of the first worker. All workers call it together.

        Args:
            value: An array, of equal shape and dtype on all workers.
            spec: How it is divided.
        """
        sharding = NamedSharding(self.mesh, spec)
        if self.world is not None:
            whole = self.whole(value) if is_divided(value) else value
            return self._placed(self.world.from_chief([np.asarray(whole)])[0], sharding)
        if not self.multi_process:
            return jax.device_put(value, sharding)
        spans_devices = isinstance(value, jax.Array) and value.sharding.device_set == self.replicated.device_set
        everywhere = value if spans_devices else self.keep_from_chief([value])[0]
        return resharding(sharding)(everywhere)

    def keep_from_chief(self, values: Sequence[Any]) -> list[jax.Array]:
        """Put values where variables lie, taking those of the first worker on all of them.

        Every worker must call this at the same point with values of equal shapes and dtypes.

        Args:
            values: Arrays or numbers. One that is divided among the replicas is put together.
        """
        values = [self.whole(value) if is_divided(value) else value for value in values]
        if self.world is not None:
            values = [_of_this_process(value) for value in values]
        if not self.multi_process and not self.central:
            return jax.device_put(list(values), self.replicated)  # 20 at once: 0.6 ms; one after the other: 1.0 ms
        if not self.multi_process:
            return [self.keep(value) for value in values]
        if self.world is not None:
            return [self.keep(value) for value in self.world.from_chief([np.asarray(value) for value in values])]
        is_source = 0 in self.local_replicas
        hosts = [np.asarray(value) for value in values]
        stacked = [self.shard_blocks(self._source_rows(host, is_source)) for host in hosts]
        return list(_first_rows(self.replicated)(stacked))

    def _source_rows(self, host: np.ndarray, is_source: bool) -> np.ndarray:
        rows = np.zeros((len(self.local_replicas), *host.shape), host.dtype)
        if is_source:
            rows[0] = host
        return rows

    def shard_blocks(self, rows: np.ndarray, *, steps: bool = False) -> jax.Array | np.ndarray:
        """Put this worker's rows on its devices, an equal block on each, as part of one global array.

        Args:
            rows: Array whose first axis holds the blocks of the local replicas one after another.
            steps: Whether an axis of steps stands before that one.
        """
        if self._takes_numpy:
            # The compiled step takes NumPy as it is; device_put before it costs 0.1 ms for each array.
            wide = rows.dtype.itemsize >= 8  # the others are as JAX wants them, and it need not be asked
            return rows.astype(jax.dtypes.canonicalize_dtype(rows.dtype), copy=False) if wide else rows
        if not self.spans_devices:
            return jax.device_put(rows, self.devices[0])
        sharding = self.sharded_steps if steps else self.sharded
        if not self.multi_process:
            return jax.device_put(rows, sharding)
        return self._with_those_of_others(rows, sharding, axis=1 if steps else 0)

    def _with_those_of_others(self, rows: np.ndarray, sharding: NamedSharding, axis: int) -> jax.Array:
        """Make an array of all workers' blocks. `make_array_from_process_local_data` would take 19 us instead of 8."""
        block = rows.shape[axis] // len(self.local_replicas)
        shape = (*rows.shape[:axis], block * self.size, *rows.shape[axis + 1 :])
        first = self.local_replicas[0] * block

        def of_device(place: Any) -> np.ndarray:
            start = (place[axis].start or 0) - first
            return rows[(*place[:axis], slice(start, start + block))]

        return jax.make_array_from_callback(shape, sharding, of_device)

    def local_rows(self, rows: int) -> slice:
        """Return which rows of a global batch this worker reads.

        Args:
            rows: Rows in the global batch.
        """
        if rows not in self._local_rows:
            split = Split(rows, self.size)
            first, last = self.local_replicas[0], self.local_replicas[-1]
            self._local_rows[rows] = slice(split.start(first), split.start(last + 1))
        return self._local_rows[rows]


@functools.cache
def resharding(sharding: NamedSharding) -> Any:
    """Return a compiled function that lets a value lie otherwise; all processes that have a part of it call it."""
    return jax.jit(lambda value: value, out_shardings=sharding)


def _of_this_process(value: Any) -> Any:
    """Return a value that lies on the devices of workers who are gone as it lies in the memory of this one."""
    is_elsewhere = isinstance(value, jax.Array) and not isinstance(value, Tracer) and not value.is_fully_addressable
    return np.asarray(value) if is_elsewhere else value


@functools.cache
def _first_rows(replicated: NamedSharding) -> Any:
    """Return a compiled function: row 0 of each sharded array, on all devices. The others are zero: a sum is exact."""
    return jax.jit(lambda arrays: [array.sum(axis=0, dtype=array.dtype) for array in arrays], out_shardings=replicated)


@functools.cache
def _on_replicas(mesh: Mesh, function: Callable[..., Tree]) -> Any:
    whole = PartitionSpec()
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False))
