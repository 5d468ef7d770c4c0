"""Elastic training without processes: the coordinator and its members as events of a simulated time.

Messages have delays, and keep their order on each connection. Members run the very `Gate` that stands before the steps
of real ones. A step completes on a member when all members of its world have begun it and their parts have arrived.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from stratagem.core import exits
from stratagem.elastic.events import (
    Action,
    Beat,
    Closed,
    End,
    Event,
    Failed,
    Form,
    Go,
    Joined,
    KillMember,
    Leaving,
    Lost,
    Order,
    Prepare,
    Prepared,
    Say,
    Stop,
    StopAfter,
    Tick,
)
from stratagem.elastic.gate import Gate
from stratagem.elastic.protocol import advance
from stratagem.elastic.state import Phase, Rules, State
from stratagem.elastic.world import Member, World

TICK = 0.1


@dataclass(eq=False)
class SimulatedMember:
    """A process.

    Args:
        member: As the coordinator knows it.
        gate: Its side of the protocol.
        value: Stands for the weights: what all steps, and the worlds that did them, have made of them.
        own_step: The last step that it has completed itself.
        prepared_at: When its program has come to training.
    """

    member: Member
    gate: Gate
    value: int = 0
    own_step: int = 0
    lives: bool = True
    is_connected: bool = True
    is_frozen: bool = False
    is_leaving: bool = False
    has_closed: bool = False
    token: int = 0
    prepared_at: float = 0.0
    world: World | None = None
    postponed: list[Callable[[], None]] = field(default_factory=list)
    arrives: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})


class Simulation:
    """One run.

    Args:
        rules: Those of the run.
        steps: How many steps there are to do.
        seed: Of all delays.
        spares: How many spares there are.
        hosts: How many machines.
        compute: How long a part of a step takes, at most.
        beat: How often members say that they live.
    """

    def __init__(
        self,
        rules: Rules,
        steps: int = 30,
        seed: int = 0,
        spares: int = 0,
        hosts: int = 2,
        compute: float = 0.05,
        beat: float = 0.2,
    ) -> None:
        self.rules, self.steps, self.hosts, self.compute, self.beat = rules, steps, hosts, compute, beat
        self.random = random.Random(seed)
        self.now = 0.0
        self.state = State(rules)
        self.members: dict[int, SimulatedMember] = {}
        self.worlds: list[World] = []
        self.lines: list[str] = []
        self.saved: list[int] = []
        self.num_events = 0
        self.before_event: dict[int, Callable[[], None]] = {}
        self._parts: dict[tuple[int, int], dict[int, int]] = {}
        self._values: dict[tuple[int, int], int] = {}
        self._running = 0
        self._heap: list[tuple[float, int, SimulatedMember | None, Callable[[], None]]] = []
        self._order = 0
        for _ in range(rules.wanted):
            self.at(self.random.uniform(0, 0.2), self.join)
        for _ in range(spares):
            self.at(self.random.uniform(0, 0.2), lambda: self.join(is_spare=True))
        self.at(TICK, self._tick)

    # Time ------------------------------------------------------------------------------------------

    def at(self, seconds: float, call: Callable[[], object], owner: SimulatedMember | None = None) -> None:
        """Let something happen so many seconds from now; where its owner is frozen or dead then, later or never."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + seconds, self._order, owner, call))

    def run(self, limit: float = 600.0) -> int:
        """Run to the end; return the exit code. A run that is not over at the limit hangs."""
        while self._heap:
            if self.state.phase is Phase.ENDED and not any(each.lives for each in self.members.values()):
                break
            self.now, _, owner, call = heapq.heappop(self._heap)
            assert self.now < limit, f"the run hangs: {self.state.phase}, {self.lines[-3:]}"
            if owner is not None and not owner.lives:
                continue
            if owner is not None and owner.is_frozen:
                owner.postponed.append(call)
                continue
            if (hook := self.before_event.get(self.num_events)) is not None:
                hook()
            self.num_events += 1
            if owner is None or owner.lives:
                call()
        assert self.state.code is not None
        return self.state.code

    def _delay(self) -> float:
        return self.random.choice([0.0, 0.001, self.random.uniform(0.001, 0.05), self.random.uniform(0.0, 0.2)])

    # What happens to members -----------------------------------------------------------------------

    def join(self, is_spare: bool = False) -> SimulatedMember:
        number = len(self.members) + 1
        host = f"host{self.random.randrange(self.hosts)}"
        process = SimulatedMember(Member(number, host, 100 + number, f"{host}:{number}", is_spare), Gate(number))
        self.members[number] = process
        self._send(process, Joined(process.member))
        self.at(self.beat, lambda: self._beat(process), process)
        return process

    def kill(self, process: SimulatedMember, how: str = "was ended by SIGKILL") -> None:
        if process.lives:
            process.lives = False
            self.at(self._delay(), lambda: self.hear(Lost(process.member.number, how, has_exited=True)))

    def cut_off(self, process: SimulatedMember) -> None:
        """Lose its connection; the process lives, and learns of it."""
        if process.lives and process.is_connected:
            process.is_connected = False
            process.token += 1
            self.at(self._delay(), lambda: self.hear(Lost(process.member.number, "has lost its connection")))
            self.at(1.0, lambda: self.kill(process), process)

    def freeze(self, process: SimulatedMember, seconds: float) -> None:
        if process.lives and not process.is_frozen:
            process.is_frozen = True
            self.at(seconds, lambda: self._thaw(process))

    def _thaw(self, process: SimulatedMember) -> None:
        process.is_frozen = False
        postponed, process.postponed = process.postponed, []
        for call in postponed:
            self.at(0.0, call, process)

    def leave(self, process: SimulatedMember, seconds: float) -> None:
        if process.lives and not process.is_leaving:
            process.is_leaving = True
            self._send(process, Leaving(process.member.number, seconds))
            self.at(seconds, lambda: self.kill(process), process)

    def fail(self, process: SimulatedMember, text: str) -> None:
        if process.lives:
            self._send(process, Failed(process.member.number, text))

    # The coordinator -------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.hear(Tick())
        if self.state.phase is not Phase.ENDED:
            self.at(TICK, self._tick)
            return
        for process in self.members.values():
            self.at(self._delay(), lambda process=process: self.kill(process))

    def hear(self, event: Event) -> None:
        self.state, actions = advance(self.state, event, self.now)
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Say):
            self.lines.append(action.line)
        elif isinstance(action, KillMember):
            process = self.members[action.member.number]
            self.at(self._delay(), lambda: self.kill(process))
        else:
            if isinstance(action, Form):
                self._check_world(action.world)
            if isinstance(action, Go):
                self._check_go(action.world)
            for number in action.to:
                process = self.members[number]
                self._arrive(process, lambda process=process: self._take(process, action), to_member=True)

    def _check_world(self, world: World) -> None:
        """What holds for every world."""
        assert world.number == (self.worlds[-1].number if self.worlds else 0) + 1
        assert len(set(world.numbers)) == len(world.members)
        least = self.state.least
        assert least <= len(world.members) <= self.rules.most
        assert set(world.numbers) <= self.state.places.keys()
        for number in world.numbers:
            assert self.members[number].own_step <= world.step, "a completed step would be done again"
        if self.worlds:
            old = [number for number in self.worlds[-1].numbers if number in world.numbers]
            assert old == [number for number in world.numbers if number in old], "survivors change their order"
            assert world.step >= max(self.members[number].own_step for number in old)
        self.worlds.append(world)

    def _check_go(self, number: int) -> None:
        world = self.worlds[-1]
        assert number == world.number
        living = [self.members[each] for each in world.numbers if self.members[each].lives]
        training = [each for each in living if not each.gate.has_finished and each.is_connected]
        assert len({each.value for each in training}) <= 1, "the members hold different states"
        assert len({each.gate.completed for each in training}) <= 1
        self._running = number

    def _send(self, process: SimulatedMember, event: Event) -> None:
        if process.lives and process.is_connected:
            self._arrive(process, lambda: self.hear(event), to_member=False)

    def _arrive(self, process: SimulatedMember, call: Callable[[], None], to_member: bool) -> None:
        moment = process.arrives[to_member] = max(process.arrives[to_member], self.now + self._delay())
        self.at(moment - self.now, call, process if to_member else None)

    # A member --------------------------------------------------------------------------------------

    def _beat(self, process: SimulatedMember) -> None:
        self._send(process, Beat(process.member.number, process.gate.completed))
        self.at(self.beat, lambda: self._beat(process), process)

    def _take(self, process: SimulatedMember, order: Order) -> None:
        if not process.is_connected:
            return
        answer = process.gate.hear(order)
        if answer is not None:
            self._send(process, answer)
        if isinstance(order, Prepare):
            process.prepared_at = self.now + self.random.uniform(0.0, self.random.choice([0.0, 0.2, 0.2, 3.0]))
            moment = process.prepared_at - self.now
            self.at(moment, lambda: self._send(process, Prepared(process.member.number)), process)
        elif isinstance(order, Form):
            process.world = order.world
            process.token += 1
            token = process.token
            prepares = max(0.0, process.prepared_at - self.now)
            seconds = prepares + self.random.uniform(0.01, 0.3)
            self.at(seconds, lambda: self._take_state(process, token), process)
        elif isinstance(order, Go | StopAfter) and process.gate.world == order.world:
            self._begin(process)
        elif isinstance(order, Stop) and order.cut and process.gate.world == order.world:
            process.token += 1  # what is in flight is given up
            if answer is None:
                self.at(self._delay(), lambda: self._send_stopped(process, order.world), process)
        elif isinstance(order, End):
            process.token += 1
            self.at(self._delay(), lambda: self.kill(process, "ended"), process)

    def _send_stopped(self, process: SimulatedMember, world: int) -> None:
        if process.gate.world == world and not process.gate.has_finished:
            self._send(process, process.gate.stopped())

    def _take_state(self, process: SimulatedMember, token: int) -> None:
        """Come into the exchange of a new world, with the state of its first step."""
        if process.token != token or process.world is None or process.gate.has_finished:
            return
        world = process.world
        donor = self.members[world.members[world.donor].number]
        holds = process.gate.holds_state and process.gate.completed == world.step
        if world.step and not holds:
            is_there = donor.lives and donor.is_connected and donor.gate.world == world.number
            if not is_there or donor.gate.completed != world.step:
                self.at(0.05, lambda: self._take_state(process, token), process)
                return
            process.value = donor.value
        elif not world.step:
            process.value = 0
        self._send(process, process.gate.formed(world.number))

    def _begin(self, process: SimulatedMember) -> None:
        """Come to the beginning of the next step."""
        gate = process.gate
        assert process.world is not None
        if process.gate.has_finished or gate.begun > gate.completed:
            return
        if gate.completed >= self.steps:
            if not process.has_closed:
                process.has_closed = True
                self._send(process, Closed(process.member.number))
                self.at(
                    self.random.choice([0.0, self.random.uniform(0.0, 1.0)]), lambda: self._finish(process), process
                )
            return
        may = gate.may_begin()
        if may is False and gate._is_held:
            self._send(process, gate.stopped())
        elif may:
            token = process.token
            self.at(self.random.uniform(0.2, 1.0) * self.compute, lambda: self._give_part(process, token), process)

    def _finish(self, process: SimulatedMember) -> None:
        """Come to the end of the program, behind an evaluation."""
        self._send(process, process.gate.finished())

    def _give_part(self, process: SimulatedMember, token: int) -> None:
        world = process.world
        if process.token != token or world is None:
            return
        place = (world.number, process.gate.begun)
        parts = self._parts.setdefault(place, {})
        parts[process.member.number] = token
        if len(parts) == len(world.members):
            for number, given in parts.items():
                other = self.members[number]
                self.at(self._delay(), lambda other=other, given=given: self._complete(other, given), other)

    def _complete(self, process: SimulatedMember, token: int) -> None:
        if process.token != token or process.world is None:
            return
        if process.member.number in self.state.places:
            assert process.world.number == self._running, "two worlds train at a time"
        process.gate.complete()
        if process.gate.ends_here:
            self.saved.append(process.gate.completed)
        process.own_step = process.gate.completed
        process.value = hash((process.value, process.own_step, process.world.number))
        place = (process.world.number, process.own_step)
        assert self._values.setdefault(place, process.value) == process.value, "a step has two results"
        self._begin(process)


def ended_for_a_reason(simulation: Simulation) -> bool:
    """Whether a run that did not end well says one of the known reasons."""
    state = simulation.state
    known = {
        exits.FAILED: ("has failed 3 times", " failed: "),
        exits.PREEMPTED: ("all who hold the state leave",),
        exits.PEER_LOST: ("nobody is left", "there were fewer than", "came within", "the first worker was lost"),
    }
    return any(words in state.reason for words in known.get(state.code or 0, ()))
