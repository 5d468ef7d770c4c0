"""Steps take the memory that the steps before have freed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import jax, jax.numpy as jnp, stratagem

strategy = stratagem.OneDeviceStrategy("/cpu:0")
x = jnp.ones((16, 1 << 16))  # 4 MiB

@stratagem.function
def step(x):
    return strategy.run(lambda x: jnp.cumsum(x, axis=1) @ x.T, (x,))

for _ in range(12):
    jax.block_until_ready(step(x))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    jax.block_until_ready(step(x))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")


def faults(**variables: str) -> int:
    """Return the page faults of four steps."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment | variables, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout.split()[-1])


def test_steps_make_no_new_pages() -> None:
    # With the C library's defaults each step of this program maps arrays of 4 MiB, 1,024 pages, anew.
    assert faults() < 160


def test_the_environment_decides_instead() -> None:
    assert faults(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 2048
