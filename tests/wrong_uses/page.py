"""The page of wrong uses in the documentation, made of the tables: `python -m tests.wrong_uses.page` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.wrong_uses import clusters, strategies, training
from tests.wrong_uses.clusters import Command
from tests.wrong_uses.row import Wrong

PAGE: Final = Path(__file__).parents[2] / "docs" / "wrong_uses.md"

IN_PROCESS: Final[dict[str, Sequence[Wrong]]] = {
    "Strategies": strategies.STRATEGIES,
    "Scopes": strategies.SCOPES,
    "strategy.run": strategies.RUN,
    "Values of replicas": strategies.REPLICAS,
    "Data": training.DATA,
    "fit, evaluate, predict": training.FIT,
    "Your own steps": training.STEPS,
    "Saving": training.SAVED,
    "TF_CONFIG": clusters.TF_CONFIG,
    "Parameter servers": clusters.SERVERS,
    "Estimators": clusters.ESTIMATORS,
    "stratagem.tf": clusters.TENSORFLOW,
}
COMMANDS: Final[dict[str, Sequence[Command]]] = {
    "Commands": clusters.COMMANDS,
    "Several workers": clusters.WORKERS,
}

_BEGINNING: Final = """# Wrong uses and their messages

Each wrong use on this page ends in an error or a warning. The message names what was found and what to write instead.
The tables quote a piece of both. `tests/wrong_uses` runs every line and compares. Do not edit this page:
`python -m tests.wrong_uses.page` writes it from the tables of the tests.
"""

_HEADER: Final = ("| wrong use | what the message says | its remedy |", "| --- | --- | --- |")


def page() -> str:
    """Return the page."""
    parts = [_BEGINNING]
    for topic, rows in {**IN_PROCESS, **COMMANDS}.items():
        lines = [f"| {row.use} | {_cell(row.found)} | {_cell(row.remedy)} |" for row in rows]
        parts.append("\n".join([f"## {topic}", "", *_HEADER, *lines, ""]))
    return "\n".join(parts)


def _cell(text: str) -> str:
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
