"""Exchange between all workers, in a program that is being traced: through the memory of hosts, and connections.

The program calls a foreign function with the addresses of its arrays. What that does, programs do not know: on one host
the workers combine arrays in its memory, on several also through connections between hosts
(`host_memory.two_levels`). All workers get the same bits.

What the function does not do (`all_to_all`, a shift) is left to XLA, after the call and before the next one: workers
that came to the two in different orders would wait for each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn

from stratagem.host_memory import ffi
from stratagem.host_memory.memory import HostMemory
from stratagem.host_memory.plan import Operation, Plan, PlanPart
from stratagem.mesh.mesh import AXIS
from stratagem.mesh.shards import own_shard, renews
from stratagem.program.compat import parameters, run_equation

TARGET: Final = "stratagem_exchange"
"""The foreign function by which values cross through the memory of a host."""

BEGIN: Final = "stratagem_begin_exchange"
FINISH: Final = "stratagem_finish_exchange"
"""Foreign functions by which they cross between hosts while the program computes."""

GROUP_BYTES: Final = 2 << 20
"""Bytes of sums that begin together, where they begin as soon as the program has them. With 0.5 to 8 MB a step of
ResNet-18 between two hosts with 1 Gbit/s takes 443 to 474 ms, and 511 to 520 where all begin at once (2026-11-30)."""

_OPERATIONS: Final[dict[str, Operation]] = {
    **{"psum": "sum", "pmin": "min", "pmax": "max", "all_gather": "gather", "reduce_scatter": "scatter"}
}
_COLLECTIVES: Final = frozenset({*_OPERATIONS, "all_to_all", "reduce_scatter", "ppermute"})
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
    ffi.register(BEGIN, memory.begin)
    ffi.register(FINISH, memory.finish)


def is_exchanged(eqn: JaxprEqn) -> bool:
    """Whether an equation is a collective that is a part of an exchange."""
    return _is_renewed(eqn) or (eqn.primitive.name in _COLLECTIVES and AXIS in _axes(eqn))


def exchange(
    requests: Sequence[Request], memory: HostMemory, name: str, link: jax.Array, age_of: Callable[[Any], int]
) -> tuple[list[Any], Any]:
    """Make one exchange of all that some collectives ask for.

    Args:
        requests: The collectives.
        memory: What the workers have in common.
        name: What to call the exchange in messages.
        link: What the exchange before has handed on.
        age_of: Returns when the program has an operand: those with lower numbers earlier.

    Returns:
        The results of each collective, and the link for the next exchange.
    """
    is_own = [_is_renewed(eqn) or _through_memory(eqn) for eqn, _ in requests]
    combined = [request for request, own in zip(requests, is_own, strict=True) if own]
    others = [request for request, own in zip(requests, is_own, strict=True) if not own]
    name += "".join(f", {eqn.primitive.name} {eqn.invars[0].aval}" for eqn, _ in others)
    sent, parts = _sent(combined)
    before = _before(combined)
    # What XLA is left to do comes out of the call as it went in, so that it waits for that.
    whole = [array for eqn, values in others for array in _arrays(eqn, values)]
    numbers = [list(range(len(parts)))]
    if memory.crosses_beside:
        ages = [age_of(var) for eqn, _ in combined for var in eqn.invars[: 1 if _is_renewed(eqn) else None]]
        numbers = _by_age(parts, ages, before)
    groups = []
    for group in numbers:
        is_last = len(groups) == len(numbers) - 1
        plan = memory.plan(name if len(numbers) == 1 else f"{name}, group {len(groups)}", [parts[i] for i in group])
        old = {place: before[i] for place, i in enumerate(group) if i in before}
        groups.append(_Group(memory, plan, [sent[i] for i in group], old, whole if is_last else ()))
    results, link = _combined(groups, link)
    made: dict[int, jax.Array] = {}
    for group, arrays in zip(numbers, results, strict=True):
        made.update(zip(group, arrays, strict=False))

    passed = iter(results[-1][len(numbers[-1]) :])
    by_xla = [run_equation(eqn, [next(passed) for _ in values]) for eqn, values in others]
    own = [own_shard(made[i], 0) if part.operation == "scatter" else made[i] for i, part in enumerate(parts)]
    answers = {True: iter(_answers(combined, own)), False: iter(by_xla)}
    return [next(answers[each]) for each in is_own], _behind(link, by_xla)


def _by_age(parts: Sequence[PlanPart], ages: Sequence[int], before: Collection[int]) -> list[list[int]]:
    """Return groups of arrays, by their numbers, in the order in which the program has them.

    Args:
        parts: The arrays.
        ages: When the program has each. Of those that it has at once, the last ones are the first of a backward pass.
        before: Those that are renewed.
    """
    sums = [i for i, part in enumerate(parts) if part.operation in ("sum", "scatter") and i not in before]
    groups: list[list[int]] = [[]]
    nbytes = 0
    for i in sorted(sums, key=lambda i: (ages[i], -i)):
        if nbytes >= GROUP_BYTES:
            groups.append([])
            nbytes = 0
        groups[-1].append(i)
        nbytes += parts[i].nbytes
    groups[-1] += [i for i in range(len(parts)) if i not in sums]
    return groups


def _combined(groups: Sequence[_Group], link: jax.Array) -> tuple[list[list[jax.Array]], jax.Array]:
    """Combine arrays with those of the other workers; return what each group becomes, and the link."""
    if len(groups) == 1:
        made, link = groups[0].call(TARGET, groups[0].operands, link)
        return [made], link
    held, results = [], []
    for group in groups:
        begun, link = group.call(BEGIN, group.operands, link)
        held.append(begun)
    for group, begun in zip(groups, held, strict=True):
        made, link = group.call(FINISH, begun, link)
        results.append(made)
    return results, link


def _behind(link: jax.Array, results: Sequence[Sequence[jax.Array]]) -> jax.Array:
    """Return a link that waits for results too. It is 0, which XLA cannot know: it came out of a foreign function."""
    for result in itertools.chain.from_iterable(results):
        if result.size:
            link += link & (result.ravel()[0] != 0).astype(link.dtype)
    return link


class _Group:
    """Arrays that cross together.

    Args:
        memory: What the workers have in common.
        plan: What is done with them.
        sent: The arrays.
        before: What was before of those that are renewed, by number.
        whole: More arrays, which only pass through.

    Attributes:
        operands: All that the foreign function gets.
    """

    def __init__(
        self,
        memory: HostMemory,
        plan: Plan,
        sent: Sequence[jax.Array],
        before: Mapping[int, jax.Array],
        whole: Sequence[jax.Array],
    ) -> None:
        memory.add(plan)
        self._plan = plan
        self.operands = [*sent, *before.values(), *whole]
        self._results = [*_results(plan.parts, before, memory), *map(_like, whole)]
        # A sum may lie where its operand lay, and what is renewed where it was: pages that were touched before.
        self._in_place = {i: i for i, part in enumerate(plan.parts) if part.operation != "gather"}
        self._in_place.update({len(sent) + place: i for place, i in enumerate(before)})
        self._in_place.update({len(sent) + len(before) + i: len(sent) + i for i in range(len(whole))})

    def call(self, target: str, operands: Sequence[jax.Array], link: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        """Call a foreign function with the arrays; return what it makes of them, and the link.

        Args:
            target: Its name.
            operands: The arrays; as they came out of it, for one that finishes what another has begun.
            link: What the call before has handed on.
        """
        results, in_place = self._results, self._in_place
        if target == BEGIN:
            results, in_place = [*map(_like, operands)], {i: i for i in range(len(operands))}
        # Not marked as a side effect, for which JAX would leave its quick way of calling programs: the link orders
        # exchanges, and one whose results nobody needs is left out on all workers alike.
        call = jax.ffi.ffi_call(
            target, [*results, _like(link)], input_output_aliases={**in_place, len(operands): len(results)}
        )
        *made, link = call(*operands, link, site=np.int64(self._plan.signature))
        return made, link


def _results(
    parts: Sequence[PlanPart], before: Mapping[int, jax.Array], memory: HostMemory
) -> list[jax.ShapeDtypeStruct]:
    """Return what each array becomes. A sum that is scattered lies in its whole array."""
    results = []
    for i, part in enumerate(parts):
        shape = part.shape
        if i in before:
            shape = before[i].shape
        elif part.operation == "gather":
            shape = (memory.hosts.size, *shape)
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


def _like(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _through_memory(eqn: JaxprEqn) -> bool:
    """Whether memory has all that an equation asks for."""
    if eqn.primitive.name not in _OPERATIONS or parameters(eqn)["axis_index_groups"] is not None:
        return False
    names = {_dtype(atom).name for atom in eqn.invars}
    return _axes(eqn) == (AXIS,) and names <= _DTYPES


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
