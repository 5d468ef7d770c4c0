"""The protocol of membership: what the coordinator does at each event. Pure: no socket, no clock, no thread.

docs/elastic.md has the table of phases, events and actions. The file is long because the rules of all phases change one
state: whoever changes one reads the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from stratagem.core import exits
from stratagem.elastic.events import (
    Action,
    Beat,
    Begun,
    Closed,
    End,
    Event,
    Failed,
    FailedAlone,
    Finished,
    Form,
    Formed,
    Go,
    Joined,
    KillMember,
    Leaving,
    Lost,
    Prepare,
    Prepared,
    Report,
    Say,
    Stop,
    StopAfter,
    Stopped,
    Tick,
)
from stratagem.elastic.ranks import first_members
from stratagem.elastic.state import EndAfterSaving, Phase, Place, State, name_places, numbers_of
from stratagem.elastic.world import Member, World

_OVER: Final = (Phase.ENDING, Phase.ENDED)

MOST_FAULTS: Final = 3
"""A step that has been begun in so many worlds, each of which a fault has ended, is not tried again."""


def advance(state: State, event: Event, now: float) -> tuple[State, list[Action]]:
    """Return the state after an event, and what is to be done.

    Args:
        state: The state before.
        event: What happened.
        now: When, in seconds since any fixed moment.
    """
    turn = _Turn(state, now)
    turn.take(event)
    return turn.state, turn.actions


class _Turn:
    """One event on its way through the rules."""

    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.actions: list[Action] = []

    def take(self, event: Event) -> None:
        """Follow the rules for an event. What comes from a member that is gone, or for another world, is ignored."""
        if self.state.phase is Phase.ENDED:
            if isinstance(event, Joined):
                self._do(End((event.member.number,), self.state.code or 0, self.state.reason))
            return
        if isinstance(event, Tick):
            self._tick()
        elif isinstance(event, Joined):
            self._join(event)
        elif isinstance(event, FailedAlone):
            if self.state.phase is not Phase.ENDING:
                self._end(exits.FAILED, event.text)
        elif event.number in self.state.places:
            self._place(event.number, heard=self.now)
            self._hear(event)

    def _hear(self, event: Lost | Report) -> None:
        if isinstance(event, Lost):
            self._lose([(self.state.places[event.number], event.how, event.has_exited)])
        elif isinstance(event, Beat):
            self._place(event.number, step=event.step, is_busy=event.is_busy)
        elif self.state.phase in _OVER:
            return
        elif isinstance(event, Prepared):
            self._place(event.number, is_prepared=True)
            self._set(prepared=self.now)
        elif isinstance(event, Leaving):
            self._leave(event)
        elif isinstance(event, Closed):
            self._close()
        elif isinstance(event, Failed):
            self._fail(event)
        elif (world := self.state.world) is not None and event.world == world.number and event.number in world.numbers:
            self._report(event)

    # Joining, going ----------------------------------------------------------------------------------

    def _join(self, event: Joined) -> None:
        member, state = event.member, self.state
        self._set(places={**state.places, member.number: Place(member, self.now)})
        if state.phase is Phase.ENDING:
            self._do(End((member.number,), state.code or 0, state.reason))
        elif state.phase is Phase.GATHERING:
            if sum(not place.member.is_spare for place in self.state.places.values()) >= state.rules.wanted:
                self._form_first()
        elif state.is_closed:
            self._release([member.number])
        elif state.phase is Phase.WAITING:
            self._form_next()

    def _close(self) -> None:
        """Let nobody come in any more; let those go who wait for it, or were to."""
        state = self.state
        if state.is_closed or state.world is None:
            return
        self._set(is_closed=True)
        old = {place.member.number for place in state.present if place.held is not None}
        released = [number for number in state.places if number not in old]
        self._release(released)
        if state.phase is Phase.WAITING or (state.world is not None and set(released) & set(state.world.numbers)):
            self._form_next()

    def _release(self, numbers: Sequence[int]) -> None:
        if numbers:
            self._do(End(tuple(numbers), 0, "no other process can take part any more"))
            self._set(places={number: place for number, place in self.state.places.items() if number not in numbers})

    def _lose(self, lost: Sequence[tuple[Place, str, bool]]) -> None:
        """Take members out who are gone, and do what follows, once for all of them."""
        before = self.state
        numbers = {place.member.number for place, _, _ in lost}
        self._set(places={number: place for number, place in before.places.items() if number not in numbers})
        if before.phase is Phase.ENDING:  # it goes as it was told, and may still be at its last lines
            self._check_ended()
            return
        for place, how, has_exited in lost:
            if not has_exited and place.member.number not in before.finished:
                self._do(KillMember(place.member, how))
        causes = []
        for place, how, _ in lost:
            number = place.member.number
            if before.world is None or number not in before.world.numbers:
                self._do(Say(f"{before.name(place.member)} {how}; it was in no world."))
            elif number not in before.finished:
                causes.append(f"{before.name(place.member)} {how}, last seen after step {place.step}")
        self._set(causes=(*before.causes, *causes))
        if before.phase is Phase.WAITING and causes:
            self._do(Say(f"{'; '.join(causes)}."))
        if before.phase is Phase.RUNNING and causes:
            self._change_by_fault()
        elif before.phase is Phase.RUNNING:
            self._check_finished()
        elif before.phase is Phase.STOPPING:
            if causes:
                self._set(is_faulty=True)
            if causes and not before.is_cut:
                self._cut()
            self._check_stopped()
        elif before.phase is Phase.FORMING and causes and before.finished:
            self._end_finished(f"training has come to its end; {'; '.join(self.state.causes)}")
        elif (before.phase is Phase.FORMING and causes) or before.phase is Phase.WAITING:
            self._form_next()

    def _change_by_fault(self) -> None:
        """Stop those whose world has lost a member while it trained."""
        state = self.state
        if state.finished:
            # The last step is completed where a program has ended, so all have given their parts of it.
            self._do(Say(f"{'; '.join(state.causes)}, after others had ended their programs."))
            self._set(causes=(), finish_by=state.finish_by or self.now + state.rules.limits.finish)
            self._check_finished()
            return
        self._stop(cut=True)
        self._set(is_faulty=True)
        self._check_stopped()

    def _leave(self, event: Leaving) -> None:
        self._place(event.number, leaves_by=self.now + event.seconds)
        state = self.state
        if state.world is None or event.number not in state.world.numbers:
            self._dismiss([event.number])
        elif state.phase is Phase.WAITING:
            self._form_next()
        elif state.phase is Phase.RUNNING:
            self._check_change()

    def _dismiss(self, numbers: Sequence[int]) -> None:
        """Let members go that leave on purpose and are not needed any more."""
        self._do(End(tuple(numbers), exits.PREEMPTED, "it left on purpose, the others go on"))
        self._set(places={number: place for number, place in self.state.places.items() if number not in numbers})

    def _fail(self, event: Failed) -> None:
        state = self.state
        place = state.places[event.number]
        if state.world is not None and event.number not in state.world.numbers:
            name = state.name(place.member)
            self._do(Say(f"{name} failed before it trained with the others, who go on without it: {event.text}"))
            self._do(End((event.number,), exits.FAILED, event.text))
            self._set(places={number: each for number, each in state.places.items() if number != event.number})
            return
        self._end(exits.FAILED, f"{state.name(place.member)} failed: {event.text}")

    # Reports of the members of a world ----------------------------------------------------------------

    def _report(self, event: Begun | Stopped | Formed | Finished) -> None:
        phase, number = self.state.phase, event.number
        assert self.state.world is not None, "reports are of a world"
        if isinstance(event, Finished) and phase in (Phase.RUNNING, Phase.STOPPING, Phase.FORMING):
            self._set(finished=self.state.finished | {number})
            self._place(number, held=event.step, step=event.step, has_answered=True)
            if phase is Phase.FORMING:
                self._check_formed()
            else:
                self._check_finished() if phase is Phase.RUNNING else self._check_begun()
        elif isinstance(event, Formed) and phase in (Phase.FORMING, Phase.WAITING):
            self._place(number, held=self.state.world.step, step=self.state.world.step, has_answered=True)
            if phase is Phase.FORMING:
                self._check_formed()
        elif isinstance(event, Begun) and phase is Phase.STOPPING and not self.state.is_cut:
            self._place(number, begun=event.step)
            self._check_begun()
        elif isinstance(event, Stopped) and phase is Phase.STOPPING:
            self._place(number, held=event.step, step=event.step, has_answered=True)
            self._check_stopped()
        elif isinstance(event, Stopped) and phase is Phase.RUNNING:
            self._place(number, cut_since=self.now)

    def _check_finished(self) -> None:
        """End the run when no member of the world trains any more."""
        if self.state.finished and not self.state.at_work:
            self._end_finished("training has come to its end")

    def _end_finished(self, reason: str) -> None:
        """End a run in which a program has come to its end: well where the first worker's has."""
        assert self.state.world is not None, "a world has finished"
        if self.state.world.numbers[0] in self.state.finished:
            self._end(0, reason)
        else:
            self._end(exits.PEER_LOST, "the first worker was lost before its program had come to its end")

    def _check_begun(self) -> None:
        """Tell the last step of a planned stop, once all have told how many they have begun."""
        state = self.state
        if not state.is_cut and state.last is None and all(place.begun is not None for place in state.at_work):
            assert state.world is not None, "a world stops"
            last = max(
                [state.world.step]
                + [place.begun for place in state.present if place.begun is not None]
                + [place.held or 0 for place in state.present if place.member.number in state.finished]
            )
            saves = state.ends_after_saving is not None
            if saves:  # behind one more: some may be past the point at which they would save behind this one
                last += 1
            self._set(last=last)
            if state.at_work:
                self._do(StopAfter(numbers_of(state.at_work), state.world.number, last, saves))
        self._check_stopped()

    def _check_stopped(self) -> None:
        """Form the next world, once all have stopped."""
        state = self.state
        if not all(place.has_answered for place in state.at_work):
            return
        if state.finished and state.is_cut:
            self._end_finished(f"training has come to its end; {'; '.join(state.causes)}")
        elif state.finished:
            self._go_on()
        else:
            self._form_next()

    def _check_formed(self) -> None:
        state = self.state
        if not all(place.has_answered for place in state.present):
            return
        assert state.world is not None, "a world forms"
        before = state.faults if state.faulty_step == state.world.step else 0
        self._set(faulty_step=state.world.step, faults=before + state.is_faulty, is_faulty=False)
        self._do(Go(state.world.numbers, state.world.number))
        self._do(Say(self._going(state.world)))
        self._enter(Phase.RUNNING, causes=(), short_since=None)
        self._check_change()
        self._check_finished()

    # Changes ------------------------------------------------------------------------------------------

    def _check_change(self) -> None:
        """Begin a planned change, if a member leaves, or one that waits is to come in."""
        state = self.state
        if state.finished:
            return
        if state.ends_after_saving is None and state.cannot_spare_all_who_leave(self._newcomers):
            self._end_after_saving()
        if self.state.ends_after_saving is not None:
            self._set(causes=(*state.causes, self.state.ends_after_saving.reason))
            self._stop(cut=False)
            return
        leaving = self._leaving_now()
        comes = set(state.successors()) - {place.member for place in state.present}
        has_settled = self.now >= state.prepared + state.rules.limits.settle
        if not leaving and not (comes and has_settled):
            return
        leave = "leaves" if len(leaving) == 1 else "leave"
        causes = [f"{name_places(state, leaving)} {leave} on purpose"] if leaving else []
        if comes:
            causes.append(f"{len(comes)} more can take part")
        self._set(causes=(*state.causes, *causes))
        self._stop(cut=False)

    def _leaving_now(self) -> list[Place]:
        """Return who leaves. Where too few would be left, they stay as long as they can: others may come meanwhile."""
        leaving = self.state.leaving
        return leaving if self.state.has_enough_without(leaving) or self._is_time_to_leave else []

    @property
    def _is_time_to_leave(self) -> bool:
        """Whether one of those who leave can stay no longer."""
        state = self.state
        deadlines = [place.leaves_by for place in state.leaving if place.leaves_by is not None]
        return bool(deadlines) and self.now >= min(deadlines) - state.rules.limits.reserve

    @property
    def _newcomers(self) -> list[Member]:
        """Who may take the state from one that leaves: at last, only those who can do so at once."""
        return self.state.ready if self._is_time_to_leave else self.state.waiting

    def _end_after_saving(self) -> None:
        """Let the run end behind one more step, as all leave who hold the state."""
        leaving = self.state.leaving
        by = max(place.leaves_by for place in leaving if place.leaves_by is not None)
        reason = f"all who hold the state leave: {name_places(self.state, leaving)}"
        self._set(ends_after_saving=EndAfterSaving(exits.PREEMPTED, reason, by))

    def _stop(self, cut: bool) -> None:
        state = self.state
        assert state.world is not None, "a world stops"
        self._enter(Phase.STOPPING, is_cut=cut, last=None, changing_since=self.now)
        for number in state.world.numbers:
            if number in state.places:
                self._place(number, begun=None, has_answered=False, cut_since=None)
        if state.at_work:
            self._do(Stop(numbers_of(state.at_work), state.world.number, cut, "; ".join(state.causes)))

    def _cut(self) -> None:
        """Make a planned stop one that gives up what is in flight."""
        state = self.state
        assert state.world is not None, "a world stops"
        self._set(is_cut=True, since=self.now)
        if state.at_work:  # those who have stopped too: they may evaluate, or save
            self._do(Stop(numbers_of(state.at_work), state.world.number, True, "; ".join(state.causes)))

    def _go_on(self) -> None:
        """Let a world go on that was to stop: nothing is left to be changed, and all of it have done the same steps."""
        assert self.state.world is not None, "a world goes on"
        at_work = numbers_of(self.state.at_work)
        if at_work:
            self._do(Go(at_work, self.state.world.number))
        self._enter(Phase.RUNNING, causes=())
        self._check_finished()

    def _form_first(self) -> None:
        state = self.state
        rules = state.rules
        members = first_members(state.waiting, rules.wanted, rules.most)
        self._set(causes=(), changing_since=self.now)
        for member in members:  # each holds its own first values; those of the donor count
            self._place(member.number, held=0)
        self._form(World(1, members, donor=0, step=0))

    def _form_next(self) -> None:
        """Form the next world from those who are left and those who wait; wait or end where that cannot be."""
        state = self.state
        world = state.world
        assert world is not None, "a world follows another"
        steps = [place.held for place in state.present if place.held is not None]
        if not steps:
            self._end(exits.PEER_LOST, f"nobody is left who holds the state: {'; '.join(state.causes)}")
            return
        step = max(steps)
        if state.is_faulty and state.faulty_step == step and state.faults + 1 >= MOST_FAULTS:
            self._end(
                exits.FAILED,
                f"step {step + 1} has failed {MOST_FAULTS} times, and no step was completed in between: "
                f"{'; '.join(state.causes)}. "
                "A batch that cannot be computed, or a lack of memory, does so; another try would end in the same way",
            )
            return
        ends = state.ends_after_saving
        if ends is not None and state.phase is Phase.STOPPING and not state.is_cut:
            self._end(ends.code, ends.reason)
            return
        if ends is None and state.cannot_spare_all_who_leave(self._newcomers):
            self._end_after_saving()
            state = self.state
        going = frozenset() if state.ends_after_saving is not None else self._not_needed(step)
        members = state.successors(going)
        if going:
            self._dismiss(sorted(going))
        if len(members) < state.least:
            self._wait_for_more()
        elif members == world.members and state.phase is Phase.STOPPING and not state.is_cut:
            self._go_on()
        else:
            donor = next(rank for rank, member in enumerate(members) if self.state.places[member.number].held == step)
            self._form(World(world.number + 1, members, donor, step))

    def _not_needed(self, step: int) -> frozenset[int]:
        """Return who leaves and is not in the next world: all but one, if the state is to be taken from that one.

        Args:
            step: The number of completed steps with which the world begins.
        """
        leaving = self.state.leaving
        if any(place.held == step for place in self.state.present if place.leaves_by is None):
            return frozenset(numbers_of(leaving))
        holder = next((place for place in leaving if place.held == step), None)
        return frozenset(numbers_of([place for place in leaving if place is not holder]))

    def _wait_for_more(self) -> None:
        state = self.state
        if state.phase is Phase.WAITING:
            return
        least, seconds = state.rules.options.min_workers, state.rules.options.below_min_seconds
        self._set(short_since=self.now if state.short_since is None else state.short_since)
        self._do(
            Say(
                f"{'; '.join(state.causes)}. {_count(len(self.state.present))} left, {least} are the least: they hold "
                f"their state and wait for others, {seconds:g} s at most."
            )
        )
        self._give_up_exchange(numbers_of(self.state.present))
        self._enter(Phase.WAITING)

    def _give_up_exchange(self, next_numbers: Sequence[int]) -> None:
        """Cut what goes on in the exchange of a world of which not all are in the next one.

        No step is in flight. But members that have stopped may evaluate or save, and members of a world that forms take
        the state over. They would wait there for one that is gone, or for one that has moved on because of that.

        Args:
            next_numbers: The members of the next world.
        """
        state = self.state
        if state.world is None or state.is_cut or set(state.world.numbers) <= set(next_numbers):
            return
        staying = tuple(number for number in state.world.numbers if number in next_numbers)
        if staying:
            self._set(is_cut=True)
            self._do(Stop(staying, state.world.number, True, "; ".join(state.causes)))

    def _form(self, world: World) -> None:
        self._give_up_exchange(world.numbers)
        for number in world.numbers:
            self._place(number, has_answered=False, begun=None)
        self._enter(Phase.FORMING, world=world, finished=frozenset(), finish_by=None, is_cut=False, last=None)
        self._do(Form(world.numbers, world))

    def _end(self, code: int, reason: str) -> None:
        self._do(Say(f"The run ends with exit code {code}: {reason}."))
        if self.state.places:
            self._do(End(tuple(self.state.places), code, reason))
        self._enter(Phase.ENDING, code=code, reason=reason)
        self._check_ended()

    def _check_ended(self) -> None:
        if not self.state.places:
            self._enter(Phase.ENDED)

    # Time -----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        state, limits = self.state, self.state.rules.limits
        if state.phase is Phase.ENDING:
            if self.now >= state.since + limits.end:
                for place in state.places.values():
                    self._do(KillMember(place.member, "did not end in time"))
                self._set(places={})
                self._check_ended()
            return
        ends = state.ends_after_saving
        if ends is not None and self.now >= ends.by:
            self._end(ends.code, f"{ends.reason}; not all came to the step behind which they save")
            return
        silent = [place for place in state.places.values() if self.now >= place.heard + limits.silent]
        if silent:
            self._lose([(place, f"was silent for {limits.silent:g} s", False) for place in silent])
        _AT_TICK.get(self.state.phase, _Turn._rest)(self)

    def _rest(self) -> None:
        """Wait on."""

    def _tick_gathering(self) -> None:
        rules = self.state.rules
        if self.now < self.state.since + rules.limits.start:
            return
        members = first_members(self.state.waiting, rules.wanted, rules.most)
        if len(members) >= rules.options.min_workers:
            self._form_first()
            return
        self._end(
            exits.PEER_LOST,
            f"{_count(len(members))} came within {rules.limits.start:g} s; {rules.wanted} are wanted, "
            f"{rules.options.min_workers} are the least",
        )

    def _tick_forming(self) -> None:
        if self.state.is_closed:  # nobody has to come to a step
            return
        limit = self.state.rules.limits.form
        late = self._late(limit)
        if late:
            self._lose([(place, f"did not come into the new world within {limit:g} s", False) for place in late])

    def _tick_running(self) -> None:
        by = self.state.finish_by
        limit = self.state.rules.limits.broken
        cut = [each for each in self.state.at_work if each.cut_since is not None and self.now >= each.cut_since + limit]
        if cut and not self.state.finished:
            self._set(causes=(*self.state.causes, f"{name_places(self.state, cut)} lost the connection to another"))
            self._change_by_fault()
        elif by is not None and self.now >= by:
            limit = self.state.rules.limits.finish
            self._lose([(place, f"did not end within {limit:g} s", False) for place in self.state.at_work])
        else:
            self._prepare_waiting()
            self._check_change()

    def _prepare_waiting(self) -> None:
        """Tell those who wait to run their programs up to training, once the others can spare the cores."""
        state = self.state
        told = [member.number for member in state.waiting if not state.places[member.number].prepares]
        if told and state.world is not None and not state.finished and not state.is_forming(self.now):
            for number in told:
                self._place(number, prepares=True)
            self._do(Prepare(tuple(told), state.world))

    def _tick_stopping(self) -> None:
        state, limits = self.state, self.state.rules.limits
        if state.is_cut:
            late = self._late(limits.stop)
            if late:
                self._lose([(place, f"did not stop within {limits.stop:g} s", False) for place in late])
            return
        if state.ends_after_saving is not None:  # it has a limit of its own
            return
        deadlines = [place.leaves_by for place in state.leaving if place.leaves_by is not None]
        if self._late(limits.planned) or any(self.now >= deadline for deadline in deadlines):
            self._cut()

    def _tick_waiting(self) -> None:
        since, limit = self.state.short_since, self.state.rules.options.below_min_seconds
        if since is not None and self.now >= since + limit:
            reason = f"there were fewer than {self.state.rules.options.min_workers} workers for {limit:g} s"
            by = self.now + self.state.rules.limits.save
            self._set(ends_after_saving=EndAfterSaving(exits.PEER_LOST, reason, by))
            self._do(Say(f"{reason.capitalize()}: those who are left do one more step, so that callbacks can save."))
            self._form_next()

    def _late(self, limit: float) -> list[Place]:
        """Return who has not answered in time. Whoever compiles has more."""
        passed = self.now - self.state.since
        longest = max(limit, self.state.rules.limits.compiling)
        return [
            place
            for place in self.state.at_work
            if not place.has_answered and passed >= (longest if place.is_busy else limit)
        ]

    # Words ----------------------------------------------------------------------------------------------

    def _going(self, world: World) -> str:
        """Return the line for a world that begins to train."""
        if not self.state.causes:
            return f"World {world.number}: {_count(len(world.members))} from step {world.step + 1}."
        seconds = self.now - self.state.changing_since
        return (
            f"{'; '.join(self.state.causes)}. World {world.number}: {_count(len(world.members))} from step "
            f"{world.step + 1}, {seconds:.1f} s later."
        )

    # The state ------------------------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        self.actions.append(action)

    def _set(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def _enter(self, phase: Phase, **changes: Any) -> None:
        self._set(phase=phase, since=self.now, **changes)

    def _place(self, number: int, **changes: Any) -> None:
        place = replace(self.state.places[number], **changes)
        self._set(places={**self.state.places, number: place})


_AT_TICK: Final = {
    Phase.GATHERING: _Turn._tick_gathering,
    Phase.FORMING: _Turn._tick_forming,
    Phase.RUNNING: _Turn._tick_running,
    Phase.STOPPING: _Turn._tick_stopping,
    Phase.WAITING: _Turn._tick_waiting,
}


def _count(members: int) -> str:
    return f"{members} worker{'' if members == 1 else 's'}"
