"""The state of the coordinator of elastic training, as a value."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stratagem.core.errors import PeerError, name_some
from stratagem.elastic.limits import Limits
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.ranks import next_members
from stratagem.elastic.world import Member, World


class Phase(enum.StrEnum):
    """Where the run stands."""

    GATHERING = "gathering"
    """The first world waits for its members."""

    FORMING = "forming"
    """The members of a world set up its exchange, and take the state."""

    RUNNING = "running"
    """The members of the world train."""

    STOPPING = "stopping"
    """The members of the world stop, each tells the last step that it has completed."""

    WAITING = "waiting"
    """There are fewer members than `min_workers`; they hold their state."""

    ENDING = "ending"
    """All are told to end."""

    ENDED = "ended"
    """Nobody is left."""


@dataclass(frozen=True)
class Rules:
    """What does not change during a run.

    Args:
        wanted: How many workers it was started with.
        options: How far that number may change.
        limits: How long each wait may take.
        is_given: Whether the command line names the options, so that programs cannot ask for others.
    """

    wanted: int
    options: ElasticOptions = field(default_factory=ElasticOptions)
    limits: Limits = field(default_factory=Limits)
    is_given: bool = False

    def __post_init__(self) -> None:
        self.options.check(self.wanted)

    def with_options(self, asked: ElasticOptions) -> Rules:
        """Return the rules of a run whose program asks for some options.

        Args:
            asked: What it asks for.

        Raises:
            InputError: The number at the start is not among those.
            PeerError: The command line says other numbers.
        """
        numbers = (asked.min_workers, asked.largest(self.wanted))
        if self.is_given and numbers != (self.options.min_workers, self.most):
            least, most = numbers
            raise PeerError(
                f"The program asks for {least} to {most} workers (elastic=), and the launcher was given --elastic "
                f"{self.options.min_workers}:{self.most}.",
                "One of them would be ignored.",
                f"Start it with --elastic {least}:{most}, or leave one of the two out.",
            )
        return replace(self, options=asked)

    @property
    def most(self) -> int:
        """The largest number of workers."""
        return self.options.largest(self.wanted)


@dataclass(frozen=True)
class Place:
    """What the coordinator knows of one member.

    Args:
        member: The member.
        heard: When it said something last.
        step: How many steps it had completed then.
        is_busy: Whether it does what takes its time.
        held: After how many steps the state is that it is known to hold; None while it holds none.
        begun: How many steps it has begun, once it has told so for a planned change.
        has_answered: Whether it has done what the phase waits for: has stopped, or has formed the world.
        leaves_by: When it will be gone; None where it stays.
        prepares: Whether it has been told to run its program up to training.
        is_prepared: Whether it has done so.
        cut_since: Since when it has stopped without being told to, as it lost another; None where it has not.
    """

    member: Member
    heard: float
    step: int = 0
    is_busy: bool = False
    held: int | None = None
    begun: int | None = None
    has_answered: bool = False
    leaves_by: float | None = None
    prepares: bool = False
    is_prepared: bool = False
    cut_since: float | None = None


@dataclass(frozen=True)
class EndAfterSaving:
    """End of a run behind one more step, after which its members save.

    Args:
        code: The exit code.
        reason: Why, in words.
        by: When it ends, also if they have not saved.
    """

    code: int
    reason: str
    by: float


@dataclass(frozen=True)
class State:
    """Where a run stands.

    Args:
        rules: What does not change.
        phase: The phase.
        since: When it began.
        places: All members by number, in the order in which they have joined.
        world: The world that runs, forms or stops, or was the last one; None before the first.
        finished: The numbers of those whose programs have come to their end in this world.
        is_cut: In a stop: whether what is in flight is given up.
        last: In a planned stop: the last step, once all have told which they have begun.
        causes: Why the world changes, in words.
        changing_since: When training stopped for the change.
        is_faulty: Whether the change was caused by a fault while the world trained.
        faulty_step: How many steps were completed when the world began that runs, or ran last.
        faults: How many worlds in a row, in which no step was completed after these, a fault has ended.
        short_since: Since when there are too few workers.
        prepared: When somebody was prepared last.
        finish_by: When those must have finished whose world has lost a member after others had finished.
        is_closed: Whether nobody comes in any more. Then there may be any number of workers.
        ends_after_saving: How the run ends, once it is known that it ends behind one more step.
        code: The exit code, once the run ends.
        reason: Why the run ends.
    """

    rules: Rules
    phase: Phase = Phase.GATHERING
    since: float = 0.0
    places: Mapping[int, Place] = field(default_factory=dict)
    world: World | None = None
    finished: frozenset[int] = frozenset()
    is_cut: bool = False
    last: int | None = None
    causes: tuple[str, ...] = ()
    changing_since: float = 0.0
    is_faulty: bool = False
    faulty_step: int | None = None
    faults: int = 0
    short_since: float | None = None
    prepared: float = 0.0
    finish_by: float | None = None
    is_closed: bool = False
    ends_after_saving: EndAfterSaving | None = None
    code: int | None = None
    reason: str = ""

    @property
    def present(self) -> list[Place]:
        """Those members of the world that still live, in the order of ranks."""
        world = () if self.world is None else self.world.numbers
        return [self.places[number] for number in world if number in self.places]

    @property
    def leaving(self) -> list[Place]:
        """Those of them who leave on purpose."""
        return [place for place in self.present if place.leaves_by is not None]

    @property
    def at_work(self) -> list[Place]:
        """Those of them whose programs have not come to their end."""
        return [place for place in self.present if place.member.number not in self.finished]

    def is_forming(self, now: float) -> bool:
        """Whether a world forms, or compiles its first step: its members need their cores.

        Args:
            now: When.
        """
        if self.phase is not Phase.RUNNING or self.world is None:
            return self.phase in (Phase.STOPPING, Phase.FORMING)
        has_stepped = any(place.step > self.world.step for place in self.present)
        return not has_stepped and now < self.since + self.rules.limits.first_step

    @property
    def least(self) -> int:
        """With fewer members no world is formed."""
        return 1 if self.is_closed or self.ends_after_saving is not None else self.rules.options.min_workers

    def has_enough_without(self, leaving: Sequence[Place]) -> bool:
        """Whether a world can be formed without some members.

        Args:
            leaving: Those members.
        """
        return len(self._followers(numbers_of(leaving), self.ready)) >= self.least

    def cannot_spare_all_who_leave(self, newcomers: Sequence[Member]) -> bool:
        """Whether all who hold the state leave, and nobody can take it from one of them in a world with it.

        Args:
            newcomers: Those who may take it.
        """
        leaving = self.leaving
        if not leaving or len(leaving) < len(self.present):
            return False
        taking = set(self._followers(numbers_of(leaving[1:]), newcomers)) - {place.member for place in leaving}
        return not taking or len(self._followers(numbers_of(leaving), newcomers)) < self.least

    @property
    def has_begun(self) -> bool:
        """Whether a world has been formed, so that there is a state which newcomers take."""
        return self.faulty_step is not None

    @property
    def waiting(self) -> list[Member]:
        """Members in no world that do not leave."""
        world = () if self.world is None else self.world.numbers
        return [
            place.member for number, place in self.places.items() if number not in world and place.leaves_by is None
        ]

    @property
    def ready(self) -> list[Member]:
        """Those of them for whom nobody would have to wait."""
        return [member for member in self.waiting if self.places[member.number].is_prepared or not self.has_begun]

    def successors(self, leaving: Collection[int] = ()) -> tuple[Member, ...]:
        """Return who would be in the next world if it were formed now.

        Those who are not prepared are in it only if there would be too few without them.

        Args:
            leaving: The numbers of those who are not to be in it, besides the lost.
        """
        ready = self._followers(leaving, self.ready)
        return ready if len(ready) >= self.least else self._followers(leaving, self.waiting)

    def _followers(self, leaving: Collection[int], newcomers: Sequence[Member]) -> tuple[Member, ...]:
        assert self.world is not None, "there is no world to follow"
        gone = {number for number in self.world.numbers if number not in self.places or number in leaving}
        return next_members(self.world.members, gone, newcomers, self.rules.wanted, self.rules.most)

    def name(self, member: Member) -> str:
        """Return how a line names a member: by its rank, where it has one."""
        if self.world is not None and member.number in self.world.numbers:
            return f"worker {self.world.rank_of(member.number)} (host {member.host}, pid {member.pid})"
        kind = "spare" if member.is_spare else "member"
        return f"{kind} {member.number} (host {member.host}, pid {member.pid})"


def numbers_of(places: Sequence[Place]) -> tuple[int, ...]:
    """Return the numbers of members, in their order."""
    return tuple(place.member.number for place in places)


def name_places(state: State, places: list[Place]) -> str:
    """Return the names of members for a line.

    Args:
        state: The state in which they are named.
        places: The members.
    """
    return name_some([state.name(place.member) for place in places], most=4)
