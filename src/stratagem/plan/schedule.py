"""The schedule of a compiled program: its collectives, what runs beside them, and what it moves through memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stratagem.plan.program_text import Instruction, ProgramText

_COLLECTIVES: Final = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
_BACKWARD: Final = "transpose(jvp"
"""Part of the names that JAX gives to what comes of a backward pass."""

_ON_HOST = re.compile(r'custom_call_target="xla_(ffi_)?python_')
"""Targets of custom calls that Python on the host answers, on CPUs and GPUs."""

_TO_HOST: Final = "is_host_transfer=true"
"""Mark of what a TPU sends to Python on the host."""


@dataclass(frozen=True)
class Collective:
    """One exchange of a step among the devices.

    Args:
        kind: "all-reduce", "all-gather", ...
        nbytes: Bytes of the array that it makes, on each device.
        times: How often a step does it.
        beside: Instructions that run between its start and its end.
        backward: How many of them belong to the backward pass.
        moved: Bytes that all these instructions move through memory.
    """

    kind: str
    nbytes: int
    times: int = 1
    beside: int = 0
    backward: int = 0
    moved: int = 0


@dataclass(frozen=True)
class Schedule:
    """Collectives, memory traffic and host calls of a compiled step.

    Args:
        collectives: The collectives, in order.
        moved: Bytes that the step moves through the memory of a device.
        host_calls: Number of calls that wait for Python on the host.
    """

    collectives: tuple[Collective, ...]
    moved: int
    host_calls: int

    @property
    def crossing(self) -> int:
        """Bytes of all collectives of a step."""
        return sum(each.nbytes * each.times for each in self.collectives)

    @property
    def beside_backward(self) -> float:
        """Share of these bytes that are exchanged while the backward pass computes."""
        beside = sum(each.nbytes * each.times for each in self.collectives if each.backward)
        return beside / self.crossing if self.crossing else 0.0


def schedule_of(program: ProgramText) -> Schedule:
    """Return what a compiled program does, according to its text.

    Args:
        program: The program.
    """
    collectives: list[Collective] = []
    moved = host_calls = 0
    for name, times in _computations(program, program.entry, 1):
        own = program.computations[name]
        sizes = {each.name: each.bytes_in_memory for each in own}
        traffic = [_moved(each, sizes) for each in own]
        for place, each in enumerate(own):
            moved += times * traffic[place]
            host_calls += times * _asks_host(each)
            kind = _kind(program, each)
            if kind is not None:
                collectives.append(_collective(kind, own, place, _end(own, place), traffic, times))
    return Schedule(tuple(collectives), moved, host_calls)


def _computations(program: ProgramText, name: str, times: int) -> list[tuple[str, int]]:
    """Return the computations whose instructions run one by one, and how often each."""
    found = [(name, times)]
    for each in program.computations[name]:
        if each.opcode == "while":
            inner = [(body, times * program.turns(each)) for body in each.called.get("body", [])]
        elif each.opcode in ("call", "conditional"):
            inner = [(other, times) for names in each.called.values() for other in names]
        else:
            continue
        for other, turns in inner:
            found += _computations(program, other, turns)
    return found


def _kind(program: ProgramText, each: Instruction) -> str | None:
    """Return which collective an instruction begins; None for others."""
    opcode = each.opcode.removesuffix("-start")
    if opcode in _COLLECTIVES:
        return opcode
    if each.opcode in ("async-start", "fusion"):
        for names in each.called.values():
            for name in names:
                kinds = [_kind(program, inner) for inner in program.computations.get(name, ())]
                found = next(filter(None, kinds), None)
                if found is not None:
                    return found
    return None


def _end(own: Sequence[Instruction], place: int) -> int:
    """Return the place of the instruction that has the result of a collective."""
    start = own[place]
    if start.opcode.endswith("-start"):
        for later in range(place + 1, len(own)):
            if own[later].opcode.endswith("-done") and start.name in own[later].operands:
                return later
    return place


def _collective(
    kind: str, own: Sequence[Instruction], place: int, end: int, traffic: Sequence[int], times: int
) -> Collective:
    nbytes = own[end].nbytes
    if '"is_sync":true' in own[place].rest:
        return Collective(kind, nbytes, times)
    beside = [each for each in own[place + 1 : end] if each.works and not each.opcode.endswith(("-start", "-done"))]
    backward = sum(_BACKWARD in each.op_name for each in beside)
    return Collective(kind, nbytes, times, len(beside), backward, sum(traffic[place + 1 : end]))


def _moved(each: Instruction, sizes: dict[str, int]) -> int:
    """Return the bytes that an instruction reads from memory and writes to it."""
    if not each.works or each.opcode in ("while", "call", "conditional") or each.opcode.endswith("-done"):
        return 0
    read = sum(sizes.get(operand, 0) for operand in each.operands)
    written = each.bytes_in_memory
    return max(read, written) if each.opcode.endswith("-start") else read + written


def _asks_host(each: Instruction) -> bool:
    if each.opcode in ("send", "recv"):
        return each.opcode == "send" and _TO_HOST in each.rest
    return each.opcode == "custom-call" and _ON_HOST.search(each.rest) is not None
