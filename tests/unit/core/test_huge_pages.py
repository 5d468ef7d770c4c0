"""The heap goes on in huge pages, where the system gives them to those who ask."""

from __future__ import annotations

import itertools
import mmap
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from stratagem.core import heap, huge_pages

MADVISE = "always [madvise] never\n"

BLOCKS = """
import ctypes
from stratagem.core.counters import resident_bytes
from stratagem.core.freed_memory import give_back, keep_freed_memory

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def huge():
    lines = [line.split() for line in open("/proc/self/smaps_rollup")]
    return next(int(line[1]) for line in lines if line[0] == "AnonHugePages:") * 1024

def huge_of_block(nbytes):
    before = huge()
    block = library.malloc(ctypes.c_size_t(nbytes))
    library.memset(block, 1, nbytes)
    found = huge() - before
    library.free(block)
    return found / nbytes

before = resident_bytes()
assert keep_freed_memory()
print(resident_bytes() - before, huge_of_block(300_000_000))
give_back()
before = resident_bytes()
print(huge_of_block(800_000_000), resident_bytes() - before)
give_back()
print(resident_bytes() - before)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not huge_pages.are_on_request(),
    reason="the system gives huge pages to all programs, or to none",
)
def test_blocks_of_the_heap_are_huge_pages_and_go_back() -> None:
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKS], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second, third = (tuple(map(float, line.split())) for line in done.stdout.splitlines())
    assert first[0] < 2_000_000  # what is asked for is no memory yet
    assert first[1] > 0.95
    assert second[0] > 0.95  # also where freed memory went back in between
    assert second[1] > 700_000_000  # freed, and kept
    assert third[0] < 20_000_000


@pytest.mark.parametrize(
    ("setting", "overcommit", "limited", "is_asked"),
    [
        (MADVISE, "0\n", False, True),
        (MADVISE, "1\n", False, True),
        ("[always] madvise never\n", "0\n", False, False),
        ("always madvise [never]\n", "0\n", False, False),
        (MADVISE, "2\n", False, False),
        (MADVISE, "0\n", True, False),
        (None, "0\n", False, False),
    ],
    ids=["on request", "without limits", "for all", "for none", "addresses counted", "limited", "unknown"],
)
def test_they_are_asked_for_where_that_brings_them_and_costs_nothing(
    setting: str | None,
    overcommit: str,
    limited: bool,
    is_asked: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if setting is not None:
        (tmp_path / "enabled").write_text(setting)
    (tmp_path / "overcommit").write_text(overcommit)
    limit = (1 << 33 if limited else resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(huge_pages, "_SETTING", tmp_path)
    monkeypatch.setattr(huge_pages, "_OVERCOMMIT", tmp_path / "overcommit")
    monkeypatch.setattr(resource, "getrlimit", lambda which: limit)
    assert huge_pages.are_on_request.__wrapped__() == is_asked


END = 1 << 40


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """What Linux is told of a heap that ends at END: begin, end, advice."""
    told: list[tuple[int, int, int]] = []

    def madvise(begin: int, size: int, advice: int) -> None:
        told.append((begin, begin + size, advice))

    monkeypatch.setattr(huge_pages, "c_library", lambda: SimpleNamespace(madvise=madvise))
    monkeypatch.setattr(huge_pages, "first_end_of_heap", lambda: END - (1 << 30))
    monkeypatch.setattr(huge_pages, "end_of_heap", lambda: END)
    return told


def test_free_memory_is_for_huge_pages_and_what_is_in_use_is_not(
    advised: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = itertools.count(END, heap.LARGEST)
    monkeypatch.setattr(huge_pages, "take", lambda size: heap.Piece(next(more), size))
    pieces = [heap.Piece(END - (1 << 29) + 16, 100 << 20)]  # blocks do not begin at pages
    huge_pages.request_huge_pages(pieces, step_runs=False)
    first, second, *ahead = advised
    assert first == (END - (1 << 30), END, mmap.MADV_NOHUGEPAGE)
    assert second == (END - (1 << 29), END - (1 << 29) + 16 + (100 << 20), mmap.MADV_HUGEPAGE)
    assert ahead == [
        (END + number * heap.LARGEST, END + (number + 1) * heap.LARGEST, mmap.MADV_HUGEPAGE) for number in range(4)
    ]
    assert len(pieces) == 5  # the caller frees what was added


def test_the_heap_grows_only_where_it_is_not_free_enough(
    advised: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "take", lambda size: pytest.fail("more was taken"))
    pieces = [heap.Piece(END - number * heap.LARGEST, heap.LARGEST) for number in range(1, 5)]
    huge_pages.request_huge_pages(pieces, step_runs=True)
    assert len(advised) == 4
    assert {advice for _, _, advice in advised} == {mmap.MADV_HUGEPAGE}  # nothing of the step that runs


def test_where_the_system_has_no_more_addresses_it_is_what_is_free(
    advised: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "take", lambda size: None)
    huge_pages.request_huge_pages([heap.Piece(END - (1 << 29), 4096)], step_runs=True)
    assert advised == [(END - (1 << 29), END - (1 << 29) + 4096, mmap.MADV_HUGEPAGE)]
