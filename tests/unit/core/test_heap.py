"""What is free of the heap is held in large pieces, and is free again afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

PIECES = """
import ctypes
from stratagem.core import heap
from stratagem.core.freed_memory import keep_freed_memory

assert keep_freed_memory()
blocks = [heap.take(size << 20) for size in (100, 1, 50, 1)]  # the small ones keep the others apart
ctypes.memset(blocks[0].begin, 1, blocks[0].size)
for free in blocks[::2]:
    heap.free(free)
with heap.free_pieces() as pieces:
    inside = [sum(piece.size for piece in pieces if 0 <= piece.begin - free.begin < free.size) for free in blocks[::2]]
    other = heap.take(20 << 20)
    held = any(piece.begin <= other.begin < piece.begin + piece.size for piece in pieces)
    ends = [piece.begin + piece.size for piece in pieces]
again = heap.take(100 << 20)
print(*inside, held, max(ends) <= heap.end_of_heap(), 0 <= again.begin - blocks[0].begin < 1 << 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_free_pieces_are_held_and_freed() -> None:
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PIECES], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second, held, is_inside, is_reused = done.stdout.split()
    least = 4 << 20  # what is left of each is smaller than this
    assert (100 << 20) - least < int(first) <= 100 << 20
    assert (50 << 20) - least < int(second) <= 50 << 20
    assert (held, is_inside, is_reused) == ("False", "True", "True")
