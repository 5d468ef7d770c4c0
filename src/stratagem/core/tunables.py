"""Tunables of the C library: what glibc reads when a process starts, for processes that are started to train on CPUs.

XLA:CPU takes the intermediate results of a step as one block, at an address that is a multiple of 64. For that glibc
takes 96 bytes more, and cuts off what is too much. Before 2.39 the thread keeps what was cut off for its own small
blocks (in its cache, called tcache). So the large block, once it is free, is too small for the next step by these 96
bytes, and the next step takes new memory behind it: blocks of two to four steps lie side by side, or those of all steps
where something small is kept of each, as a profiler does (https://sourceware.org/bugzilla/show_bug.cgi?id=30723).

Without that cache what is cut off joins what is free beside it, as freed blocks of up to 128 bytes do at once
(`core.freed_memory`): those that wait for blocks of their size may be given to another thread, and lie between two
large blocks then. Only a tunable switches the cache off, before the process starts. After 30 steps beside JAX's
profiler a process has 397 MB instead of 3,314 (the program of tests/unit/core/test_tunables.py). A step of two workers
of benchmarks/networks.py: MobileNetV2 458 ms instead of 817, Vision Transformer 142 instead of 170 (means of the
medians of two runs each, in turns). Where small blocks also join at once, epochs of a Vision Transformer on two workers
take 126 to 139 ms a step, where some took 160 to 180. (Intel Xeon in a virtual machine, glibc 2.36, 2026-12-01.)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from stratagem.core.environment import GLIBC_TUNABLES

NO_CACHE: Final = "glibc.malloc.tcache_count=0"
"""Threads keep no small blocks for themselves."""

_OF_MALLOC: Final = "glibc.malloc."

_USERS_OWN: Final = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_ARENA_MAX",
    "MALLOC_PERTURB_",
)
"""Environment variables with which a user decides what the C library does with memory."""

_JOINS: Final = (2, 39)
"""First release of glibc that joins what it cuts off with what is free beside it."""


def user_decides(variables: Mapping[str, str]) -> bool:
    """Return whether an environment says what the C library does with memory.

    Args:
        variables: The environment, by name.

    Example:
        >>> user_decides({"MALLOC_ARENA_MAX": "2"}), user_decides({"GLIBC_TUNABLES": NO_CACHE})
        (True, False)
    """
    own = [each for each in _tunables(variables) if each.startswith(_OF_MALLOC) and each != NO_CACHE]
    return bool(own) or any(name in variables for name in _USERS_OWN)


def to_start_with(variables: Mapping[str, str], c_library: str) -> dict[str, str]:
    """Return what to add to the environment of a process that trains on CPUs.

    Args:
        variables: The environment that it would have otherwise. What the user has decided stays.
        c_library: Name and version of the C library.

    Returns:
        Variables by name; none where the C library needs none.

    Example:
        >>> to_start_with({}, "glibc 2.36"), to_start_with({}, "glibc 2.39")
        ({'GLIBC_TUNABLES': 'glibc.malloc.tcache_count=0'}, {})
    """
    if user_decides(variables) or not _keeps_what_it_cuts_off(c_library):
        return {}
    return {GLIBC_TUNABLES: ":".join(dict.fromkeys([*_tunables(variables), NO_CACHE]))}


def _tunables(variables: Mapping[str, str]) -> list[str]:
    return [each for each in variables.get(GLIBC_TUNABLES, "").split(":") if each]


def _keeps_what_it_cuts_off(c_library: str) -> bool:
    name, _, version = c_library.partition(" ")
    try:
        return name == "glibc" and tuple(map(int, version.split(".")[:2])) < _JOINS
    except ValueError:  # a version that is no number
        return False


def c_library_version() -> str:
    """Return name and version of this machine's C library, for instance `glibc 2.36`; nothing where it does not say."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):
        return ""
