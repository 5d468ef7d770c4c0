"""Dividing of variables while a program makes them, or reads their values from a file: in groups, as they come.

Keras makes each value whole. Where it will rest in shards it is divided before many others have been made, so that a
process holds its shards, one group of wholes and the variable at hand, never a whole model. The chief's values count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

import jax
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from stratagem.mesh.lending import resting
from stratagem.mesh.placing import Agreeing, divided
from stratagem.mesh.shards import Sharding, resting_spec
from stratagem.program.compat import innermost_scope, stored_value

GROUP_BYTES: Final = 16 << 20
"""Bytes of wholes that are divided together, as many as a step puts together at once. With smaller groups workers would
meet more often; with 64 MB the whole of a group would be as large as the shards of a model of 30 million weights."""


class Division:
    """The variables that have been given wholes and will rest in shards.

    All workers note the same variables in the same order; they compare what they have before they divide it.

    Args:
        strategy: Whose replicas keep the shards.
        sharding: Which variables those are.
        place: What the program does meanwhile, for messages.
    """

    def __init__(self, strategy: Agreeing, sharding: Sharding, place: str) -> None:
        self._strategy = strategy
        self._sharding = sharding
        self._place = place
        self._noted: dict[int, tuple[Any, PartitionSpec | None]] = {}
        self._bytes = 0
        self._groups = 0

    def make_room(self) -> None:
        """Divide a full group. To be called before a variable is made or assigned; the one before has all it needs."""
        if self._bytes >= GROUP_BYTES:
            self._divide()

    def note_made(self, variable: Any) -> None:
        """Note a variable that was made, with its first value.

        Args:
            variable: It. Those that are no weights are left alone.
        """
        if self._sharding.spec_of_weight(variable) != PartitionSpec():
            self._note(variable, None)

    def note_assigned(self, variable: Any, before: Any) -> None:
        """Note a variable that was given another value.

        Args:
            variable: It. Those that rest whole are left alone.
            before: Its value before, which may be in shards.
        """
        spec = resting_spec(variable)
        spec = _spec_in(before, variable.shape) if spec == PartitionSpec() else spec
        if spec != PartitionSpec() and not self._strategy.mesh.rests(stored_value(variable), spec):
            self._note(variable, spec)

    def end(self) -> None:
        """Divide what is left. Where nothing was noted, nobody is asked."""
        if self._noted or self._groups:
            self._divide(ends=True)

    def _note(self, variable: Any, spec: PartitionSpec | None) -> None:
        value = stored_value(variable)
        if id(variable) in self._noted or not isinstance(value, jax.Array) or isinstance(value, Tracer):
            return
        if value.is_fully_addressable and resting([variable], [value])[0] is value:  # not lent to this worker alone
            self._noted[id(variable)] = variable, spec
            self._bytes += value.nbytes

    def _divide(self, *, ends: bool = False) -> None:
        noted, self._noted, self._bytes = list(self._noted.values()), {}, 0
        self._groups += 1
        self._sharding.mark_weights([variable for variable, spec in noted if spec is None])
        specs = [(variable, resting_spec(variable) if spec is None else spec) for variable, spec in noted]
        mesh = self._strategy.mesh
        chosen = [
            (variable, value, spec)
            for variable, spec in specs
            if spec != PartitionSpec() and not mesh.rests(value := stored_value(variable), spec)
        ]
        facts: dict[str, str | int] = {
            f"variable {i} {variable.path}": f"{value.dtype}{list(value.shape)}"
            for i, (variable, value, _) in enumerate(chosen)
        }
        self._strategy.check_agreement(self._place, {"group": self._groups, "is the last": str(ends), **facts})
        values = divided(mesh, [value for _, value, _ in chosen], [spec for *_, spec in chosen])
        with whole():
            for (variable, _, _), value in zip(chosen, values, strict=True):
                variable.assign(value)


_open: Final[ContextVar[Division | None]] = ContextVar("division", default=None)


def current_division() -> Division | None:
    """Return what divides variables that are made or assigned now; None where they stay whole."""
    return _open.get() if innermost_scope() is None else None


@contextlib.contextmanager
def dividing(strategy: Agreeing, sharding: Sharding | None, place: str) -> Iterator[None]:
    """Divide variables that are made or assigned in this context, in groups, where weights rest in shards.

    All workers enter and leave it at the same point. Inside another such context it does nothing; where it ends with an
    exception, what is left stays whole.

    Args:
        strategy: Whose replicas keep the shards.
        sharding: What the strategy keeps in shards; None for nothing.
        place: What the program does meanwhile, for messages.

    Raises:
        PeerError: Workers make or assign different variables, or one did not come.
    """
    if sharding is None or not sharding.divides_weights or _open.get() is not None or innermost_scope() is not None:
        yield
        return
    division = Division(strategy, sharding, place)
    token = _open.set(division)
    try:
        yield
    finally:
        _open.reset(token)
    division.end()


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Let variables that are made or assigned in this context stay whole: those of an optimizer, say."""
    token = _open.set(None)
    try:
        yield
    finally:
        _open.reset(token)


def _spec_in(value: Any, shape: Any) -> PartitionSpec:
    """Return how a value is divided; as one that is whole where it has a part for each replica."""
    if not isinstance(value, jax.Array) or value.shape != tuple(shape):
        return PartitionSpec()
    return value.sharding.spec if isinstance(value.sharding, NamedSharding) else PartitionSpec()
