"""Processes start with the tunables that glibc needs, and with what the user has chosen."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.fresh import run_python

from stratagem.core.tunables import NO_CACHE, c_library_version, to_start_with, user_decides

GROWTH = """
import json, os, sys

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # one core: that one thread runs the steps
import jax, jax.numpy as jnp
from stratagem.core.counters import resident_bytes
from stratagem.core.freed_memory import keep_freed_memory

assert keep_freed_memory()

@jax.jit
def step(weights, x):  # it takes 120 MB beside them
    hidden = x @ weights
    other = jnp.sin(hidden) @ weights
    return weights + 1e-9 * (other.T @ other), (other * hidden).sum()

weights, x = jnp.ones((512, 512)) * 1e-3, jnp.ones((20_000, 512))
kept, resident = [], []
with jax.profiler.trace(sys.argv[1]):  # keeps something small of each step
    for _ in range(30):
        weights, sum_ = step(weights, x)
        kept.append(sum_.block_until_ready())
        resident.append(resident_bytes())
print(json.dumps(resident))
"""


@pytest.mark.parametrize(
    ("variables", "decides"),
    [
        ({}, False),
        ({"MALLOC_TRIM_THRESHOLD_": "1"}, True),
        ({"GLIBC_TUNABLES": "glibc.cpu.x86_ibt=on"}, False),
        ({"GLIBC_TUNABLES": NO_CACHE}, False),
        ({"GLIBC_TUNABLES": f"{NO_CACHE}:glibc.malloc.arena_max=2"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.tcache_count=3"}, True),
    ],
)
def test_who_decides(variables: dict[str, str], decides: bool) -> None:
    assert user_decides(variables) == decides
    assert (to_start_with(variables, "glibc 2.36") == {}) == decides


@pytest.mark.parametrize(
    ("c_library", "needs"),
    [("glibc 2.35", True), ("glibc 2.38", True), ("glibc 2.39", False), ("glibc 2.4x", False), ("musl 1.2", False)],
)
def test_which_c_library_needs_it(c_library: str, needs: bool) -> None:
    assert to_start_with({}, c_library) == ({"GLIBC_TUNABLES": NO_CACHE} if needs else {})


def test_what_is_there_already_stays_as_it_is() -> None:
    own = {"GLIBC_TUNABLES": f"glibc.cpu.x=1:{NO_CACHE}"}
    assert to_start_with(own, "glibc 2.36") == own


@pytest.mark.parametrize("error", [ValueError, OSError, AttributeError])  # other C libraries do not know the name
def test_another_c_library_has_no_name(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def confstr(name: str) -> str:
        raise error(name)

    monkeypatch.setattr(os, "confstr", confstr)
    assert c_library_version() == ""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_steps_that_keep_something_small_take_the_same_memory(tmp_path: Path) -> None:
    """With glibc 2.36 and its cache each such step takes 117 MB more."""
    variables = to_start_with({}, c_library_version())
    done = run_python("-c", GROWTH, str(tmp_path), home=tmp_path, variables=variables)
    assert done.returncode == 0, done.stderr
    resident = json.loads(done.stdout.splitlines()[-1])
    assert resident[-1] - resident[5] < 40e6
