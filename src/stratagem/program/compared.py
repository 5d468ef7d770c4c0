"""Comparison of the programs of workers: before one that all run together runs for the first time."""

from __future__ import annotations

import functools
import operator
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from stratagem.cluster.agreement import Peers
from stratagem.cluster.bootstrap import current_peers
from stratagem.core.errors import PeerError
from stratagem.mesh.mesh import Tree
from stratagem.program.fingerprint import Fingerprint, fingerprint
from stratagem.program.tracing import current_tracing

_LONGEST: Final = 300
"""Characters of an equation that an error shows."""


_ADVICE: Final = (
    "A gradient, a metric or a weight would be a mixture of what the workers compute.",
    "Look for a constant, a branch or an array in the code of the step that depends on the worker. Give values that "
    "differ between workers on purpose as an argument: a batch of strategy.distribute_datasets_from_function, or a "
    "value of strategy.experimental_distribute_values_from_function.",
)


class Traceable(Protocol):
    """A compiled program, as `jax.jit` returns it."""

    trace: Any

    def __call__(self, *args: Any) -> Any: ...


class ComparedProgram:
    """A compiled program that all workers compare before its first run; later runs cost nothing.

    Args:
        name: What its user calls it.
        program: The program.
    """

    def __init__(self, name: str, program: Traceable) -> None:
        self._name = name
        self._program = program
        self._runs: _Runs | None = None
        self.trace = program.trace
        lower = getattr(program, "lower", None)
        if lower is not None:
            self.lower = functools.partial(self._lowered, lower)

    def __call__(self, *args: Tree) -> Tree:
        if current_tracing() is None:  # a part of a program is compared with the whole
            if self._runs is None:
                self._compare(*args)
            else:
                self._runs.number += 1
        return self._program(*args)

    def _lowered(self, lower: Callable[..., Any], *args: Tree) -> Any:
        """Lower it as `jax.jit` does: who asks for that compiles it, and is about to run it."""
        self._compare(*args)
        return lower(*args)

    def _compare(self, *args: Tree) -> None:
        """Make sure that all workers are about to run the same program.

        Args:
            args: Those of its first run, or their shapes.

        Raises:
            PeerError: They are not; the message shows the first equation that differs.
        """
        peers = current_peers()
        own = fingerprint(self._program.trace(*args).jaxpr)
        if peers is None or not own.crosses:
            self._runs = _Runs()  # nobody else need come
            return
        runs = _runs.setdefault(peers, _Runs())
        runs.number += 1
        compare(peers, runs, self._name, own)
        self._runs = runs


@dataclass
class _Runs:
    """The programs that the workers of a cluster have run together.

    Args:
        number: How many runs there were; all workers count the same, as none can run such a program alone.
        agreed: Digests of the programs that were found equal.
    """

    number: int = 0
    agreed: set[str] = field(default_factory=set)


_runs: weakref.WeakKeyDictionary[Peers, _Runs] = weakref.WeakKeyDictionary()


def compare(peers: Peers, runs: _Runs, name: str, own: Fingerprint) -> None:
    """Compare a program with those that the other workers are about to run.

    A worker that has run the same program before tells the others, and waits for nobody: another worker may have kept
    its own, and does not come.

    Args:
        peers: The workers.
        runs: Their runs so far, this one among them.
        name: What the user of the program calls it.
        own: The program.

    Raises:
        PeerError: Another worker is about to run another one, or did not come.
    """
    is_known = own.digest in runs.agreed
    if is_known:
        _post_equations(peers, own)  # it does not come back when another worker finds a difference
    told = peers.distinct(f"program of run {runs.number}", [own.digest, is_known], waits=not is_known)
    digests = sorted({digest for digest, _ in told})
    if len(digests) > 1:
        _post_equations(peers, own)
        common = functools.reduce(operator.and_, (_equations(peers, digest) for digest in digests))
        what = f"the first equation of {name} that differs"
        found = {what: _first_beyond(own, common)}
        if any(known for _, known in told):  # who knows its program has gone on
            raise PeerError(f"The tasks run different programs. On {peers.own}, {what} is {found[what]!r}.", *_ADVICE)
        peers.agree("the program of a step", found, consequence=_ADVICE[0], remedy=_ADVICE[1])
    runs.agreed.add(own.digest)


def _post_equations(peers: Peers, own: Fingerprint) -> None:
    """Leave the digests of a program's equations, of which large networks have thousands, for who looks for one."""
    peers.post(f"equations of {own.digest}", [line.digest for line in own.lines])


def _equations(peers: Peers, digest: str) -> Counter[str]:
    """Return the digests of the equations of a program that some worker is about to run."""
    try:
        return Counter(peers.wait_for(f"equations of {digest}"))
    except TimeoutError:
        found = f"The tasks run different programs, and {peers.own} could not get the program of another task."
        raise PeerError(found, *_ADVICE) from None


def _first_beyond(own: Fingerprint, common: Counter[str]) -> str:
    """Return the first equation that some worker does not have."""
    left = common.copy()
    for line in own.lines:
        left[line.digest] -= 1
        if left[line.digest] < 0:
            text = str(line)
            return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "none: all that it computes is computed elsewhere too"
