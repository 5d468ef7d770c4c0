"""Huge pages: what is free of the heap comes in pages of 2 MiB, where the system gives them on request.

Many systems give such pages only for addresses that a program requests them for (`transparent_hugepage/enabled` is
`madvise`), and neither JAX nor the C library does. Intermediate results are blocks of many MB. In pages of 4 KiB the
processor looks each page up in a table, in two tables in a virtual machine, and reads ahead within a page only. The
time of a step in huge pages, divided by that in pages of 4 KiB: one core of an Intel Xeon in a virtual machine,
2026-11-30, JAX 0.10.2, means of two processes of each, in turns in one run. Within the hour the machine became faster,
from which steps in pages of 4 KiB gained most. Why it did is not known.

| network                  | first  | later |
| ------------------------ | ------ | ----- |
| Vision Transformer       | 0.71   | 0.91  |
| recommender              | 0.69   | 0.92  |
| small GPT                | 0.73   | 0.86  |
| encoder as BERT's        | 0.75   | 0.93  |
| U-Net                    | 0.79   | 0.92  |
| GRU in both directions   | 0.82   | 0.98  |
| MNIST CNN                | 0.86   | 0.95  |
| ResNet-18                | 0.93   | 0.99  |

The second column is that of this code, the first of code that requested them once, and withdrew nothing.
"""

from __future__ import annotations

import functools
import mmap
import resource
from pathlib import Path
from typing import Final

from stratagem.core.heap import LARGEST, Piece, c_library, end_of_heap, first_end_of_heap, take

_SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage")
"""Linux's settings of huge pages."""

_OVERCOMMIT: Final = Path("/proc/sys/vm/overcommit_memory")
"""Linux's setting of how many addresses programs may have: 2 counts those that are never used."""

_AHEAD: Final = 4 * LARGEST
"""Bytes that are free behind a request, at the least: MobileNetV2 with 32 rows takes 1 GiB in its first steps."""


def request_huge_pages(pieces: list[Piece], *, step_runs: bool) -> None:
    """Request huge pages for what is free of the heap, which is made larger by addresses until 4 GiB are free.

    For what is in use the request is withdrawn: Linux makes huge pages later on, too, and would fill all holes between
    small objects with memory again (20 MB in 100 s of a small network).

    Args:
        pieces: What is free, and is held by the caller. What is added is held as well.
        step_runs: Whether a step runs. It may not have written yet what it has taken, so nothing is withdrawn.
    """
    if not step_runs:
        _advise(first_end_of_heap(), end_of_heap(), mmap.MADV_NOHUGEPAGE)
    while sum(piece.size for piece in pieces) < _AHEAD and (piece := take(LARGEST)):
        pieces.append(piece)
    for piece in pieces:
        _advise(piece.begin, piece.begin + piece.size, mmap.MADV_HUGEPAGE)


def _advise(begin: int, end: int, advice: int) -> None:
    """Give Linux advice on the pages that hold these addresses. It changes nothing of what is there."""
    begin -= begin % mmap.PAGESIZE
    if begin < end:
        c_library().madvise(begin, end - begin, advice)


@functools.cache
def are_on_request() -> bool:
    """Whether the system gives huge pages on request only, and counts no addresses that are not used."""
    try:
        is_asked = "[madvise]" in (_SETTING / "enabled").read_text(encoding="ascii")
        is_counted = _OVERCOMMIT.read_text(encoding="ascii").strip() == "2"
    except OSError:
        return False
    limits = {resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)}
    return is_asked and not is_counted and limits == {resource.RLIM_INFINITY}
