"""What hatchling does before it builds Stratagem: files for type checkers are written (`tools/type_stubs.py`)."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # pyright: ignore[reportMissingImports]


class TypeStubs(BuildHookInterface):
    """Writes the files for type checkers."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write them, before files are collected."""
        runpy.run_path(str(Path(self.root) / "tools" / "type_stubs.py"))["write"]()
