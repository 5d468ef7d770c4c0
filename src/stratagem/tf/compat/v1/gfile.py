"""`tf.compat.v1.gfile`: the names that `tf.io.gfile` had."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    old: f"stratagem.tf.io.gfile:{new}"
    for old, new in {
        "Copy": "copy",
        "DeleteRecursively": "rmtree",
        "Exists": "exists",
        "FastGFile": "GFile",
        "GFile": "GFile",
        "Glob": "glob",
        "IsDirectory": "isdir",
        "ListDirectory": "listdir",
        "MakeDirs": "makedirs",
        "MkDir": "mkdir",
        "Open": "GFile",
        "Remove": "remove",
        "Rename": "rename",
        "Stat": "stat",
        "Walk": "walk",
    }.items()
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
