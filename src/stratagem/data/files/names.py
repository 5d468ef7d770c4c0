"""Names of files, in every form in which programs write them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stratagem.core.errors import InputError


def paths_of(filenames: Any) -> list[str]:
    """Return the paths that `filenames` names.

    Args:
        filenames: A name (str, bytes, `os.PathLike`, an array without axes, a tensor), or a list or array of names.

    Raises:
        InputError: Something is no name.

    Example:
        >>> paths_of("a.tfrecord"), paths_of([b"a.tfrecord", "b.tfrecord"])
        (['a.tfrecord'], ['a.tfrecord', 'b.tfrecord'])
    """
    if isinstance(filenames, str | bytes | os.PathLike):
        return [os.fsdecode(filenames)]
    if hasattr(filenames, "__array__"):
        filenames = np.asarray(filenames).tolist()
        if isinstance(filenames, str | bytes):
            return [os.fsdecode(filenames)]
    if isinstance(filenames, list | tuple):
        return [path for name in filenames for path in paths_of(name)]
    raise InputError(
        f"filenames has {filenames!r}, which is no name of a file.",
        "Give a name, a list of names, or a dataset of names such as Dataset.list_files makes.",
    )
