"""The heap goes on in huge pages, where the system gives them to those who ask."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from stratagem.core import huge_pages

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
    sys.platform != "linux" or not huge_pages.are_for_the_asking(),
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
    monkeypatch.setattr(huge_pages, "SETTING", tmp_path)
    monkeypatch.setattr(huge_pages, "_OVERCOMMIT", tmp_path / "overcommit")
    monkeypatch.setattr(resource, "getrlimit", lambda which: limit)
    assert huge_pages.are_for_the_asking.__wrapped__() == is_asked


class Library:
    """A C library with a heap of two free pieces.

    Args:
        end: Where the heap ends.
        pieces: Begin and size of each free piece of it.
        has_more: Whether the system has addresses for more.
    """

    def __init__(self, end: int, pieces: Sequence[tuple[int, int]], *, has_more: bool = True) -> None:
        self._end = end
        self._pieces = list(pieces)
        self._has_more = has_more
        self.taken: list[tuple[int, int]] = []
        self.advised: list[tuple[int, int, int]] = []
        self.sbrk = lambda size: self._end
        self.malloc = lambda size: self._take(size)
        self.free = lambda block: self._give(block)
        self.madvise = lambda begin, size, advice: self.advised.append((begin.value, begin.value + size.value, advice))

    def _take(self, size: ctypes.c_size_t) -> int | None:
        for number, (begin, free) in enumerate(self._pieces):
            if size.value <= free:
                self._pieces[number] = begin + size.value, free - size.value
                self.taken.append((begin, size.value))
                return begin
        if not self._has_more:
            return None
        begin = max([self._end, *(begin + size for begin, size in self.taken)])
        self.taken.append((begin, size.value))
        return begin

    def _give(self, block: ctypes.c_void_p) -> None:
        if block.value is not None:
            self.taken.remove(next(each for each in self.taken if each[0] == block.value))


END = 1 << 40


def asked(library: Library, monkeypatch: pytest.MonkeyPatch, *, step_runs: bool = False) -> None:
    monkeypatch.setattr(huge_pages, "are_for_the_asking", lambda: True)
    monkeypatch.setattr(huge_pages, "_first_end", lambda library: END - (1 << 30))
    huge_pages.ask_for_free_memory(library, step_runs=step_runs)  # pyright: ignore[reportArgumentType]
    assert library.taken == []


def test_free_memory_is_for_huge_pages_and_what_is_in_use_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = END - (1 << 29), END - (1 << 20)
    library = Library(END, [(large, 100 << 20), (small, 1 << 20)])
    asked(library, monkeypatch)
    (begin, end, advice), *others = library.advised
    assert (begin, end, advice) == (END - (1 << 30), END, mmap.MADV_NOHUGEPAGE)
    assert {advice for _, _, advice in others} == {mmap.MADV_HUGEPAGE}
    ahead = sorted(each[:2] for each in others if each[0] >= END)
    assert sum(end - begin for begin, end in ahead) == 4 * huge_pages._LARGEST
    inside = sorted(each[:2] for each in others if each[0] < END)
    assert inside[0][0] == large
    assert all(first[1] == second[0] for first, second in itertools.pairwise(inside))
    assert 0 <= large + (100 << 20) - inside[-1][1] < 2 * huge_pages._LEAST  # and none of the small piece


def test_memory_of_a_step_that_runs_stays_for_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(END, [])
    asked(library, monkeypatch, step_runs=True)
    assert {advice for _, _, advice in library.advised} == {mmap.MADV_HUGEPAGE}


def test_where_the_system_has_no_more_addresses_only_the_heap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(END, [(END - (1 << 29), 64 << 20)], has_more=False)
    asked(library, monkeypatch)
    assert library.advised[0] == (END - (1 << 30), END, mmap.MADV_NOHUGEPAGE)
    assert {advice for _, _, advice in library.advised[1:]} == {mmap.MADV_HUGEPAGE}
    named = sum(end - begin for begin, end, _ in library.advised[1:])
    assert (64 << 20) - 2 * huge_pages._LEAST < named <= 64 << 20


def test_nothing_is_taken_where_nothing_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "are_for_the_asking", lambda: False)
    huge_pages.ask_for_free_memory(SimpleNamespace())  # pyright: ignore[reportArgumentType]
