"""Pages of results: what a table was measured on, and where it is saved (README.md has the rule)."""

from __future__ import annotations

import datetime
import os
import platform
import re
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def cpu_model() -> str:
    """Return the name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def page(title: str, facts: list[str], table: str) -> str:
    """Return a table with what it was measured on, as Markdown.

    Args:
        title: What was measured.
        facts: How, a line each.
        table: The results.
    """
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    lines = [
        f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores; {platform.system()} {platform.release()}; "
        f"Python {platform.python_version()}",
        f"load over the last 15 minutes: {os.getloadavg()[2]:.1f}",
        *facts,
        f"`{command}`",
    ]
    return "\n".join(
        [f"# {title}, {datetime.date.today():%Y-%m-%d}", "", *(f"- {line}" for line in lines), "", table, ""]
    )


def save(theme: str, text: str) -> Path:
    """Save a page as today's of its theme, and return where."""
    hardware = re.sub(r"[^a-z0-9]+", "-", f"{cpu_model()} {len(os.sched_getaffinity(0))} cores".lower()).strip("-")
    path = RESULTS / f"{theme}_{hardware}_{datetime.date.today():%Y-%m-%d}.md"
    path.write_text(text)
    return path
