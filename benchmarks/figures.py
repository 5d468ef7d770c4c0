"""Figures: the rows of the suite's one table, and the place of that table in README.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BEGIN = "<!-- Written by `make bench BENCH_ARGS=--readme`; edits are lost. -->"
END = "<!-- end of what make bench writes -->"


@dataclass(frozen=True)
class Figure:
    """One row of the table.

    Args:
        what: What was measured.
        value: How much, in `unit`.
        unit: As it stands behind the value: ms, s, MiB, GB/s, %, steps/s.
        ratio: Of what was measured to a reference measured in the same run; None where there is none.
        to: The reference.
    """

    what: str
    value: float
    unit: str
    ratio: float | None = None
    to: str = ""


def rounded(value: float) -> str:
    """Return a value with three digits that count.

    Example:
        >>> [rounded(value) for value in (0.0312, 1.5, 27.04, 1234.5, 0.0, -2.345)]
        ['0.0312', '1.50', '27.0', '1,234', '0', '-2.35']
    """
    if value == 0:
        return "0"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def table(parts: Mapping[str, Sequence[Figure] | str]) -> str:
    """Return the table in Markdown.

    Args:
        parts: What each script has found, or why it has not.

    Example:
        >>> print(table({"step_time": [Figure("a step", 27.0, "ms", 1.5, "one process")], "closures": "ended with 1"}))
        | measured | figure | ratio | to | script |
        | --- | ---: | ---: | --- | --- |
        | a step | 27.0 ms | 1.50 | one process | `step_time.py` |
        | **failed**: ended with 1 | | | | `closures.py` |
    """
    lines = ["| measured | figure | ratio | to | script |", "| --- | ---: | ---: | --- | --- |"]
    for name, found in parts.items():
        if isinstance(found, str):
            lines.append(f"| **failed**: {found} | | | | `{name}.py` |")
            continue
        for each in found:
            ratio = "" if each.ratio is None else f" {each.ratio:.2f}"
            to = f" {each.to}" if each.to else ""
            lines.append(f"| {each.what} | {rounded(each.value)} {each.unit} |{ratio} |{to} | `{name}.py` |")
    return "\n".join(lines)


def with_block(page: str, block: str) -> str:
    """Return a page with what stands between its two marks written anew.

    Args:
        page: Markdown with the lines `BEGIN` and `END`.
        block: What shall stand between them.

    Raises:
        ValueError: The page does not have both, once each and in order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in before + after:
        raise ValueError(f"The page needs these two lines once each, in this order:\n{BEGIN}\n{END}")
    return f"{before}{BEGIN}\n\n{block.strip()}\n\n{END}{after}"
