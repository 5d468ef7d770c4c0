"""Findings of checks, each with a verdict and a repair, and a table of them for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["ok", "warn", "FAIL"]

_WIDTH: Final = 100
"""Columns of the table; what is found wraps inside its column."""


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Args:
        check: What was looked at, in one or two words.
        verdict: "ok"; "warn" for what makes training slower or riskier; "FAIL" for what would end it.
        found: What was found, with its values and the tasks.
        repair: What to do about it; empty when all is well.
    """

    check: str
    verdict: Verdict
    found: str
    repair: str = ""


def passed(check: str, found: str) -> Finding:
    """Return the finding of a check that found nothing wrong."""
    return Finding(check, "ok", found)


def has_failed(findings: Iterable[Finding]) -> bool:
    """Whether training would end at something of this."""
    return any(finding.verdict == "FAIL" for finding in findings)


def table(findings: Sequence[Finding]) -> str:
    """Return findings as a table for a terminal.

    Example:
        >>> print(table([passed("devices", "1 CPU"), Finding("disk", "FAIL", "/b is full", "Make room.")]))
        check    verdict  found
        devices  ok       1 CPU
        disk     FAIL     /b is full
                          -> Make room.
    """
    first = max(len("check"), *(len(finding.check) for finding in findings))
    indent = first + len("  verdict  ")
    lines = [f"{'check':{first}}  verdict  found"]
    for finding in findings:
        found = _wrapped(finding.found, "", indent)
        repair = _wrapped(finding.repair, "-> ", indent) if finding.repair else []
        lines.append(f"{finding.check:{first}}  {finding.verdict:7}  {found[0]}")
        lines += [" " * indent + line for line in (*found[1:], *repair)]
    return "\n".join(lines)


def size(nbytes: float) -> str:
    """Return bytes as reports have them.

    Example:
        >>> size(33_448_592), size(2.1e9), size(512)
        ('33.4 MB', '2.1 GB', '512 B')
    """
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= least:
            return f"{nbytes / least:.1f} {unit}"
    return f"{nbytes:.0f} B"


def _wrapped(text: str, mark: str, indent: int) -> list[str]:
    lines = []
    for number, line in enumerate(text.splitlines() or [""]):
        start = mark if number == 0 else " " * len(mark)
        wrapped = textwrap.wrap(
            line,
            max(40, _WIDTH - indent),
            initial_indent=start,
            subsequent_indent=" " * len(mark),
            break_on_hyphens=False,  # paths and addresses are copied from here
        )
        lines += wrapped or [start]
    return lines
