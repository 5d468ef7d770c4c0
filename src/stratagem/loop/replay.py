"""Derivatives of operations that ran one by one: they run again as a function, which JAX differentiates.

A loop takes the same operations at each step. The second time that the same ones are differentiated they are compiled,
so that a step costs little more than its own operations. A derivative that is taken once is never compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from stratagem.program.compat import needed_part
from stratagem.program.guards import is_hashable
from stratagem.program.lru import LastUsed
from stratagem.program.options import jitted, options_for
from stratagem.program.rules.cpu import suited_to_cpu

_MOST_PROGRAMS: Final = 128
"""Number of sequences of operations that are remembered."""

_MOST_LINKS: Final = 1024
"""Number of operations that are remembered. Not more: one that is made anew at each step may hold its arrays."""

Links = tuple[tuple[int, ...], ...]
"""For each result of an operation, the places of the operands that it has a derivative by."""


class Operation(NamedTuple):
    """An operation that ran.

    Args:
        function: Computes it again: a function of its operands that returns a list of its results.
        what: Equal for operations that compute the same; None where that cannot be told.
        operands: Those it had, as values.
        numbers: What the operands are known by; None for what derivatives do not depend on.
        results: What its results are known by; None for those that cannot be differentiated.
    """

    function: Callable[..., Sequence[Any]]
    what: tuple[Any, ...] | None
    operands: Sequence[Any]
    numbers: Sequence[int | None]
    results: Sequence[int | None]

    def key(self) -> Hashable:
        """Return a key that is equal for operations that compute the same on such operands; None if unknown."""
        if self.what is None:
            return None
        return self.what, tuple([(jnp.shape(each), jnp.result_type(each)) for each in self.operands])


class Replay:
    """The operations through which some arrays depend on others.

    Args:
        operations: All that ran, in order.
        targets: The numbers of what is differentiated.
        sources: The numbers of what it is differentiated by.
    """

    def __init__(self, operations: Sequence[Operation], targets: Sequence[int | None], sources: Sequence[int]) -> None:
        self._operations, self._needed = _between(operations, sources, targets)
        self._targets = [number if number in self._needed else None for number in targets]
        self.sources = [number for number in sources if number in self._needed]
        """Those that some target depends on."""

    def gradients(self, values: Sequence[Any], sources: Mapping[int, Any], weights: Sequence[Any]) -> dict[int, Any]:
        """Return the derivative of the weighted targets by each source.

        Args:
            values: Those of the targets.
            sources: Those of the sources.
            weights: One for each target, of its shape.
        """
        # The sum of this zero and any number is that number, also where it is another zero.
        changes = [-jnp.zeros_like(sources[number]) for number in self.sources]
        operands = [operation.operands for operation in self._operations]
        found = self._program()(changes, operands, list(values), list(weights))
        return dict(zip(self.sources, found, strict=True))

    def _program(self) -> Callable[..., list[Any]]:
        """Return a function for the derivatives, compiled if the same operations were differentiated before."""
        signature = self._signature()
        if signature is None:
            return self._compute
        program = _programs.get(signature)
        if program is None and signature not in _seen:
            _seen.keep(signature, True)
            return self._compute
        if program is None:
            bare = copy.copy(self)  # a compiled program must not keep the operands
            bare._operations = [operation._replace(operands=()) for operation in self._operations]
            compute = suited_to_cpu(bare._compute) if jax.default_backend() == "cpu" else bare._compute
            program = jitted(compute, options_for(None))
        return _programs.keep(signature, program)

    def _compute(
        self, changes: Sequence[Any], operands: Sequence[Sequence[Any]], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[Any]:
        """Compute the derivatives, given the changes of the sources (all zero) and all arrays beside."""

        def forward(changes: Sequence[Any]) -> list[Any]:
            change = dict(zip(self.sources, changes, strict=True))
            known: dict[int | None, Any] = {}

            def changed(number: int | None, value: Any) -> Any:
                return value + change[number] if number in change else value

            def value_of(number: int | None, value: Any) -> Any:
                # A variable that was assigned has one number and several values: the operation's own counts.
                return known[number] if number in known else changed(number, value)

            for operation, own in zip(self._operations, operands, strict=True):
                results = operation.function(*map(value_of, operation.numbers, own))
                for number, result in zip(operation.results, results, strict=True):
                    if number in self._needed:
                        known[number] = changed(number, result)
            targets = zip(self._targets, values, strict=True)
            return [value_of(number, value) for number, value in targets if number is not None]

        chosen = [weight for number, weight in zip(self._targets, weights, strict=True) if number is not None]
        (found,) = jax.vjp(forward, list(changes))[1](chosen)
        return list(found)

    def _signature(self) -> Hashable | None:
        """Return a key that is equal for the same operations in the same order on the same arrays."""
        places: dict[int | None, int] = {None: -1}

        def renumbered(numbers: Sequence[int | None]) -> tuple[int, ...]:
            return tuple([places.setdefault(number, len(places)) for number in numbers])

        steps = []
        for operation in self._operations:
            needed = [number if number in self._needed else None for number in operation.results]
            steps.append((operation.key(), renumbered(operation.numbers), renumbered(needed)))
        signature = tuple(steps), renumbered(self._targets), renumbered(self.sources)
        is_known = all(operation.what is not None for operation in self._operations)
        return signature if is_known and is_hashable(signature) else None


_seen: Final[LastUsed[bool]] = LastUsed(_MOST_PROGRAMS)
_programs: Final[LastUsed[Any]] = LastUsed(_MOST_PROGRAMS)
_links_of: Final[LastUsed[Links]] = LastUsed(_MOST_LINKS)


def _between(
    operations: Sequence[Operation], sources: Sequence[int], targets: Sequence[int | None]
) -> tuple[list[Operation], set[int]]:
    """Return the operations through which targets depend on sources, and the numbers of all arrays on the way."""
    reached = set(sources)
    dependent = []
    for operation in operations:
        if not reached.isdisjoint(operation.numbers):
            links = _links(operation)
            made = [
                number
                for number, link in zip(operation.results, links, strict=True)
                if number is not None and any(operation.numbers[i] in reached for i in link)
            ]
            if made:
                dependent.append((operation, links))
                reached.update(made)
    needed, useful = reached.intersection(targets), []
    for operation, links in reversed(dependent):
        used = {i for number, link in zip(operation.results, links, strict=True) if number in needed for i in link}
        if used:
            useful.append(operation)
            needed |= reached.intersection(operation.numbers[i] for i in used)
    return useful[::-1], needed


def _links(operation: Operation) -> Links:
    """Return for each result the places of the operands that it has a derivative by: `floor` has none."""
    key = operation.key()
    if key is None or not is_hashable(key):
        return (tuple(range(len(operation.operands))),) * len(operation.results)
    known = _links_of.get(key)
    return _links_of.keep(key, _links_by_tracing(operation) if known is None else known)


def _links_by_tracing(operation: Operation) -> Links:
    """Trace how small changes of the operands change the results, and see which changes each result needs."""
    shapes = [jax.ShapeDtypeStruct(jnp.shape(each), jnp.result_type(each)) for each in operation.operands]
    places = [i for i, shape in enumerate(shapes) if jnp.issubdtype(shape.dtype, jnp.inexact)]

    def changes_of_results(operands: Sequence[Any], changes: Sequence[Any]) -> list[Any]:
        def function(*changing: Any) -> list[Any]:
            given = list(operands)
            for place, value in zip(places, changing, strict=True):
                given[place] = value
            return list(operation.function(*given))

        return list(jax.jvp(function, [operands[place] for place in places], changes)[1])

    program = jax.make_jaxpr(changes_of_results)(shapes, [shapes[place] for place in places]).jaxpr
    links = []
    for i in range(len(operation.results)):
        _, used = needed_part(program, [i == j for j in range(len(operation.results))])
        changes = used[len(used) - len(places) :]
        links.append(tuple([place for place, is_used in zip(places, changes, strict=True) if is_used]))
    return tuple(links)
