"""Events that the coordinator hears, and actions that it does: the two sides of the protocol, as values."""

from __future__ import annotations

from dataclasses import dataclass

from stratagem.elastic.world import Member, World

# What the coordinator hears ------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """A process has joined."""

    member: Member


@dataclass(frozen=True)
class Lost:
    """A member is gone, or is as good as gone: it died, is frozen, or its connection is lost.

    Args:
        number: The member.
        how: What happened to it, in words that follow its name: "was ended by SIGKILL".
        has_exited: Whether its process is known to have ended. If not, it is killed.
    """

    number: int
    how: str
    has_exited: bool = False


@dataclass(frozen=True)
class Beat:
    """A member lives.

    Args:
        number: The member.
        step: How many steps it has completed.
        is_busy: Whether it does what takes its time: compiles, evaluates, or builds its model.
    """

    number: int
    step: int
    is_busy: bool = False


@dataclass(frozen=True)
class Prepared:
    """A member in no world has run its program as far as it can without the others: it waits to be taken in."""

    number: int


@dataclass(frozen=True)
class Begun:
    """A member tells how many steps it has begun, and begins no other until it has heard which one is the last."""

    number: int
    world: int
    step: int


@dataclass(frozen=True)
class Stopped:
    """A member has stopped. The last step that it has completed is `step`; nothing of it is in flight any more."""

    number: int
    world: int
    step: int


@dataclass(frozen=True)
class Formed:
    """A member has set up the exchange of a world, and holds the state of its first step."""

    number: int
    world: int


@dataclass(frozen=True)
class Finished:
    """The program of a member has come to its end, after `step` completed steps."""

    number: int
    world: int
    step: int


@dataclass(frozen=True)
class Closed:
    """The part of the program is over, on a member, in which others can come in."""

    number: int


@dataclass(frozen=True)
class Leaving:
    """A member goes on purpose within so many seconds, as its machine is wanted back."""

    number: int
    seconds: float


@dataclass(frozen=True)
class Failed:
    """The program of a member raised an exception; `text` is what the others show."""

    number: int
    text: str


@dataclass(frozen=True)
class FailedAlone:
    """A process failed before it had joined; `text` is what the others show."""

    text: str


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Report = Beat | Prepared | Begun | Stopped | Formed | Finished | Closed | Leaving | Failed
"""Messages of a member to the coordinator."""

Event = Joined | Lost | Report | FailedAlone | Tick

# What the coordinator does -------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepare:
    """Tell members in no world to run their programs up to training, while the members of a world train.

    Args:
        to: The members.
        world: The world that trains, or did last.
    """

    to: tuple[int, ...]
    world: World


@dataclass(frozen=True)
class Stop:
    """Tell members to stop.

    Args:
        to: The members.
        world: The number of the world that ends.
        cut: Whether what is in flight is given up. If not, members tell how many steps they have begun, and hear which
            one is the last (`StopAfter`).
        reason: Why, in words.
    """

    to: tuple[int, ...]
    world: int
    cut: bool
    reason: str


@dataclass(frozen=True)
class StopAfter:
    """Tell members which step is the last of a world, and whether they save behind it, as the run ends."""

    to: tuple[int, ...]
    world: int
    step: int
    saves: bool = False


@dataclass(frozen=True)
class Form:
    """Tell members to set up the exchange of a new world, and to take the state from its donor."""

    to: tuple[int, ...]
    world: World


@dataclass(frozen=True)
class Go:
    """Tell members to train. In a world that was to stop and goes on after all, it is said a second time."""

    to: tuple[int, ...]
    world: int


@dataclass(frozen=True)
class End:
    """Tell members to end.

    Args:
        to: The members.
        code: With which exit code.
        reason: Why, in words.
    """

    to: tuple[int, ...]
    code: int
    reason: str


@dataclass(frozen=True)
class KillMember:
    """Kill the process of a member that is taken for dead, and close its connection."""

    member: Member
    reason: str


@dataclass(frozen=True)
class Say:
    """Write a line to the terminal."""

    line: str


Order = Prepare | Stop | StopAfter | Form | Go | End
"""What a member is told."""

Action = Order | KillMember | Say
