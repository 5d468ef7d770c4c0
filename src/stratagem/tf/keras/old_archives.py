"""Files that a program fetches to a place of its own choice, as in Keras 2 (`tf.keras.utils.get_file`)."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import tarfile
from collections.abc import Iterable
from typing import Any

import keras


@functools.wraps(keras.utils.get_file)
def get_file(*args: Any, **kwargs: Any) -> str:
    """Fetch a file, unless it exists already (`tf.keras.utils.get_file`).

    In Keras 2 `fname` could be a path, which Keras 3 refuses. The file then has that path, an archive is unpacked next
    to it, and with `untar` the path means the folder in the archive `path.tar.gz`. All else is as in Keras 3.
    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/utils/get_file

    Args:
        *args: The arguments of Keras, in its order.
        **kwargs: The arguments of Keras, by name.

    Returns:
        The file; or, if `fname` is not a path, Keras 3's folder of the archive.

    Example:
        >>> get_file("words.txt", "file:///usr/share/words", cache_dir="/data")  # doctest: +SKIP
        '/data/datasets/words.txt'
    """
    asked = inspect.signature(keras.utils.get_file).bind(*args, **kwargs).arguments
    path = os.fspath(asked.pop("fname", None) or "")
    if os.sep not in path:
        return keras.utils.get_file(*args, **kwargs)
    untar, extract = (asked.pop(name, False) for name in ("untar", "extract"))
    home = asked.pop("cache_dir", None) or os.environ.get("KERAS_HOME", "~/.keras")
    folder, name = os.path.split(os.path.join(os.path.expanduser(home), asked.pop("cache_subdir", "datasets"), path))
    name = name.removesuffix(".tar.gz") if untar else name
    os.makedirs(folder, exist_ok=True)
    archive = f"{name}.tar.gz" if untar else name
    found = keras.utils.get_file(archive, cache_dir=folder, cache_subdir="", **asked)
    unpacked = os.path.join(folder, name)
    if extract or (untar and not os.path.exists(unpacked)):
        if found.endswith(".zip"):
            shutil.unpack_archive(found, folder)
        else:
            _unpack(found, folder)
    return unpacked if untar else found


def _unpack(archive: str, folder: str) -> None:
    """Unpack a tar archive; nothing in it may land outside the folder."""
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):
            opened.extractall(folder, filter="data")
        else:  # Python before 3.11.4, as Debian 12 has it
            opened.extractall(folder, members=inside(opened.getmembers(), folder))


def inside(members: Iterable[tarfile.TarInfo], folder: str) -> list[tarfile.TarInfo]:
    """Return the files and folders of an archive that lie in the folder they are unpacked to; no links.

    Args:
        members: Those of the archive.
        folder: Where to.
    """
    root = os.path.realpath(folder)

    def is_below(name: str) -> bool:
        return os.path.commonpath([root, os.path.realpath(os.path.join(root, name))]) == root

    return [each for each in members if (each.isfile() or each.isdir()) and is_below(each.name)]
