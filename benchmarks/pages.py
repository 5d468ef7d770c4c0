"""Pages of results: what a table was measured on, and where it is saved (README.md has the rule)."""

from __future__ import annotations

import datetime
import os
import platform
import re
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"

VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}
"""Vectors of a processor, widest first, by its flag for them: contenders gain differently from wide ones."""


def processor(cpu_info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor, and the widest vectors it has.

    Args:
        cpu_info: Where Linux describes the processors, which are alike.
    """
    lines = (line.partition(":") for line in cpu_info.read_text().splitlines())
    first = {name.strip(): value.strip() for name, _, value in reversed([*lines])}
    name = first.get("model name", platform.machine())
    flags = first.get("flags", "").split()
    return " with ".join([name, *[words for flag, words in VECTORS.items() if flag in flags][:1]])


def hardware() -> str:
    """Return the processor and how many of its cores this process may use."""
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores"


def command() -> str:
    """Return the command that made a page, as it is written at the root of the project."""
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def page(title: str, facts: list[str], table: str) -> str:
    """Return a table with what it was measured on, as Markdown.

    Args:
        title: What was measured.
        facts: How, a line each.
        table: The results.
    """
    lines = [
        f"{hardware()}; {platform.system()} {platform.release()}; Python {platform.python_version()}",
        f"load over the last 15 minutes: {os.getloadavg()[2]:.1f}",
        *facts,
        f"`{command()}`",
    ]
    return "\n".join(
        [f"# {title}, {datetime.date.today():%Y-%m-%d}", "", *(f"- {line}" for line in lines), "", table, ""]
    )


def place(theme: str, suffix: str = ".md", on: str | None = None) -> Path:
    """Return where today's page of a theme lies, or a picture of it.

    Args:
        theme: How its name begins.
        suffix: How it ends.
        on: What was measured on; None for the processor.
    """
    machine = re.sub(r"[^a-z0-9]+", "-", (on or hardware()).lower()).strip("-")
    return RESULTS / f"{theme}_{machine}_{datetime.date.today():%Y-%m-%d}{suffix}"


def save(theme: str, text: str) -> Path:
    """Save a page as today's of its theme, and return where."""
    path = place(theme)
    path.write_text(text)
    return path
