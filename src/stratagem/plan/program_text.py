"""Read the text of a compiled program: its computations, their instructions in scheduled order, and their sizes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final

_HEADER = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .*\{")
_LINE = re.compile(r"\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = ")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_ARRAY = re.compile(r"\b(pred|token|[a-z]+\d+\w*)\[([\d,<=]*)\](\{[^}]*\})?")
_ON_CHIP = re.compile(r"S\([1-9]\d*\)")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(
    r"\b(calls|body|condition|to_apply|called_computations|branch_computations|true_computation|false_computation)="
    r"\{?(%[\w.\-]+(?:, ?%[\w.\-]+)*)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_BITS = re.compile(r"\d+")

_NO_WORK: Final = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id")
"""Instructions that move nothing."""


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Args:
        name: Its name.
        opcode: Its operation, such as "fusion" or "all-reduce-start".
        shape: Text of the shape of its result.
        inside: Text of its operands.
        rest: Text after these.
    """

    name: str
    opcode: str
    shape: str
    inside: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """Names of its operands."""
        return _OPERAND.findall(self.inside)

    @property
    def nbytes(self) -> int:
        """Bytes of its result, all parts of a tuple."""
        return sum(array_bytes(self.shape))

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of its result that are in the memory of the device, and not beside its cores."""
        arrays = zip(array_bytes(self.shape), _ARRAY.findall(self.shape), strict=True)
        return sum(nbytes for nbytes, (_, _, layout) in arrays if not _ON_CHIP.search(layout))

    @property
    def works(self) -> bool:
        """Whether it computes or moves something."""
        return self.opcode not in _NO_WORK

    @property
    def op_name(self) -> str:
        """The place in the user's program that it comes from, as JAX names it."""
        found = _OP_NAME.search(self.rest)
        return found[1] if found else ""

    @property
    def called(self) -> dict[str, list[str]]:
        """Names of the computations that it calls, by the names of the attributes."""
        return {kind: _OPERAND.findall(names) for kind, names in _CALLED.findall(self.rest)}


@dataclass
class ProgramText:
    """A compiled program.

    Args:
        computations: Their instructions, by name.
        entry: Name of the computation that runs.
    """

    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    entry: str = ""

    def turns(self, loop: Instruction) -> int:
        """Return how often a loop turns; 1 if that is not known.

        Compilers for CPUs and GPUs write it down. The compiler for TPUs does not; its loops from JAX count from 0 up
        to a number.
        """
        found = _TRIPS.search(loop.rest)
        if found is not None:
            return int(found[1])
        for name in loop.called.get("condition", []):
            own = self.computations.get(name, [])
            compared = [each for each in own[-1:] if each.opcode == "compare" and "direction=LT" in each.rest]
            limits = {name for each in compared for name in each.operands}
            for each in own:
                if each.opcode == "constant" and each.inside.isdigit() and each.name in limits:
                    return int(each.inside)
        return 1


def parsed(text: str) -> ProgramText:
    """Return a program from its text, `compiled.as_text()`.

    Example:
        >>> text = '''ENTRY %main (p: f32[4]) -> f32[4] {
        ...   %p = f32[4]{0} parameter(0)
        ...   ROOT %n = f32[4]{0:T(128)} negate(%p), metadata={op_name="jit(f)/neg"}
        ... }'''
        >>> [(each.opcode, each.nbytes, each.op_name) for each in parsed(text).computations["main"]]
        [('parameter', 16, ''), ('negate', 16, 'jit(f)/neg')]
    """
    program = ProgramText()
    own: list[Instruction] | None = None
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header is not None and not line.startswith(" "):
            own = program.computations[header["name"]] = []
            if header["entry"]:
                program.entry = header["name"]
        elif own is not None and (begin := _LINE.match(line)) is not None:
            own.append(_instruction(begin["name"], line[begin.end() :]))
    return program


def _instruction(name: str, text: str) -> Instruction:
    end = _closed(text, 0) if text.startswith("(") else text.index(" ")
    opcode = _OPCODE.match(text, end)
    assert opcode is not None, f"This is not an instruction of XLA: {text[:200]}"
    last = _closed(text, opcode.end() - 1)
    return Instruction(name, opcode[1], text[:end], text[opcode.end() : last - 1], text[last:])


def _closed(text: str, begin: int) -> int:
    """Return the place behind the parenthesis that closes the one at `begin`."""
    depth = 0
    for place in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def array_bytes(shape: str) -> list[int]:
    """Return the bytes of each array of a shape.

    Example:
        >>> array_bytes("(f32[2,3]{1,0:T(8,128)}, bf16[4]{0}, pred[], s4[8])")
        [24, 8, 1, 4]
    """
    return [_array_bytes(kind, sizes) for kind, sizes, _ in _ARRAY.findall(shape)]


def _array_bytes(kind: str, sizes: str) -> int:
    if kind == "token":
        return 0
    bits = 8 if kind == "pred" else int(_BITS.search(kind)[0])  # type: ignore[index]
    number = math.prod(int(size.lstrip("<=")) for size in sizes.split(",") if size)
    return math.ceil(number * bits / 8)
