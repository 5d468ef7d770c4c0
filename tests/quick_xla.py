"""How the tests let XLA compile soonest.

They run thousands of small programs a few times each: compiling them is what the suite would take its time for. Without
XLA's expensive passes, its newer code generator and its threads that takes a seventh of it, in all processes that tests
start. From jaxlib 0.11.2 on the newer code generator cannot be switched off any more: 71 programs that take 2.0 s with
0.10.2 (27 s as users compile them) take 5.5 s with 0.12.0.1 (10 s). Its preset FAST_COMPILE was tried, and five other
flags: they gain nothing.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Final

AS_USERS: Final = "STRATAGEM_TESTS_AS_USERS"
"""Environment variable: set to anything, all tests compile as users do."""

_PASSES: Final = "JAX_DISABLE_MOST_OPTIMIZATIONS"
_THREADS: Final = "--xla_cpu_parallel_codegen_split_count=1"
_EMITTERS: Final = "--xla_cpu_use_fusion_emitters=false"
_LAST_WITH_EMITTERS: Final = (0, 11, 0)


def flags(jaxlib: str) -> list[str]:
    """Return the flags of XLA, of those that a version knows: one that it does not know ends the process in C++."""
    version = tuple(map(int, re.findall(r"\d+", jaxlib)[:3]))
    return [*([_EMITTERS] if version <= _LAST_WITH_EMITTERS else []), _THREADS]


def set_up(variables: MutableMapping[str, str], jaxlib: str) -> None:
    """Let JAX be quick in this process and in those that it starts; flags of the user's own stay."""
    if variables.get(AS_USERS) or variables.get("JAX_PLATFORMS") != "cpu":
        return
    variables[_PASSES] = "1"
    variables["XLA_FLAGS"] = " ".join([*flags_of_user(variables), *flags(jaxlib)])


def flags_of_user(variables: MutableMapping[str, str]) -> list[str]:
    """Return the flags of XLA that were there before `set_up`."""
    return [flag for flag in variables.get("XLA_FLAGS", "").split() if flag not in (_EMITTERS, _THREADS)]
