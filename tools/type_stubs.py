"""Writes the files by which type checkers find the modules of `stratagem.tf` that are made from tables.

Python needs none of them. The wheel has them (`hatch_build.py`); in a checkout this program writes them.
"""

from __future__ import annotations

import runpy
from pathlib import Path

_TF = Path(__file__).parents[1] / "src" / "stratagem" / "tf"

_STUB = '''"""Names of `stratagem.tf.{}`, for type checkers: each may be anything."""

from typing import Any

def __getattr__(name: str) -> Any: ...
'''


def tables() -> set[str]:
    """Return the modules that have a table, by their paths below `stratagem.tf`; the package is not imported."""
    parts = {"general": "GENERAL", "compat_v1": "COMPAT_V1", "keras": "KERAS", "private": "PRIVATE"}
    return {path for file, name in parts.items() for path in runpy.run_path(str(_TF / "names" / f"{file}.py"))[name]}


def stubs(folder: Path = _TF) -> dict[Path, str]:
    """Return the files to write, and their text.

    Args:
        folder: The folder of `stratagem.tf`.
    """
    modules = tables()
    files = {}
    for path in modules - {""}:
        module = folder.joinpath(*path.split("."))
        if (module / "__init__.py").exists() or module.with_suffix(".py").exists():
            continue
        is_package = any(other.startswith(f"{path}.") for other in modules)
        files[module / "__init__.pyi" if is_package else module.with_suffix(".pyi")] = _STUB.format(path)
    return files


def write() -> None:
    """Write the files beside the sources."""
    for file, text in stubs().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
