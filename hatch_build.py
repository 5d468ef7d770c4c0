"""Work before Stratagem is built: files for type checkers are written, guides are put into the wheel."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # pyright: ignore[reportMissingImports]


class Prepared(BuildHookInterface):
    """Writes the files for type checkers (`tools/type_stubs.py`), and adds the guides for `stratagem help`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Do both, before files are collected.

        Args:
            version: "standard", or "editable" for an installation that reads the checkout, and the guides there.
            build_data: What hatchling goes by.
        """
        root = Path(self.root)
        runpy.run_path(str(root / "tools" / "type_stubs.py"))["write"]()
        if version != "editable":
            guides = [*(root / "docs").glob("*.md"), root / "SECURITY.md"]
            build_data["force_include"].update({str(guide): f"stratagem/guides/{guide.name}" for guide in guides})
