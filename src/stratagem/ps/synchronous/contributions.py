"""Contributions of workers to a round, and the one change that a parameter server makes of them.

A worker sends the changes of one function as a *contribution*, which each server holds. When a round has as many as it
needs, the chief names those that count, to all servers alike, and each makes one change of them:

| change                          | of several contributions                                                          |
| ------------------------------- | --------------------------------------------------------------------------------- |
| gradients                       | their mean, by rows where these are known (`weigh`); the optimizer is applied once |
| `assign_add`                    | the sum; of what only the first replica changes (an optimizer's count), the first  |
| `assign`                        | as replicas would: the mean of floats, else the first                             |

So a round is never half applied, and a function that ran twice, because its worker was lost, counts once in it.
Contributions that the chief did not name are dropped, whenever they come.
"""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from stratagem.core.errors import UsageError
from stratagem.mesh.variable_policies import Policy, policy_of
from stratagem.ps.changes import Change, Operation, with_arrays
from stratagem.ps.client import Servers

_Key: TypeAlias = tuple[str, str, str | None]


def sets_together(variable: Any) -> str:
    """Return how values that several workers assign to a variable make one: "mean" or "first"."""
    return "mean" if policy_of(variable) is Policy.MEAN else "first"


def adds_together(variable: Any) -> str:
    """Return how summands of several workers make one: "sum" or "first"."""
    return "first" if variable.aggregation == "only_first_replica" else "sum"


@dataclass(slots=True)
class Contribution:
    """What one run of a function gives to a round.

    Args:
        round: Number of the round.
        name: Its name; no other contribution has it.
        weight: Weight of its gradients in their mean.
        changes: What it changes.
    """

    round: int
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    weight: float = 1.0
    changes: list[Change] = field(default_factory=list)

    def add(self, changes: Sequence[Change], weight: float) -> None:
        """Take in changes, to be given together when the function has ended.

        Args:
            changes: Gradients, and what is sent with them.
            weight: How many examples they are of, or 1.

        Raises:
            UsageError: A variable has been updated before.
        """
        updated = {each.parts[0].name for each in self.changes if each.op == "apply"}
        twice = [each.parts[0].name for each in changes if each.op == "apply" and each.parts[0].name in updated]
        if twice:
            raise UsageError(
                f"A scheduled function updates {twice[0].partition('#')[0]} twice, in the synchronous mode.",
                "The update is made after the function has ended, so the function would continue with old values.",
                "Schedule the function once for each step.",
            )
        self.changes += changes
        self.weight = weight

    def give(self, servers: Servers) -> str | None:
        """Send it to the servers; return its name, or None if there is nothing to give."""
        if not self.changes:
            return None
        servers.change(self.changes, {"round": self.round, "contribution": self.name, "weight": self.weight})
        return self.name


@dataclass(frozen=True, slots=True)
class _Given:
    """What one contribution does to one part."""

    operation: Operation
    weight: float
    ids: np.ndarray | None
    array: np.ndarray


_Done: TypeAlias = Mapping[_Key, _Given]
"""A contribution, as a server holds it: what it does to each part, all in all."""


class Contributions:
    """The contributions that a server holds in one term. Several threads may call any method at once.

    Args:
        change: Makes changes: operations and their arrays (`server.store`).
    """

    def __init__(self, change: Callable[[Sequence[Operation], Sequence[np.ndarray]], None]) -> None:
        self._change = change
        self._held: defaultdict[int, dict[str, _Done]] = defaultdict(dict)
        """Contributions by round and name."""
        self._applied = 0
        """The last round that was applied."""
        self._lock = threading.Lock()

    def hold(
        self, round: int, name: str, weight: float, operations: Sequence[Operation], arrays: Sequence[np.ndarray]
    ) -> None:
        """Hold a contribution until its round is applied; drop it if that has already happened.

        Args:
            round: The round it is for.
            name: Its name, by which the chief refers to it.
            weight: Weight of its gradients in their mean.
            operations: Its operations, each with `together`.
            arrays: Their arrays.
        """
        done = _done(float(weight), operations, arrays)
        with self._lock:
            if round > self._applied:
                self._held[round][name] = done

    def apply(self, round: int, names: Sequence[str]) -> None:
        """Make one change of contributions; drop all others to this round and earlier ones. A second call does nothing.

        Args:
            round: Number of the round.
            names: The contributions that count, in the order in which they are summed.
        """
        with self._lock:  # also while it is applied: a second request waits for the first
            if round <= self._applied:
                return
            held = self._held[round]
            self._applied = round
            for past in [number for number in self._held if number <= round]:
                del self._held[past]
            self._change(*combined([held[name] for name in names if name in held]))


def _done(weight: float, operations: Sequence[Operation], arrays: Sequence[np.ndarray]) -> _Done:
    done: dict[_Key, _Given] = {}
    for operation, ids, array in with_arrays(operations, arrays):
        key = operation["op"], operation["name"], operation.get("optimizer")
        before = done.get(key)
        total = array if before is None or operation["op"] != "add" else before.array + array
        done[key] = _Given(operation, weight, ids, total)
    return done


def combined(contributions: Sequence[_Done]) -> tuple[list[Operation], list[np.ndarray]]:
    """Return one operation, and its arrays, for each that the contributions have."""
    groups: defaultdict[_Key, list[_Given]] = defaultdict(list)
    for done in contributions:
        for key, given in done.items():
            groups[key].append(given)
    operations: list[Operation] = []
    arrays: list[np.ndarray] = []
    for group in groups.values():
        operation = {**group[0].operation, "seen": _seen_by_all(group)}
        ids, array = _ONE_OF[operation.get("together", "mean")](group)
        operations.append({**operation, "in_rows": ids is not None})
        arrays += [array] if ids is None else [ids, array]
    return operations, arrays


def _seen_by_all(group: Sequence[_Given]) -> int | None:
    """Return the version of a part that the oldest gradient was computed with; None unless all tell theirs."""
    versions = [given.operation["seen"] for given in group if given.operation.get("seen") is not None]
    return min(versions) if len(versions) == len(group) else None


def _mean(group: Sequence[_Given]) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the mean; of gradients that all are of some rows, those rows that any has, each once."""
    ids, shape = None, next((given.array.shape for given in group if given.ids is None), None)
    if shape is None:
        ids = np.unique(np.concatenate([given.ids for given in group if given.ids is not None]))
        shape = (len(ids), *group[0].array.shape[1:])
    total = np.zeros(shape, np.promote_types(group[0].array.dtype, np.float32))
    weights = sum(given.weight for given in group)
    for given in group:
        part = given.array.astype(total.dtype, copy=False) * total.dtype.type(given.weight / weights)
        if given.ids is None:
            total += part
        else:  # the rows of one gradient are different ones
            total[given.ids if ids is None else np.searchsorted(ids, given.ids)] += part
    return ids, total


_ONE_OF: Final[Mapping[str, Callable[[Sequence[_Given]], tuple[np.ndarray | None, np.ndarray]]]] = {
    "sum": lambda group: (None, sum((given.array for given in group[1:]), start=group[0].array)),
    "mean": _mean,
    "first": lambda group: (None, group[0].array),
}
