"""Bytes that a compiled program sends: what its collectives carry, by its text."""

from __future__ import annotations

import math
import re

COLLECTIVE = re.compile(
    r" = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all)\(.*"
    r"replica_groups=(\{\{.*?\}\}|mesh\[.*?\] \{.*?\}|\[\d+,\d+\]<=)"
)
"""What a collective makes, one array or several; its kind; its groups."""


def sent_by_a_worker(text: str) -> dict[str, float]:
    """Return how many bytes the first worker has to send in the collectives of a program, by their kind.

    Of n workers in a group each sends all but its part of a sum in shards and of what each has for each, its own shard
    n - 1 times over, and where a sum is not divided both a sum in shards and the gather of it.

    Args:
        text: A program as XLA has compiled it for workers with a device each.
    """
    sent: dict[str, float] = {}
    for made, kind, groups in COLLECTIVE.findall(text):
        members = _members(groups)
        parts = {"all-gather": 1 / members, "all-to-all": 1 / members, "all-reduce": 2 / members, "reduce-scatter": 1}
        sent[kind] = sent.get(kind, 0) + _nbytes(made) * parts[kind] * (members - 1)
    return sent


def _members(groups: str) -> int:
    """Return how many workers are in the first one's group.

    They are written as `{{0,1},{2,3}}`, as `[2,2]<=[4]` (groups, members), or by the axes of a mesh, as
    `mesh['replica'=4] {'replica'}`.
    """
    if groups.startswith("{"):
        return next(group for group in re.findall(r"\{([\d,]+)\}", groups) if "0" in group.split(",")).count(",") + 1
    if groups.startswith("["):
        return int(re.findall(r"\d+", groups)[1])
    sizes, axes = groups.removeprefix("mesh").split("] ")
    return math.prod(int(size) for axis, size in re.findall(r"('\w+')=(\d+)", sizes) if axis in axes)


def _nbytes(made: str) -> int:
    """Return the bytes of arrays, written as `f32[2,3]{1,0}`."""
    nbytes = 0
    for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", made):
        numbers = math.prod(map(int, shape.split(","))) if shape else 1
        nbytes += numbers * max(int(re.sub(r"\D", "", dtype) or 8), 8) // 8
    return nbytes
