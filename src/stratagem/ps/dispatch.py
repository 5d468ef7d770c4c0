"""Dispatch of closures to workers: a pure state machine. Events in, instructions out; it touches nothing else.

A *closure* is one function to run once, known by a number. It is

| state      | meaning                                                         | leaves it by                       |
| ---------- | --------------------------------------------------------------- | ---------------------------------- |
| queued     | waits for a worker                                              | `Send`, `Abort`                    |
| in flight  | was sent to a worker, which has not ended or given it up        | `Finished`, `Failed`, `WorkerLost` |
|            |                                                                 | `GaveUp`                           |
| gone       | has run, failed or was aborted; the machine knows nothing of it |                                    |

A worker that is lost gives its closures back: they run again elsewhere, at least once in all. When a closure fails,
those that are queued are aborted and no other begins; the error is due once nothing is in flight any more. A worker
that has given up its closure is busy until that comes to its end, and nobody waits for it
(https://www.tensorflow.org/api_docs/python/tf/distribute/coordinator/ClusterCoordinator#schedule).

A bound on staleness (`ps.staleness`) or rounds (`ps.synchronous`) limit how far workers may run apart.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from stratagem.core.errors import UnavailableError
from stratagem.ps.staleness import Overlaps
from stratagem.ps.synchronous.rounds import Rounds

MOST_LOSSES: Final = 10
"""A closure that has lost so many workers is not sent again: it is probably what ends them."""

STORY_LENGTH: Final = 1000
"""How many events the machine remembers."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The user wants a closure to run."""

    closure: int


@dataclass(frozen=True, slots=True)
class WorkerUp:
    """A worker is ready: the first time, or again."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker is gone, and with it all it was doing."""

    worker: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A worker has run a closure, and given a contribution to its round, by this name, where it gave one."""

    worker: int
    closure: int
    contribution: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A closure raised an error on a worker."""

    worker: int
    closure: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class GaveUp:
    """A closure changes nothing any more, as another one failed; its worker is busy until it comes to its end."""

    worker: int
    closure: int


@dataclass(frozen=True, slots=True)
class Freed:
    """A worker has come to the end of a closure that it had given up."""

    worker: int
    closure: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The cluster can do no more in this term: a parameter server is lost."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Forsaken:
    """There have been too few workers for too long."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Begun:
    """Another term begins: no worker is up, nothing is under way, and what was broken is whole."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The user has been told of the error."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The user waits until all is done: the open round gets no more closures."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All parameter servers have applied a round."""


Event: TypeAlias = (
    Scheduled | WorkerUp | WorkerLost | Finished | Failed | GaveUp | Freed | Broken | Forsaken | Begun | Raised
    | Awaited | Committed
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Send:
    """Send a closure to a worker."""

    worker: int
    closure: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Tell whoever waits for a closure that it will not run."""

    closure: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Let all parameter servers apply a round: these contributions, and no others."""

    round: int
    contributions: tuple[str, ...]


Instruction: TypeAlias = Send | Abort | Commit


class DispatchError(AssertionError):
    """An event that cannot be, or a state that must not: a fault of Stratagem's. The message has the story."""


class Dispatch:
    """The state machine.

    Args:
        max_staleness: How many others may overlap a closure; None for any number.
        rounds: The rounds of the synchronous mode; None without.
        least: With fewer workers no closure begins.

    Example:
        >>> dispatch = Dispatch()
        >>> dispatch.handle(WorkerUp(0)), dispatch.handle(Scheduled(7)), dispatch.handle(Scheduled(8))
        ([], [Send(worker=0, closure=7)], [])
        >>> dispatch.handle(WorkerLost(0)), dispatch.handle(WorkerUp(1))
        ([], [Send(worker=1, closure=7)])
    """

    def __init__(self, max_staleness: int | None = None, rounds: Rounds | None = None, least: int = 1) -> None:
        self.least = least
        self.overlaps = Overlaps(max_staleness)
        self.rounds = rounds or Rounds()
        self.queued: deque[int] = deque()
        self.in_flight: dict[int, int | None] = {}
        """What each worker that is up runs; who was sent something last stands last."""
        self.given_up: set[int] = set()
        """Those of them that are gone."""
        self.error: BaseException | None = None
        """What the user is to be told once nothing is in flight."""
        self.broken = False
        """Whether the error stays until another term begins."""
        self.losses: Counter[int] = Counter()
        """How many workers each closure has lost, where it has lost some."""
        self.counts: Counter[str] = Counter()
        """How many closures were scheduled, finished, failed, aborted and retried; how many workers were lost; how
        many rounds were applied, and contributions dropped because they came too late."""
        self.story: deque[tuple[Event, list[Instruction]]] = deque(maxlen=STORY_LENGTH)
        """The last events, each with the instructions it led to. Replaying all of them leads to the same state."""

    @property
    def running(self) -> list[int]:
        """The closures in flight."""
        return [each for each in self.in_flight.values() if each is not None and each not in self.given_up]

    @property
    def has_enough_workers(self) -> bool:
        """Whether closures may begin, as far as the number of workers goes."""
        return len(self.in_flight) >= self.least

    @property
    def is_idle(self) -> bool:
        """Whether every closure has run, failed or was aborted, and every round is applied."""
        return not self.queued and not self.running and self.rounds.is_applied

    @property
    def due(self) -> BaseException | None:
        """The error that the user is to be told now: nothing is left running."""
        return self.error if not self.running and self.rounds.is_applied else None

    @property
    def waits_for_more(self) -> bool:
        """Whether the open round has contributions, and only further closures, or `Awaited`, will end it."""
        return not self.queued and self.rounds.is_short

    def handle(self, event: Event) -> list[Instruction]:
        """Take in what happened; return what to do.

        Raises:
            DispatchError: The event cannot be.
        """
        instructions = self._react(event)
        instructions += self._commit(awaited=isinstance(event, Awaited))
        instructions += self._send()
        self.story.append((event, instructions))
        return instructions

    def _react(self, event: Event) -> list[Instruction]:
        match event:
            case Scheduled(closure):
                self.counts["scheduled"] += 1
                if self.error is not None:
                    return self._abort([closure])
                self.queued.append(closure)
            case WorkerUp(worker):
                self._require(worker not in self.in_flight, event)
                self.in_flight[worker] = None
            case WorkerLost(worker):
                self._require(worker in self.in_flight, event)
                return self._give_back(worker)
            case Finished(worker, closure, contribution):
                self._require(closure not in self.given_up, event)
                self._end(worker, closure, event)
                self.counts["finished"] += 1
                self.overlaps.end(closure)
                self.counts["dropped"] += not self.rounds.take(closure, contribution)
            case Failed(worker, closure, error):
                self._require(closure not in self.given_up, event)
                self._end(worker, closure, event)
                self.counts["failed"] += 1
                self._leave(closure)
                return self._stop(error)
            case GaveUp(worker, closure):
                self._require(self.in_flight.get(worker) == closure and closure in self.running, event)
                self.given_up.add(closure)
                self._leave(closure)
                return self._abort([closure])
            case Freed(worker, closure):
                self._require(closure in self.given_up, event)
                self._end(worker, closure, event)
                self.given_up.remove(closure)
            case Broken(error):
                self.broken = True
                self.error = None  # it comes before an error of a closure, which may be its consequence
                self.rounds.give_up()
                return self._stop(error)
            case Forsaken(error):
                return self._stop(error)
            case Begun():
                under_way = self.running
                self.in_flight, self.given_up, self.error, self.broken = {}, set(), None, False
                for closure in under_way:
                    self._leave(closure)
                self.rounds.give_up()
                return self._abort([*under_way, *self._emptied()])
            case Raised():
                self._require(self.due is not None, event)
                if not self.broken:
                    self.error = None
            case Committed():
                self._require(self.rounds.is_committing, event)
                self.rounds.is_committing = False
                self.counts["rounds"] += 1
            case Awaited():
                pass
        return []

    def _end(self, worker: int, closure: int, event: Event) -> None:
        self._require(self.in_flight.get(worker) == closure, event)
        self.in_flight[worker] = None
        self.losses.pop(closure, None)

    def _leave(self, closure: int) -> None:
        """Take note that a closure is in flight no more, and has done nothing."""
        self.overlaps.end(closure)
        self.rounds.leave(closure)

    def _give_back(self, worker: int) -> list[Instruction]:
        """Queue again what a lost worker had, before all else; or give up."""
        closure = self.in_flight.pop(worker)
        self.counts["workers lost"] += 1
        if closure is None:
            return []
        if closure in self.given_up:
            self.given_up.remove(closure)
            return []
        self._leave(closure)
        if self.error is not None:
            return self._abort([closure])
        self.losses[closure] += 1
        self.queued.appendleft(closure)
        if self.losses[closure] >= MOST_LOSSES:
            return self._stop(_ended_its_workers(self.losses[closure]))
        self.counts["retried"] += 1
        return []

    def _stop(self, error: BaseException) -> list[Instruction]:
        """Keep the first error, and let nothing else begin."""
        if self.error is None:
            self.error = error
        return self._abort(self._emptied())

    def _emptied(self) -> deque[int]:
        queued, self.queued = self.queued, deque()
        return queued

    def _abort(self, closures: Iterable[int]) -> list[Instruction]:
        instructions: list[Instruction] = []
        for closure in closures:
            self.losses.pop(closure, None)
            self.counts["aborted"] += 1
            instructions.append(Abort(closure))
        return instructions

    def _commit(self, *, awaited: bool) -> list[Instruction]:
        """End the open round when it has enough contributions, or will get no more."""
        if self.rounds.is_committing:
            return []
        stopped = self.error is not None and not self.running
        if not (self.rounds.is_full or (self.waits_for_more and (awaited or stopped))):
            return []
        return [Commit(self.rounds.number, self.rounds.end())]

    def _may_begin(self) -> bool:
        return self.has_enough_workers and self.overlaps.admits and self.rounds.admits

    def _send(self) -> list[Instruction]:
        """Send what is queued to free workers; of several, to the one that was sent something longest ago."""
        instructions: list[Instruction] = []
        free = [worker for worker, closure in self.in_flight.items() if closure is None]
        while self.queued and self.error is None and free and self._may_begin():
            worker, closure = free.pop(0), self.queued.popleft()
            del self.in_flight[worker]
            self.in_flight[worker] = closure
            self.overlaps.begin(closure)
            self.rounds.begin(closure)
            instructions.append(Send(worker, closure))
        return instructions

    def validate(self) -> None:
        """Make sure that the state is one that can be.

        Raises:
            DispatchError: It is not.
        """
        known = [*self.queued, *self.running]
        free = None in self.in_flight.values()
        rules = {
            "a closure is in one place": len(known) == len(set(known)),
            "nothing waits while a worker is free": not (self.queued and free and self._may_begin()),
            "no closure overlaps more than it may": self.overlaps.holds(self.running),
            "rounds are of closures in flight": self.rounds.holds(self.running),
            "after an error nothing is queued": self.error is None or not self.queued,
            "losses are of closures that are known": set(self.losses) <= set(known),
            "what is given up has a worker": self.given_up <= set(self.in_flight.values()),
            "what is broken has an error": not self.broken or self.error is not None,
            "nothing is lost": self.counts["scheduled"]
            == len(known) + self.counts["finished"] + self.counts["failed"] + self.counts["aborted"],
        }
        for rule, holds in rules.items():
            if not holds:
                raise DispatchError(f"It does not hold that {rule}.\n{self.told()}")

    def told(self, number: int = 20) -> str:
        """Return the last events and what was done about them, a line each."""
        lines = [f"  {event} -> {instructions}" for event, instructions in list(self.story)[-number:]]
        state = f"  now: queued {list(self.queued)[:20]}, in flight {self.in_flight}, error {self.error!r}"
        return "\n".join(["What happened:", *lines, state])

    def _require(self, holds: bool, event: Event) -> None:
        if not holds:
            raise DispatchError(f"{event} cannot be.\n{self.told()}")


def _ended_its_workers(losses: int) -> UnavailableError:
    return UnavailableError(
        f"A scheduled function was sent to {losses} workers, and each of them was lost while it ran the function.",
        "The function may have ended them, and would end the next worker too.",
        "Look at the end of the workers' output. Did they run out of memory, or crash in native code?",
    )
