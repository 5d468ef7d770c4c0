"""Tables of the names of `stratagem.tf`: for each of its modules the homes of its names.

A home that begins with a dot lies in `stratagem.tf`. After a home stand the names that come from there: `abs`, or
`is_nan=isnan` where the home has another name; `*` stands for all public names of the home that the table does not
have. After the empty home stand modules: `gfile` lies in the module itself, `numpy=jax.numpy` elsewhere. Modules that
have a table are names of the module above them without being listed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, NamedTuple

from stratagem.tf.names.compat_v1 import COMPAT_V1
from stratagem.tf.names.general import GENERAL
from stratagem.tf.names.keras import KERAS
from stratagem.tf.names.private import PRIVATE

ROOT: Final = "stratagem.tf"

TABLES: Final = {**GENERAL, **COMPAT_V1, **KERAS, **PRIVATE}
"""The table of each module, by its path below `stratagem.tf`."""


class Names(NamedTuple):
    """The names of a module.

    Attributes:
        homes: For each name `"package.module:name"`, or `"package.module"` for a module.
        behind: A module whose public names are this module's too; None if there is none.
    """

    homes: Mapping[str, str]
    behind: str | None


@functools.cache
def names_of(module: str) -> Names:
    """Return the names that the tables have of a module; none of one that has no table.

    Args:
        module: Its full name, `stratagem.tf` or below.

    Example:
        >>> names_of("stratagem.tf.train").behind, names_of("stratagem.tf.train").homes["load_variable"]
        ('stratagem.train', 'stratagem.tf.checkpoints:load_variable')
    """
    path = _path(module)
    homes: dict[str, str] = {}
    behind = None
    for home, words in TABLES.get(path, {}).items():
        for name, _, other in (word.partition("=") for word in words.split()):
            if name == "*":
                behind = _full(home)
            elif home:
                homes[name] = f"{_full(home)}:{other or name}"
            else:
                homes[name] = _full(other or f".{path}.{name}")
    for child in TABLES:
        above, _, name = child.rpartition(".")
        if child and above == path:
            homes[name] = f"{ROOT}.{child}"
    return Names(homes, behind)


def has_table(module: str) -> bool:
    """Return whether the tables have a module.

    Example:
        >>> has_table("stratagem.tf.keras.layers"), has_table("stratagem.tf.lite")
        (True, False)
    """
    return f"{module}.".startswith(f"{ROOT}.") and _path(module) in TABLES


def _path(module: str) -> str:
    """Return the path of a module below `stratagem.tf`, empty for that itself."""
    return module.removeprefix(ROOT).removeprefix(".")


def _full(home: str) -> str:
    """Return the full name of a home; one that begins with a dot lies in `stratagem.tf`."""
    return f"{ROOT}.{home.strip('.')}".rstrip(".") if home.startswith(".") else home
