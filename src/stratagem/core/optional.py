"""Packages that only some users need, loaded when they are first used."""

from __future__ import annotations

import importlib
from typing import Any

from stratagem.core.errors import InputError


def load(package: str, extra: str, purpose: str) -> Any:
    """Import a package that belongs to an extra of Stratagem.

    Args:
        package: The name to import.
        extra: The extra in `pyproject.toml` that installs it.
        purpose: What needs it, as the subject of a sentence.

    Returns:
        The module.

    Raises:
        InputError: It is not installed; the message says how to.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"{purpose} needs {package}, which cannot be imported: {error}.",
            f'Install it: pip install "stratagem[{extra}]".',
        ) from error
