"""Freed memory: what a step frees stays with the process, for the next step to take.

XLA:CPU takes memory for batches and intermediate results from the C library, and frees it, in every step. By its
defaults the C library (glibc) soon gives it back to the system: the next step gets new pages, each at the price of a
page fault and of being filled with zeros. A small model with `steps_per_execution=32`: 150 us a step with 13 to 26
page faults, 99 without any (AMD EPYC).
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
"""Parameters of `mallopt(3)`."""

_KEPT: Final = 1 << 30
"""Bytes that stay. Without a limit the most that was ever needed at one time would."""

_BLOCK: Final = 1 << 25
"""Blocks of fewer bytes come from memory that stays; older C libraries take no higher limit. It must be set as well:
where only the other threshold is, all blocks of 128 KiB and more come from the system, each time anew."""

_SPARE: Final = 1 << 26
"""Bytes to spare. Without them the memory of a thread, and XLA's have some of their own, goes back when all is free."""

_USERS_OWN: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables with which a user decides instead."""


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library keep what steps free.

    Returns:
        Whether it does: not with another C library than glibc, nor where the environment sets what it keeps.
    """
    if sys.platform != "linux" or any(name in os.environ for name in _USERS_OWN):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    options = {_MMAP_THRESHOLD: _BLOCK, _TRIM_THRESHOLD: _KEPT, _TOP_PAD: _SPARE}
    return all(set_option(name, value) for name, value in options.items())
