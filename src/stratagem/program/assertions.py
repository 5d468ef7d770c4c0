"""Assertions on what a compiled program computes: noted on the host while it runs, raised when the step has ended.

The assertion is part of the program, wherever it stands: in a loop, in a branch, on one replica. It calls the host only
where it fails. Whoever runs programs does so under `Assertions.watched`, which then waits for the step and raises.
Where replicas meet in the step, the workers tell each other, so that all of them end alike.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/debugging
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from stratagem.core.errors import InputError
from stratagem.mesh.mesh import AXIS, ReplicaMesh
from stratagem.program.compile import compiled
from stratagem.program.python_values import line_of_the_program
from stratagem.program.tracing import current_tracing

Describe = Callable[[Sequence[Any], str], InputError]
"""Function of the values of an assertion that failed, and of where that was, that returns its error."""


class Assertions:
    """The assertions of one program, and of the programs that it calls."""

    def __init__(self) -> None:
        self._parts: list[Assertions] = []
        self._is_joint = False
        self._failed: list[tuple[int, InputError]] = []

    def watched(self, mesh: ReplicaMesh | None = None, *, is_joint: bool = False) -> _Watched:
        """Run a program in this context; at its end the first assertion that failed is raised.

        Inside another such context the outer one raises.

        Args:
            mesh: The replicas that run it; None where there are none.
            is_joint: Whether all workers run it together.

        Raises:
            InputError: An assertion does not hold, here or on another worker.
        """
        self._is_joint = self._is_joint or is_joint
        return _Watched(self, mesh)

    def add(self) -> None:
        """Note that the program has an assertion."""
        if self not in self._parts:
            self._parts.append(self)

    def note(self, replica: int, error: InputError) -> None:
        """Note that one failed; called while the program runs.

        Raises:
            InputError: Nobody would look at the note, as a function that another program has traced runs without it.
        """
        if not any(self in watching._parts for watching in _watching):
            raise error
        self._failed.append((replica, error))

    def _include(self, inner: Assertions) -> None:
        """Note that the program calls another one."""
        self._parts.extend(part for part in inner._parts if part not in self._parts)
        self._is_joint = self._is_joint or (inner._is_joint and bool(inner._parts))

    def _raise(self, mesh: ReplicaMesh | None) -> None:
        jax.effects_barrier()
        failed = [note for part in self._parts for note in part._failed]
        if mesh is not None and mesh.multi_process and self._is_joint:
            others = _told(mesh, [replica for replica, _ in failed])
            if others and not failed:
                raise InputError(
                    f"An assertion does not hold on replica {' and '.join(map(str, others))}, of another worker.",
                    "All workers run this step together, so all of them end it.",
                    "Read the error of that worker. It shows the values.",
                ).of_peer()
        if failed:
            raise min(failed, key=lambda note: note[0])[1]


class _Watched:
    """The context of `Assertions.watched`. A class, because a generator would cost twice as much, at each step."""

    __slots__ = ("_assertions", "_mesh", "_outer")

    def __init__(self, assertions: Assertions, mesh: ReplicaMesh | None) -> None:
        self._assertions = assertions
        self._mesh = mesh

    def __enter__(self) -> None:
        self._outer = _running.get()
        _running.set(self._assertions)
        _watching.append(self._assertions)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assertions, outer = self._assertions, self._outer
        try:
            if kind is None and outer is not None:
                outer._include(assertions)
            elif kind is None and assertions._parts and current_tracing() is None:
                assertions._raise(self._mesh)
        finally:
            _watching.remove(assertions)
            _running.set(outer)
            if outer is None:
                for part in assertions._parts:
                    part._failed.clear()


_running: ContextVar[Assertions | None] = ContextVar("the innermost program that runs or is traced", default=None)
_watching: list[Assertions] = []


def check(
    holds: Any,
    values: Sequence[Any],
    describe: Describe,
    replica: Any = 0,
    place: Callable[[int], str] | None = None,
    line: str | None = None,
) -> None:
    """Make an assertion part of the program that is being traced.

    Args:
        holds: Booleans of any shape, all of which must be true.
        values: What the error shows.
        describe: Makes the error, on the host.
        replica: The number of the replica.
        place: Function of that number that says which it is; None where there are no replicas.
        line: Which line of the program asks; None to find it.
    """
    tracing = current_tracing()
    if tracing is not None and tracing.again:
        return  # traced for a gradient; the first tracing has the assertion
    program = _running.get()
    if program is not None:
        program.add()
    if line is None:
        line = line_of_the_program((frame, number) for frame, number in traceback.walk_stack(inspect.currentframe()))

    def note(holds: Any, replica: Any, *values: Any) -> None:
        if np.all(holds):
            return  # `jax.vmap` makes both branches run
        number = int(np.min(replica))
        where = ("" if place is None else f" on {place(number)}") + line
        error = describe([np.asarray(value) for value in values], where)
        if program is None:
            raise error  # a function that JAX or Keras compiles by itself: JAX raises it with an error of its own
        program.note(number, error)

    # Only the host's call is in the branch: XLA need not wait for it where the assertion holds.
    everywhere = jnp.all(lax.stop_gradient(holds))
    operands = [everywhere, jnp.asarray(replica), *map(lax.stop_gradient, values)]
    lax.cond(everywhere, lambda *_: None, lambda *found: jax.debug.callback(note, *found), *operands)


_numbers_are_checked = False


def are_numbers_checked() -> bool:
    """Return whether programs that are compiled now check their numbers (`program.checked_numbers`)."""
    return _numbers_are_checked


def check_numbers(wanted: bool) -> None:
    """Let programs check their numbers from now on, or no more.

    Args:
        wanted: Whether they do.
    """
    global _numbers_are_checked
    _numbers_are_checked = wanted


def _told(mesh: ReplicaMesh, failed: Sequence[int]) -> list[int]:
    """Tell the other workers on which replicas an assertion has failed; return those of all."""
    flags = np.isin(np.asarray(mesh.local_replicas), np.asarray(failed, int))
    return np.flatnonzero(_telling(mesh, mesh.mesh)(mesh.shard_blocks(flags)).addressable_data(0)).tolist()


@functools.lru_cache(maxsize=32)
def _telling(mesh: ReplicaMesh, _: Mesh) -> Callable[[Any], jax.Array]:
    return compiled(
        mesh,
        lambda own: lax.all_gather(own.astype(jnp.int32), AXIS, tiled=True),
        (PartitionSpec(AXIS),),
        PartitionSpec(),
        name="assertions",
    )
