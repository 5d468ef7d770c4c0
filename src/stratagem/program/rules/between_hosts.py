"""Exchange between all workers, in a program that is being traced: through the memory of hosts, and XLA between them.

On several hosts an exchange has three parts. The workers of each host combine their arrays in its memory, each of them
a share; those that have the same share of every host combine it by XLA's own collective; and the workers of each host
put the shares together in its memory. So an array crosses the network once for each host, in as many pieces at a time
as a host has workers. One worker combines a share and gives all the same bits, so all replicas hold the same.

So do sums in shards and gathers of shards, where all hosts have the same number of workers. Of a sum, a worker's share
is the blocks that it and those of its group on other hosts are to have, and these scatter it: there is nothing to put
together. A block that is gathered goes to the group first, and then to all in the memory of their hosts.

What else there is uses XLA only, between the first part and the last: workers that came to the memory and to XLA's
collectives in different orders would wait for each other.

Workers that may be replaced have connections of their own to other hosts (`host_memory.two_levels`). Then one call
does all three parts, as on one host.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from stratagem.host_memory import ffi
from stratagem.host_memory.memory import HostMemory
from stratagem.host_memory.plan import Operation, Plan, PlanPart
from stratagem.mesh.mesh import AXIS
from stratagem.mesh.shards import own_shard, renews
from stratagem.program.compat import parameters, run_equation

TARGET: Final = "stratagem_exchange"
"""The foreign function by which values cross through the memory of a host."""

_OPERATIONS: Final[dict[str, Operation]] = {
    **{"psum": "sum", "pmin": "min", "pmax": "max", "all_gather": "gather", "reduce_scatter": "scatter"}
}
_COLLECTIVES: Final = frozenset({*_OPERATIONS, "all_to_all", "reduce_scatter", "ppermute"})
_BETWEEN: Final[dict[Operation, Callable[..., Any]]] = {
    **{"sum": lax.psum, "min": lax.pmin, "max": lax.pmax},
    "gather": functools.partial(lax.all_gather, tiled=True),
    "scatter": functools.partial(lax.psum_scatter, tiled=True),
}
"""Functions that combine the parcels (`host_memory.plan`) of a group of workers, by their kind."""

_INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_SHORT: Final = frozenset({"bfloat16", "float16"})
"""Combined as float32, as XLA sums them, so that a sum of many is rounded once."""

_DTYPES: Final = _SHORT | {"bool", *_INTEGERS, "float32", "float64", "complex64"}

Request = tuple[JaxprEqn, Sequence[Any]]
"""A collective of the program, and its operands."""


def let_programs_call(memory: HostMemory) -> None:
    """Let programs call the memory of this process, of which there is one, as a process joins one cluster.

    Raises:
        RuntimeError: This version of XLA calls foreign functions otherwise.
    """
    ffi.register(TARGET, memory.run)


def is_exchanged(eqn: JaxprEqn, memory: HostMemory) -> bool:
    """Whether an equation is a collective that is a part of an exchange."""
    if memory.reaches_all:
        return _is_renewed(eqn) or _through_memory(eqn)
    if _is_renewed(eqn):
        return memory.hosts.even
    # All, so that the order of XLA's own does not depend on the worker.
    return eqn.primitive.name in _COLLECTIVES and AXIS in _axes(eqn)


def exchange(requests: Sequence[Request], memory: HostMemory, name: str, link: jax.Array) -> tuple[list[Any], Any]:
    """Make one exchange of all that some collectives ask for.

    Args:
        requests: The collectives.
        memory: That of this host.
        name: What to call the exchange in messages.
        link: What the exchange before has handed on.

    Returns:
        The results of each collective, and the link for the next exchange.
    """
    if not memory.reaches_all:
        return _between_hosts(requests, memory, name, link)
    sent, parts = _sent(requests)
    before = _before(requests)
    plan = memory.plan(name, parts)
    results = _results(parts, before, memory)
    # A sum may lie where its operand lay, and what is renewed where it was: pages that were touched before.
    in_place = {i: i for i, part in enumerate(parts) if part.operation != "gather"}
    in_place.update({len(sent) + place: i for place, i in enumerate(before)})
    *combined, link = _call(memory, plan, [*sent, *before.values()], results, in_place, link)
    own = [
        own_shard(array, 0) if part.operation == "scatter" else array
        for part, array in zip(parts, combined, strict=True)
    ]
    return _answers(requests, own), link


def _between_hosts(
    requests: Sequence[Request], memory: HostMemory, name: str, link: jax.Array
) -> tuple[list[Any], Any]:
    in_memory = [_in_two_levels(eqn, memory) for eqn, _ in requests]
    combined = [request for request, own in zip(requests, in_memory, strict=True) if own]
    others = [request for request, own in zip(requests, in_memory, strict=True) if not own]
    name += "".join(f", {eqn.primitive.name} {eqn.invars[0].aval}" for eqn, _ in others)
    sent, parts = _sent(combined)
    scatter = Plan(name, parts, memory.capacity, memory.hosts, "scatter")
    collect = Plan(name, parts, memory.capacity, memory.hosts, "collect")
    parcels = [_parcel(operation, dtype, size, memory) for (operation, dtype), size in scatter.parcels.items()]
    summed = [i for i, part in enumerate(parts) if part.operation not in ("gather", "scatter")]
    first, last = len(parcels), len(parcels) + len(summed)

    # What XLA is left to do comes out of the first call as it went in, so that it waits for that.
    whole = [array for eqn, values in others for array in _arrays(eqn, values)]
    kept = {i: first + place for place, i in enumerate(summed)}
    passed = {len(sent) + i: last + i for i in range(len(whole))}
    results = [*parcels, *(_like(sent[i]) for i in summed), *map(_like, whole)]
    *made, link = _call(memory, scatter, [*sent, *whole], results, {**kept, **passed}, link)

    of_hosts = [
        _BETWEEN[operation](parcel, AXIS, axis_index_groups=memory.hosts.groups)
        for (operation, _), parcel in zip(scatter.parcels, made[:first], strict=True)
    ]
    waiting = iter(made[last:])
    by_xla = [run_equation(eqn, [next(waiting) for _ in values]) for eqn, values in others]

    before = _before(combined)
    in_place = {first + place: i for place, i in enumerate([*summed, *before])}
    operands = [*of_hosts, *made[first:last], *before.values(), *itertools.chain.from_iterable(by_xla)]
    *made, link = _call(memory, collect, operands, _results(parts, before, memory), in_place, link)
    answers = {True: iter(_answers(combined, made)), False: iter(by_xla)}
    return [next(answers[own]) for own in in_memory], link


def _parcel(operation: Operation, dtype: np.dtype, nbytes: int, memory: HostMemory) -> jax.ShapeDtypeStruct:
    """Return what the first call makes of one kind of arrays: of what is scattered, a block for each of the group."""
    blocks = memory.hosts.number if operation == "scatter" else 1
    return jax.ShapeDtypeStruct((blocks * nbytes // dtype.itemsize,), dtype)


def _results(parts: Sequence[PlanPart], before: dict[int, jax.Array], memory: HostMemory) -> list[jax.ShapeDtypeStruct]:
    """Return what each array becomes. Without XLA a sum that is scattered lies in its whole array."""
    results = []
    for i, part in enumerate(parts):
        shape = part.shape
        if i in before:
            shape = before[i].shape
        elif part.operation == "gather":
            shape = (memory.hosts.size, *shape)
        elif part.operation == "scatter" and not memory.reaches_all:
            shape = (shape[0] // memory.hosts.size, *shape[1:])
        results.append(jax.ShapeDtypeStruct(shape, part.dtype))
    return results


def _arrays(eqn: JaxprEqn, values: Sequence[Any]) -> list[jax.Array]:
    return [jnp.asarray(value, _dtype(var)) for var, value in zip(eqn.invars, values, strict=True)]


def _sent(requests: Sequence[Request]) -> tuple[list[jax.Array], list[PlanPart]]:
    """Return the arrays that go through memory, and what is to become of each."""
    sent, parts = [], []
    for eqn, values in requests:
        is_renewed = _is_renewed(eqn)
        operation: Operation = "gather" if is_renewed else _OPERATIONS[eqn.primitive.name]
        for array in _arrays(eqn, values)[: 1 if is_renewed else None]:
            if array.dtype.name in _SHORT and operation != "gather":
                array = array.astype(jnp.float32)
            if operation == "scatter":
                array = jnp.moveaxis(array, parameters(eqn)["scatter_dimension"], 0)
            sent.append(array)
            parts.append(PlanPart(operation, np.dtype(array.dtype), array.shape))
    return sent, parts


def _before(requests: Sequence[Request]) -> dict[int, jax.Array]:
    """Return what was before of the results that are renewed, by their number."""
    results = [(eqn, values) for eqn, values in requests for _ in eqn.outvars]
    return {i: _arrays(eqn, values)[1] for i, (eqn, values) in enumerate(results) if _is_renewed(eqn)}


def _answers(requests: Sequence[Request], combined: Sequence[jax.Array]) -> list[list[jax.Array]]:
    """Return the arrays that came through memory in the shapes and dtypes that the program expects."""
    made = iter(combined)
    return [[_shaped(eqn, next(made)).astype(_dtype(var)) for var in eqn.outvars] for eqn, _ in requests]


def _call(
    memory: HostMemory,
    plan: Plan,
    operands: Sequence[jax.Array],
    results: Sequence[jax.ShapeDtypeStruct],
    in_place: dict[int, int],
    link: jax.Array,
) -> list[jax.Array]:
    """Call the memory in the program; return the results and the link.

    Args:
        memory: That of this host.
        plan: What is done there.
        operands: Arrays.
        results: Shapes and dtypes.
        in_place: Operands that results lie on, by number.
        link: What the call before has handed on.
    """
    memory.add(plan)
    # Not marked as a side effect, for which JAX would leave its quick way of calling programs: the link orders
    # exchanges, and one whose results nobody needs is left out on all workers alike.
    call = jax.ffi.ffi_call(
        TARGET, [*results, _like(link)], input_output_aliases={**in_place, len(operands): len(results)}
    )
    return list(call(*operands, link, site=np.int64(plan.signature)))


def _like(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _through_memory(eqn: JaxprEqn) -> bool:
    """Whether memory has all that an equation asks for."""
    if eqn.primitive.name not in _OPERATIONS or parameters(eqn)["axis_index_groups"] is not None:
        return False
    names = {_dtype(atom).name for atom in eqn.invars}
    return _axes(eqn) == (AXIS,) and names <= _DTYPES


def _in_two_levels(eqn: JaxprEqn, memory: HostMemory) -> bool:
    """Whether the memory of each host has its part of what an equation asks for."""
    if _is_renewed(eqn):
        return True
    if not _through_memory(eqn):
        return False
    return memory.hosts.even or _OPERATIONS[eqn.primitive.name] not in ("gather", "scatter")


def _is_renewed(eqn: JaxprEqn) -> bool:
    """Whether an equation puts shards together in the memory of what the whole was, and memory can do that."""
    if eqn.primitive.name not in ("jit", "pjit") or renews(parameters(eqn)["name"]) != 0:
        return False
    return {_dtype(atom).name for atom in eqn.invars} <= _DTYPES


def _axes(eqn: JaxprEqn) -> tuple[Any, ...]:
    given = parameters(eqn)
    axes = given["axes"] if "axes" in given else given["axis_name"]
    return axes if isinstance(axes, tuple) else (axes,)


def _shaped(eqn: JaxprEqn, value: jax.Array) -> jax.Array:
    """Return the result of a collective as the program expects it.

    What was gathered comes stacked; what was scattered, divided along the first axis.
    """
    if eqn.primitive.name == "reduce_scatter":
        axis = parameters(eqn)["scatter_dimension"]
        return jnp.moveaxis(value, 0, axis) if parameters(eqn)["tiled"] else value[0]
    if eqn.primitive.name != "all_gather":
        return value
    axis = parameters(eqn)["all_gather_dimension"]
    value = jnp.moveaxis(value, 0, axis)
    if not parameters(eqn)["tiled"]:
        return value
    return value.reshape(*value.shape[:axis], -1, *value.shape[axis + 2 :])


def _dtype(atom: Any) -> np.dtype:
    return atom.aval.dtype
