"""What a row's tests found: from the report that pytest writes to a verdict and a note."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

WORKS: Final = "works"
WITH_A_NOTE: Final = "works with a note"
FAILS: Final = "**fails**"
NOT_TRIED: Final = "not tried"

_SHOWN: Final = 6
"""How many tests that fail are named in the table."""


@dataclass(frozen=True)
class Report:
    """What pytest did.

    Args:
        passed: How many tests passed.
        failed: The tests that did not, in their order, with the first line of what went wrong.
        left_out: The tests that were skipped, or failed as they are marked to (xfail), with the reason.
    """

    passed: int
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def read_report(xml: str) -> Report:
    """Return what a report in JUnit's format says.

    Args:
        xml: The text of the file.

    Example:
        >>> one = '<testcase classname="tests.a" name="test_b"><failure message="no"/></testcase>'
        >>> read_report(f"<testsuites><testsuite>{one}</testsuite></testsuites>")
        Report(passed=0, failed={'tests.a::test_b': 'no'}, left_out={})
    """
    passed, failed, left_out = 0, {}, {}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}".removeprefix("::")  # a file that cannot be imported
        skipped = case.find("skipped")
        wrong = [*case.findall("failure"), *case.findall("error")]
        if wrong:
            failed.setdefault(name, _what_went_wrong(wrong[0]))
        elif skipped is not None:
            left_out[name] = skipped.get("message") or "no reason given"
        else:
            passed += 1
    return Report(passed, failed, left_out)


def _what_went_wrong(element: ElementTree.Element) -> str:
    """Return the line with the exception: that of the message, or, where a file cannot be imported, of the text."""
    lines = [element.get("message") or "", *(line[1:] for line in (element.text or "").splitlines() if line[:1] == "E")]
    told = (line.strip() for line in lines if re.match(r"\s*[\w.]*(Error|Exception|Warning)\b", line))
    return one_line(next(told, lines[0]).partition("\n")[0])


def verdict(report: Report, code: int) -> tuple[str, str]:
    """Return a row's verdict and its note.

    Args:
        report: What pytest did.
        code: Its exit code.

    Example:
        >>> verdict(Report(10, {}, {"a": "needs Keras 3.15", "b": "needs an NVIDIA GPU"}), 0)
        ('works with a note', '10 tests; left out: needs Keras 3.15 (1)')
        >>> verdict(Report(10, {"tests.a::test_b": "KeyError: 'c'"}), 1)
        ('**fails**', "1 of 11 tests: a::test_b; most often: KeyError: 'c' (1)")
    """
    if report.failed:
        names = [name.removeprefix("tests.") for name in report.failed]
        more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        ((often, count),) = Counter(report.failed.values()).most_common(1)
        said = f"{', '.join(names[:_SHOWN])}{more}; most often: {often} ({count})"
        return FAILS, f"{len(names)} of {report.passed + len(names)} tests: {said}"
    if code != 0 or not report.passed:
        return FAILS, f"pytest ended with exit code {code}, before all tests had run"
    own = Counter(one_line(reason) for reason in report.left_out.values() if is_of_a_version(reason))
    if not own:
        return WORKS, f"{report.passed} tests"
    reasons = "; ".join(f"{reason} ({count})" for reason, count in own.most_common())
    return WITH_A_NOTE, f"{report.passed} tests; left out: {reasons}"


def is_of_a_version(reason: str) -> bool:
    """Tell whether a test is left out because of a version, rather than for want of something on this machine.

    Example:
        >>> [is_of_a_version(each) for each in ("Keras 3.16 scans itself", "before JAX 0.8", "needs an NVIDIA GPU")]
        [True, True, False]
    """
    return re.search(r"\b(JAX|jaxlib|Keras|NumPy|Python)[ <>=]*\d", reason, re.IGNORECASE) is not None


def wanting(reports: Iterable[Report]) -> dict[str, int]:
    """Return why tests were left out for want of something on this machine, and how many, in the row with the most."""
    most: dict[str, int] = {}
    for report in reports:
        reasons = Counter(one_line(reason) for reason in report.left_out.values() if not is_of_a_version(reason))
        most |= {reason: max(count, most.get(reason, 0)) for reason, count in reasons.items()}
    return most


def one_line(text: str) -> str:
    r"""Return a text that fits into a cell of a table.

    Example:
        >>> one_line("a | b\n  c")
        'a / b c'
    """
    return re.sub(r"\s+", " ", text.replace("|", "/")).strip()
