"""`Peers`: barriers and agreement of all tasks, on the host, with deadlines that name who is missing.

A collective on devices waits without a limit and cannot be cancelled. So a step that every task must enter alike
asks here first. Measured between two processes on one machine: barrier 0.5 ms, agree 0.7 ms.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

import jax

from stratagem.cluster.compat import CoordinationClient, abandon
from stratagem.cluster.hello import Peer
from stratagem.core.clock import Deadline
from stratagem.core.errors import PeerError, name_some
from stratagem.core.log import logger
from stratagem.core.progress import Phase, progress

_SILENT_SECONDS: Final = 10.0
"""How long a task waits for another before it says so."""

FEW: Final = 32
"""Up to so many processes each reads the notes of all. With more, process 0 reads them and posts one answer.

If each of a thousand read all, the service would hand out a million, which takes half a minute. With two processes the
answer takes a third longer than the notes."""


@runtime_checkable
class MeetingClient(CoordinationClient, Protocol):
    """A store in which those who meet may be some of all, and either all of them hear all notes or none."""

    def meet(self, place: str, note: bytes, ranks: Sequence[int], timeout_in_ms: int) -> dict[int, bytes]:
        """Wait for the processes of some ranks; return the note of each."""
        ...


Field = str | int | float | bool | None | Sequence[object] | Mapping[str, object]
"""What JSON can say."""


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _renewed(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a method of `Peers` in which processes meet: where they have changed meanwhile, it is called again."""

    @functools.wraps(call)
    def method(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        while True:
            try:
                return call(*args, **kwargs)
            except PeerError as error:
                renew = cast(Peers, args[0]).renew
                if renew is None or not renew(error):
                    raise

    return method


@dataclass(eq=False)
class Peers:
    """The processes of the running cluster.

    Every process calls the same methods with the same names in the same order. A name is that of a place in
    the program ("start of fit"); it may be used again and again, and costs the service memory once.

    If tasks do not come in time, the cluster is broken, and this process will end without waiting for its peers.

    Args:
        client: JAX's coordination service.
        peers: All processes, in order of process index.
        own_index: Which of them this one is.
        timeout_seconds: How long to wait when a call says nothing else.
    """

    client: CoordinationClient
    peers: Sequence[Peer]
    own_index: int
    timeout_seconds: float
    present: Sequence[int] = field(init=False)
    """Who meets now. The others catch up with these, and are taken to say what the first of these says."""
    renew: Callable[[PeerError], bool] | None = field(init=False, default=None)
    """Takes this process to where a call that has failed can be made again; returns False where it cannot."""
    _calls: Counter[str] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        self.present = range(len(self.peers))

    @property
    def is_alone(self) -> bool:
        """Whether this process meets nobody for now."""
        return tuple(self.present) == (self.own_index,)

    @property
    def may_change(self) -> bool:
        """Whether others may take the place of these processes, or some go, while the program runs."""
        return isinstance(self.client, MeetingClient)

    @property
    def own(self) -> Peer:
        """This process."""
        return self.peers[self.own_index]

    def move(self, client: CoordinationClient, peers: Sequence[Peer], own_index: int) -> None:
        """Go on with other processes, of which some are new: calls are counted from the beginning.

        Args:
            client: A store that nobody has used.
            peers: All processes, in order of process index.
            own_index: Which of them this one is.
        """
        self.client, self.peers, self.own_index = client, peers, own_index
        self.meet_with(range(len(peers)))

    def meet_with(self, ranks: Sequence[int]) -> None:
        """Let some of all processes meet from now on; these say so at the same point.

        Args:
            ranks: Who does. A process that names itself alone asks nobody.
        """
        self.present = tuple(ranks)
        self._calls.clear()

    @contextlib.contextmanager
    def not_renewed(self) -> Iterator[None]:
        """Let calls in this context fail where they would be made again."""
        renew, self.renew = self.renew, None
        try:
            yield
        finally:
            self.renew = renew

    @_renewed
    def barrier(self, name: str, timeout_seconds: float | None = None) -> None:
        """Wait until every process is here.

        Args:
            name: The place in the program.
            timeout_seconds: How long to wait.

        Raises:
            PeerError: Some processes did not come in time; the message names them.
        """
        if self.is_alone:
            return
        if isinstance(self.client, MeetingClient):
            self._meet_some(self.client, f"barrier {name!r}", b"", timeout_seconds)
        else:
            self._meet(f"barrier {name!r}", b"", timeout_seconds)

    @_renewed
    def agree(
        self,
        name: str,
        value: Mapping[str, Field],
        timeout_seconds: float | None = None,
        *,
        consequence: str = "They would compute different things, or wait for each other forever.",
        remedy: str = "Run the same program with the same arguments and data on every task.",
    ) -> None:
        """Check that every process has the same values.

        Args:
            name: The place in the program.
            value: What must be equal, by field; anything that JSON can say.
            timeout_seconds: How long to wait.
            consequence: What would go wrong, where that is known better.
            remedy: What to do about it.

        Raises:
            PeerError: A field differs (the message shows each value and who has it), or some processes did
                not come in time.
        """
        place = f"agreement {name!r}"
        values = self._exchange(place, value, timeout_seconds)
        if len(values) > 1:
            raise PeerError(self._difference(place, values), consequence, remedy)

    @_renewed
    def from_chief(self, name: str, value: bytes, timeout_seconds: float | None = None) -> bytes:
        """Return the chief's value on every process.

        Args:
            name: The place in the program.
            value: The value; only the chief's counts.
            timeout_seconds: How long to wait.

        Raises:
            PeerError: Some processes did not come in time.
        """
        if self.is_alone:
            return value
        place = f"value of the chief {name!r}"
        if isinstance(self.client, MeetingClient):
            return self._meet_some(self.client, place, value, timeout_seconds)[0]
        folder = self._meet(place, value if self.own_index == 0 else b"", timeout_seconds)
        return self._read(place, f"{folder}0", timeout_seconds).partition(b" ")[2]

    @_renewed
    def from_all(self, name: str, value: Field, timeout_seconds: float | None = None) -> list[Any]:
        """Return every process's value, in order of process index.

        Args:
            name: The place in the program.
            value: Anything that JSON can say.
            timeout_seconds: How long to wait.

        Raises:
            PeerError: Some processes did not come in time.
        """
        values = self._exchange(f"values {name!r}", value, timeout_seconds)
        return values if len(values) > 1 else [copy.deepcopy(values[0]) for _ in self.peers]

    @_renewed
    def distinct(self, name: str, value: Field, timeout_seconds: float | None = None, *, waits: bool) -> list[Any]:
        """Return the values of all processes, each once; a process that need not know them leaves its own and goes on.

        Process 0 collects them for all. Where it goes on, its own stands for all.

        Args:
            name: What the values are, once in the life of the cluster.
            value: Anything that JSON can say.
            timeout_seconds: How long to wait for all of them.
            waits: Whether this process waits for the others. If not, it gets its own value alone.

        Raises:
            PeerError: Some processes did not come in time; the message names them.
        """
        if self.is_alone:
            return [value]
        deadline, answer = Deadline(self._seconds(timeout_seconds)), f"{name} of all"
        self.post(f"{name}/{self.own_index}", value)
        if self.own_index != 0:
            return [value, *(self._await(name, answer, deadline) if waits else [])]
        values = [value, *map(json.loads, set(self._all_notes(name, deadline).values()))] if waits else [value]
        self.post(answer, values)
        return values

    @_renewed
    def collect(self, name: str, timeout_seconds: float | None = None) -> list[Any]:
        """Return what every process has posted below a name, in order of process index, and take it away.

        One process waits for all, in any of its threads; the others post under `name/index` and go on.

        Args:
            name: What the values are, once in the life of the cluster.
            timeout_seconds: How long to wait for all of them.

        Raises:
            PeerError: Some processes posted nothing in time; the message names them.
        """
        notes = self._all_notes(name, Deadline(self._seconds(timeout_seconds)))
        for process in notes:
            self.client.key_value_delete(f"stratagem/posted/{name}/{process}")
        return [json.loads(notes[process]) for process in range(len(self.peers))]

    def _all_notes(self, name: str, deadline: Deadline) -> dict[int, bytes]:
        """Return what every process has posted below a name, once all have."""
        notes = self._notes(name)
        while len(notes) < len(self.peers):
            # When the last of those that are missing has come, half of the others have, if tasks come in no order: to
            # wait for each would be a thousand questions to the service.
            missing = max(process for process in range(len(self.peers)) if process not in notes)
            self._await(name, f"{name}/{missing}", deadline)
            notes = self._notes(name)
        return notes

    def _notes(self, name: str) -> dict[int, bytes]:
        """Return what each process has posted below a name so far."""
        found = self.client.key_value_dir_get_bytes(f"stratagem/posted/{name}/")
        return {int(key.rpartition("/")[2]): note for key, note in found}

    def _await(self, name: str, posted: str, deadline: Deadline) -> Any:
        """Return a posted value; say after a while for whom this process waits.

        Not a meeting, for the watchdog: some do not wait, and a worker that compiles is not late.
        """
        seconds = deadline.seconds
        try:
            return self.wait_for(posted, min(_SILENT_SECONDS, deadline.remaining))
        except TimeoutError:
            late = self._late(name)
            logger.warning(
                "%s waits for %s: %s (%g of %g s).", self.own, late, name, seconds - deadline.remaining, seconds
            )
        try:
            return self.wait_for(posted, deadline.remaining)
        except TimeoutError:
            abandon()
            raise PeerError(
                f"{self.own} waited {seconds:g} s; missing: {self._late(name)}, with {name}.",
                "That task is still in an earlier call, or in another part of the program, and waits there for this "
                "task.",
                "Look at its output, and run the same program on every task. If it is only slow, allow more time "
                "(timeout_seconds).",
            ) from None

    def _late(self, name: str) -> str:
        """Return who has posted nothing below a name; where all have, process 0 has not collected it yet."""
        notes = self._notes(name)
        late = [peer for process, peer in enumerate(self.peers) if process not in notes]
        return name_some(map(str, late or self.peers[:1]))

    @_renewed
    def post(self, name: str, value: Field) -> None:
        """Leave a value for any process that waits for it, now or later.

        Args:
            name: What it is called, once in the life of the cluster; posting again replaces it.
            value: Anything that JSON can say.
        """
        self.client.key_value_set_bytes(f"stratagem/posted/{name}", json.dumps(value).encode(), allow_overwrite=True)

    @_renewed
    def wait_for(self, name: str, timeout_seconds: float | None = None) -> Any:
        """Return a posted value; wait until it is there. Several threads may wait.

        Args:
            name: What it is called.
            timeout_seconds: How long to wait.

        Raises:
            TimeoutError: Nobody posted it in time.
            PeerError: The coordination service is gone.
        """
        try:
            note = self.client.blocking_key_value_get_bytes(
                f"stratagem/posted/{name}", self._milliseconds(timeout_seconds)
            )
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                raise TimeoutError(f"nobody posted {name!r}") from None
            raise PeerError(
                f"{self.own} could not wait for {name!r}: {str(error).splitlines()[0]}",
                "The first task, through which tasks exchange such values, has ended or cannot be reached.",
                "Look at its output, and start all tasks again.",
            ) from None
        return json.loads(note)

    def _meet(self, place: str, note: bytes, timeout_seconds: float | None) -> str:
        """Post a note and wait for all; return the folder where everybody's notes are."""
        self._calls[place] += 1
        # Two folders in turn are enough: a process that posts to one for the second time has met all others at the
        # other in between, so all have read the first. Nothing needs to be deleted.
        folder = f"stratagem/{place}/{self._calls[place] % 2}/"
        numbered = b"%d %s" % (self._calls[place], note)
        self.client.key_value_set_bytes(f"{folder}{self.own_index}", numbered, allow_overwrite=True)
        try:
            with progress.during(Phase.MEETING, place=place, is_joint=True):
                self.client.wait_at_barrier(f"stratagem/{place}", self._milliseconds(timeout_seconds))
        except jax.errors.JaxRuntimeError as error:
            late = self._absent(folder, self._calls[place])
            self._give_up(place, str(error), late, timeout_seconds)
        return folder

    def _meet_some(self, client: MeetingClient, place: str, note: bytes, timeout_seconds: float | None) -> list[bytes]:
        """Meet those who are present; return the notes of all, in order of process index."""
        self._calls[place] += 1
        try:
            with progress.during(Phase.MEETING, place=place, is_joint=True):
                notes = client.meet(
                    f"{place} {self._calls[place]}", note, self.present, self._milliseconds(timeout_seconds)
                )
        except jax.errors.JaxRuntimeError as error:
            self._give_up(place, str(error), [], timeout_seconds)
        return [notes.get(process, notes[self.present[0]]) for process in range(len(self.peers))]

    def _read(self, place: str, key: str, timeout_seconds: float | None) -> bytes:
        """Return what process 0 has posted at a place, or is about to."""
        try:
            return self.client.blocking_key_value_get_bytes(key, self._milliseconds(timeout_seconds))
        except jax.errors.JaxRuntimeError as error:
            late = [str(self.peers[0])] if "DEADLINE_EXCEEDED" in str(error) else []
            self._give_up(place, str(error), late, timeout_seconds)

    def _exchange(self, place: str, value: Field, timeout_seconds: float | None) -> list[Any]:
        """Return the value of each process, or one alone where all are equal."""
        if self.is_alone:
            return [json.loads(json.dumps(value))]
        if isinstance(self.client, MeetingClient):
            note = json.dumps(value, sort_keys=True).encode()
            notes = self._meet_some(self.client, place, note, timeout_seconds)
            return [json.loads(each) for each in (notes if len(set(notes)) > 1 else notes[:1])]
        folder = self._meet(place, json.dumps(value, sort_keys=True).encode(), timeout_seconds)
        call = self._calls[place]
        if len(self.peers) <= FEW:
            return json.loads(self._together(folder, call))
        answer = f"stratagem/{place}/all/{call}"
        if self.own_index == 0:
            self.client.key_value_set_bytes(answer, self._together(folder, call))
            # All that have come here have read the last answer.
            self.client.key_value_delete(f"stratagem/{place}/all/{call - 1}")
        return json.loads(self._read(place, answer, timeout_seconds))

    def _together(self, folder: str, call: int) -> bytes:
        """Return the notes of all, or one alone where all are equal, as a list of JSON."""
        posted = self._posted(folder, call)
        notes = [posted[process] for process in range(len(self.peers))]
        return b"[%s]" % b", ".join(notes if len(set(notes)) > 1 else notes[:1])

    def _posted(self, folder: str, call: int) -> dict[int, bytes]:
        """Return the note of each process that posted one for this call."""
        notes = {}
        for key, numbered in self.client.key_value_dir_get_bytes(folder):
            number, _, note = numbered.partition(b" ")
            if int(number) == call:
                notes[int(key.rpartition("/")[2])] = note
        return notes

    def _milliseconds(self, timeout_seconds: float | None) -> int:
        return max(1, round(1000 * self._seconds(timeout_seconds)))

    def _seconds(self, timeout_seconds: float | None) -> float:
        return self.timeout_seconds if timeout_seconds is None else timeout_seconds

    def _absent(self, folder: str, call: int) -> list[str]:
        """Return who has posted no note for this call; nobody if the service is gone as well."""
        try:
            here = self._posted(folder, call)
        except jax.errors.JaxRuntimeError:
            return []
        return [str(peer) for process, peer in enumerate(self.peers) if process not in here]

    def _give_up(self, place: str, reason: str, late: Sequence[str], timeout_seconds: float | None) -> NoReturn:
        """Raise the error of tasks that did not come in time; this process will end without waiting for its peers."""
        abandon()
        if late:
            found = f"{self.own} waited {self._seconds(timeout_seconds):g} s at {place}; missing: {name_some(late)}."
        else:
            found = f"{self.own} could not wait at {place}: {reason.splitlines()[0]}"
        raise PeerError(
            found,
            "Look at the output of the tasks named here, and run the same program on every task. "
            "If they are only slow, allow more time (timeout_seconds).",
        ) from None

    def _difference(self, place: str, values: Sequence[Mapping[str, object]]) -> str:
        lines = []
        for key in sorted({key for value in values for key in value}):
            holders: dict[str, list[str]] = {}
            for process, value in enumerate(values):
                shown = json.dumps(value[key]) if key in value else "nothing"
                holders.setdefault(shown, []).append(str(self.peers[process]))
            if len(holders) > 1:
                lines += [f"\n    {key} is {shown} on {name_some(tasks)}" for shown, tasks in holders.items()]
        return f"The tasks differ at {place}:{''.join(lines)}"
