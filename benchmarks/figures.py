"""Figures: the rows of the suite's one table, and the place of that table in README.md."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BEGIN = "<!-- Written by `make bench BENCH_ARGS=--readme`; edits are lost. -->"
END = "<!-- end of what make bench writes -->"


@dataclass(frozen=True)
class Figure:
    """One row of the table.

    Args:
        heading: What was measured; neighbours with the same one stand below it.
        what: Of what, or in which way.
        value: How much, in `unit`.
        unit: As it stands behind the value: ms, s, MiB, GB/s, %, steps/s.
        ratio: Of what was measured to a reference measured in the same run; None where there is none.
        to: The reference.
    """

    heading: str
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
    """Return the table in Markdown, padded so that it can be read in a terminal too.

    Args:
        parts: What each script has found, or why it has not.

    Example:
        >>> steps = [Figure("a step", "plain", 18.0, "ms"), Figure("a step", "ours", 27.0, "ms", 1.5, "plain")]
        >>> print(table({"step_time": steps, "closures": "ended with 1"}))
        | measured                  |  figure | ratio | to    |
        | ------------------------- | ------: | ----: | ----- |
        | **a step** `step_time.py` |         |       |       |
        | plain                     | 18.0 ms |       |       |
        | ours                      | 27.0 ms |  1.50 | plain |
        | **failed** `closures.py`: ended with 1 | | | |
    """
    rows: list[Sequence[str]] = [("measured", "figure", "ratio", "to")]
    for name, found in parts.items():
        if isinstance(found, str):
            rows.append([f"**failed** `{name}.py`: {found}"])
            continue
        for heading, figures in itertools.groupby(found, lambda figure: figure.heading):
            rows.append((f"**{heading}** `{name}.py`", "", "", ""))
            for each in figures:
                ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
                rows.append((each.what, f"{rounded(each.value)} {each.unit}", ratio, each.to))
    widths = [max(map(len, column)) for column in zip(*(row for row in rows if len(row) > 1), strict=True)]
    first, *others = (_line(row, widths) for row in rows)
    what, figure, ratio, to = ("-" * width for width in widths)
    return "\n".join([first, f"| {what} | {figure[1:]}: | {ratio[1:]}: | {to} |", *others])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row with its cells padded, numbers to the right; a row of a single cell stays as long as it is."""
    if len(row) == 1:
        return f"| {row[0]} | | | |"
    what, figure, ratio, to = widths
    return f"| {row[0]:<{what}} | {row[1]:>{figure}} | {row[2]:>{ratio}} | {row[3]:<{to}} |"


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
