"""Placing of variables' values where variables lie, equal on all workers, and putting parts of them together."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from stratagem.mesh.mesh import AXIS, ReplicaMesh, spec_of
from stratagem.mesh.shards import resting_spec

_PACK_BYTES: Final = 16 << 20
"""Bytes of the chief's values that cross to the other workers at once. All packs are equal: one program sends them."""


class Agreeing(Protocol):
    """A strategy, as far as it is needed here."""

    mesh: ReplicaMesh

    def check_agreement(self, name: str, fields: Mapping[str, str | int]) -> None: ...


def placed(strategy: Agreeing, values: Sequence[Any], variables: Sequence[Any]) -> list[jax.Array]:
    """Return values with each where variables lie. Where one is not there yet, the chief's counts.

    Every worker must call this at the same point.

    Args:
        strategy: Whose mesh.
        values: Arrays; those that lie there already, or have a part for each replica, stay as they are.
        variables: Whose values they are.

    Raises:
        PeerError: Workers would place different things.
    """
    result = list(values)
    mesh = strategy.mesh
    specs = [resting_spec(variable) for variable in variables]
    foreign = [i for i, value in enumerate(result) if not mesh.rests(value, specs[i])]
    if foreign:
        if mesh.world is not None and mesh.world.loop is not None:
            mesh.world.loop.check_placed([variables[i] for i in foreign])
        facts = {f"variable {i} {variables[i].path}": f"{result[i].dtype}{list(result[i].shape)}" for i in foreign}
        strategy.check_agreement("values to place", facts)
        whole = [i for i in foreign if specs[i] == PartitionSpec()]
        for i, value in zip(whole, mesh.keep_from_chief([result[i] for i in whole]), strict=True):
            result[i] = value
        parts = [i for i in foreign if specs[i] != PartitionSpec()]
        shards = divided(mesh, [result[i] for i in parts], [specs[i] for i in parts])
        for i, value in zip(parts, shards, strict=True):
            result[i] = value
    return result


# In shards -------------------------------------------------------------------------------------------


def divided(mesh: ReplicaMesh, values: Sequence[Any], specs: Sequence[PartitionSpec]) -> list[jax.Array]:
    """Return values divided, those of the first worker. All workers call it at the same point.

    What lies in the memory of each worker crosses in packs of bytes, of which each worker gets what its replicas keep.

    Args:
        mesh: The replicas.
        values: Arrays, of equal shapes and dtypes on all workers.
        specs: How each is divided.
    """
    if not mesh.multi_process or mesh.model_parallel > 1 or mesh.world is not None:
        return [mesh.shard_from_chief(value, spec) for value, spec in zip(values, specs, strict=True)]
    result: list[Any] = [None] * len(values)
    local = []
    for i, (value, spec) in enumerate(zip(values, specs, strict=True)):
        if isinstance(value, jax.Array) and not value.is_fully_addressable:
            result[i] = mesh.shard_from_chief(value, spec)
        else:
            local.append(i)
    axes = [specs[i].index(AXIS) for i in local]
    for i, value in zip(local, _sent(mesh, [values[i] for i in local], axes), strict=True):
        result[i] = value
    return result


def _sent(mesh: ReplicaMesh, values: Sequence[Any], axes: Sequence[int]) -> list[jax.Array]:
    """Send each worker what its replicas keep of the first one's values."""
    hosts = [np.asarray(value) for value in values]
    shards = {
        replica: [
            np.empty(_shard_of(*each, 0, mesh.size).shape, each[0].dtype) for each in zip(hosts, axes, strict=True)
        ]
        for replica in mesh.local_replicas
    }
    room = _PACK_BYTES // mesh.size
    packs = np.zeros((len(mesh.local_replicas), mesh.size, room), np.uint8)  # the first counts: a row for each replica
    for pieces in _packs([shard.nbytes for shard in shards[mesh.local_replicas[0]]], room):
        if 0 in mesh.local_replicas:
            for replica, piece in itertools.product(range(mesh.size), pieces):
                shard = _shard_of(hosts[piece.value], axes[piece.value], replica, mesh.size)
                packs[0, replica, piece.place] = _bytes_of(np.ascontiguousarray(shard))[piece.part]
        for replica, row in _from_first(mesh, packs).items():
            for piece in pieces:
                _bytes_of(shards[replica][piece.value])[piece.part] = row[piece.place]
    return [
        jax.make_array_from_single_device_arrays(
            host.shape,
            NamedSharding(mesh.mesh, spec_of(axis)),
            [jax.device_put(shards[replica][i], mesh.devices[replica]) for replica in mesh.local_replicas],
        )
        for i, (host, axis) in enumerate(zip(hosts, axes, strict=True))
    ]


class _Piece(NamedTuple):
    """Bytes of shards that cross in one pack: of which value, which of its shard's, and where in a row of the pack."""

    value: int
    part: slice
    place: slice


def _packs(sizes: Sequence[int], room: int) -> Iterator[list[_Piece]]:
    """Yield what is in each pack.

    Args:
        sizes: Bytes of a shard of each value.
        room: Bytes in a row of a pack.
    """
    pieces: list[_Piece] = []
    place = 0
    for value, size in enumerate(sizes):
        start = 0
        while start < size:
            length = min(size - start, room - place)
            pieces.append(_Piece(value, slice(start, start + length), slice(place, place + length)))
            start, place = start + length, place + length
            if place == room:
                yield pieces
                pieces, place = [], 0
    if pieces:
        yield pieces


def _shard_of(host: np.ndarray, axis: int, replica: int, replicas: int) -> np.ndarray:
    size = host.shape[axis] // replicas
    return host[(slice(None),) * axis + (slice(replica * size, (replica + 1) * size),)]


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a contiguous array, whatever its dtype."""
    return array.reshape(-1).view(np.uint8)


def _from_first(mesh: ReplicaMesh, packs: np.ndarray) -> dict[int, np.ndarray]:
    """Return for each replica of this worker its row of the first worker's first pack."""
    received = _rows_of_first(mesh)(mesh.shard_blocks(packs))
    return {mesh.devices.index(shard.device): np.asarray(shard.data)[0] for shard in received.addressable_shards}


@functools.lru_cache(maxsize=1)
def _rows_of_first(mesh: ReplicaMesh) -> Any:
    """Compile: each replica's row of what the first one holds. It takes any bits as they are, and needs no sum."""

    def rows(own: jax.Array) -> jax.Array:
        return lax.all_to_all(own[0], AXIS, split_axis=0, concat_axis=0)[:1]

    return jax.jit(mesh.spmd(rows, PartitionSpec(AXIS), PartitionSpec(AXIS)))


# Together again --------------------------------------------------------------------------------------

_puts_together: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def holds_parts(model: Any, put_together: Callable[[Any], None]) -> None:
    """Note that a model may hold values of which each replica has a part.

    Args:
        model: The model.
        put_together: Given the model, makes the values of its variables whole. It is collective.
    """
    _puts_together[model] = put_together


def make_whole(model: Any) -> None:
    """Make the values of a model's variables whole. All workers must call it at the same point."""
    put_together = _puts_together.get(model)
    if put_together is not None:
        put_together(model)
