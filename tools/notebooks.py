"""Notebooks from their sources: `python -m tools.notebooks` writes each `notebooks/NAME.ipynb` from `NAME.md`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import jupytext
import nbformat

FOLDER: Final = Path(__file__).parents[1] / "notebooks"


def sources() -> list[Path]:
    """Return the sources of all notebooks."""
    return sorted(FOLDER.glob("*.md"))


def converted(markdown: str) -> Any:
    r"""Return a notebook, without outputs, which is the same whenever and wherever it is made.

    Args:
        markdown: Its source.

    Example:
        >>> notebook = converted("# Title\n\n```python\nprint(1)\n```\n")
        >>> [(cell.cell_type, cell.id, cell.source) for cell in notebook.cells]
        [('markdown', 'cell-1', '# Title'), ('code', 'cell-2', 'print(1)')]
    """
    notebook = jupytext.reads(markdown, fmt="md")
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"  # jupytext draws one
        cell.metadata = nbformat.from_dict({})
    return notebook


def text(markdown: str) -> str:
    """Return the file of a notebook.

    Args:
        markdown: Its source.
    """
    return nbformat.writes(converted(markdown)).rstrip("\n") + "\n"


def main() -> int:
    """Write all notebooks; return the exit code."""
    for source in sources():
        source.with_suffix(".ipynb").write_text(text(source.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
