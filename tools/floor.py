"""Print the lower bounds of pyproject.toml as pip constraints, one a line.

Only what users install counts: the tools of the extras `dev`, `test`, `bench` and `release` stay at their newest.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

_TOOLS = ("bench", "dev", "release", "test")

_LOWER_BOUND = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*>=\s*(?P<version>[0-9][^,;\s]*)")


def lower_bounds(project: dict[str, Any]) -> list[str]:
    """Return `name==version` for the lower bound of each run-time requirement; that of another extra has none itself.

    Args:
        project: The `[project]` table of pyproject.toml.

    Raises:
        ValueError: A requirement names no lower bound.

    Example:
        >>> extras = {"ps": ["pyzmq>=26.0"], "examples": ["stratagem[ps]"]}
        >>> lower_bounds({"name": "stratagem", "dependencies": ["jax>=0.7,<1"], "optional-dependencies": extras})
        ['jax==0.7', 'pyzmq==26.0']
    """
    extras = project.get("optional-dependencies", {})
    requirements = [*project["dependencies"], *(r for name in extras if name not in _TOOLS for r in extras[name])]
    bounds = []
    for requirement in requirements:
        if requirement.startswith(f"{project['name']}["):
            continue
        match = _LOWER_BOUND.match(requirement)
        if match is None:
            raise ValueError(f"pyproject.toml: {requirement!r} names no lower bound; write {requirement}>=VERSION.")
        bounds.append(f"{match['name']}=={match['version']}")
    return bounds


if __name__ == "__main__":
    pyproject = Path(__file__).parent.parent / "pyproject.toml"
    print("\n".join(lower_bounds(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"])))
