"""Running of a user's script as Python runs it, in this process."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stratagem.core.errors import InputError


def running_script(path: str, arguments: Sequence[str], example: str) -> Callable[[], Any]:
    """Return a function that runs a script as Python does.

    Args:
        path: The script.
        arguments: Those of its command line.
        example: A command that names a script rightly, for the error.

    Raises:
        InputError: There is no such file.
    """
    if not Path(path).is_file():
        raise InputError(f"There is no file {path}.", f"Name a program: {example}")

    def act() -> None:
        sys.argv = [path, *arguments]
        sys.path.insert(0, os.fspath(Path(path).absolute().parent))
        runpy.run_path(path, run_name="__main__")

    return act
