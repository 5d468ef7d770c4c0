"""Huge pages: what is free of the heap comes in pages of 2 MiB, where the system gives them to programs that ask.

Most systems give such pages only for addresses that a program has named (`enabled` in `SETTING` is `madvise`), and
neither JAX nor the C library names any. Intermediate results are blocks of many MB. In pages of 4 KiB the processor
looks each page up in a table, in two tables in a virtual machine, and reads ahead within a page only. A step takes 0.69
of the time of before (a recommender), 0.71 (MobileNetV2, a Vision Transformer), 0.73 (a small GPT), 0.75 (an encoder as
BERT's), 0.79 (a U-Net), 0.82 (GRU), 0.86 (the MNIST CNN) and 0.93 (ResNet-18). (One core of an Intel Xeon in a virtual
machine, 2026-11-30, JAX 0.10.2; two processes with and two without, in turns in one run.)
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage")
"""Linux's settings of huge pages."""

_OVERCOMMIT: Final = Path("/proc/sys/vm/overcommit_memory")
"""Linux's setting of how much memory programs may name: 2 counts what is never used."""

_LARGEST: Final = (1 << 30) - (1 << 20)
"""Bytes of the largest block that glibc takes from the heap, less what it notes beside blocks."""

_LEAST: Final = 1 << 21
"""Bytes of a huge page. Smaller pieces hold none."""

_AHEAD: Final = 4
"""How many of the largest blocks the heap goes on for. MobileNetV2 with 32 rows takes 1 GiB in its first steps."""


def ask_for_free_memory(library: ctypes.CDLL, *, step_runs: bool = False) -> None:
    """Ask for huge pages in what is free of the heap and in 4 GiB behind it, which are addresses until they are used.

    What is in use is named as not for huge pages: Linux makes such pages later on, too, and would fill all holes
    between small objects with memory again (20 MB in 100 s of a small network).

    Args:
        library: The C library, which takes blocks of less than 1 GiB from the heap, and does not give freed ones back.
        step_runs: Whether a step runs. It may not have written yet what it has taken, so nothing is named as in use.
    """
    if not are_for_the_asking():
        return
    library.malloc.restype = library.sbrk.restype = ctypes.c_void_p
    begin, end = _first_end(library), library.sbrk(0)
    if not step_runs:
        _advise(library, begin, end, mmap.MADV_NOHUGEPAGE)
    blocks = [*_free_blocks(library, end), *((library.malloc(_bytes(_LARGEST)), _LARGEST) for _ in range(_AHEAD))]
    for block, size in reversed(blocks):
        if block:
            _advise(library, block, block + size, mmap.MADV_HUGEPAGE)
            library.free(ctypes.c_void_p(block))


def _free_blocks(library: ctypes.CDLL, end: int) -> Iterator[tuple[int, int]]:
    """Take what is free of the heap in large pieces, so that nobody else has memory there meanwhile.

    Args:
        library: The C library.
        end: The end of the heap.

    Yields:
        The address and the size of each block.
    """
    size = _LARGEST
    while size >= _LEAST:
        block = library.malloc(_bytes(size))
        if block and block + size <= end:
            yield block, size
        else:  # the heap has no such piece, and has grown
            library.free(ctypes.c_void_p(block))
            size //= 2


def _advise(library: ctypes.CDLL, begin: int, end: int, advice: int) -> None:
    """Give Linux advice on the pages that hold these addresses. It changes nothing of what is there."""
    begin -= begin % mmap.PAGESIZE
    if begin < end:
        library.madvise(ctypes.c_void_p(begin), _bytes(end - begin), advice)


_bytes = ctypes.c_size_t


@functools.cache
def _first_end(library: ctypes.CDLL) -> int:
    """Return where the heap ended when this was asked first."""
    return library.sbrk(0)


@functools.cache
def are_for_the_asking() -> bool:
    """Whether the system gives huge pages to those who ask only, and counts no addresses that are not used."""
    try:
        is_asked = "[madvise]" in (SETTING / "enabled").read_text(encoding="ascii")
        is_counted = _OVERCOMMIT.read_text(encoding="ascii").strip() == "2"
    except OSError:
        return False
    limits = {resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)}
    return is_asked and not is_counted and limits == {resource.RLIM_INFINITY}
