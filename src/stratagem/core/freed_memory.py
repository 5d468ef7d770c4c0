"""Freed memory: what a step frees stays with the process, for the next step to take.

XLA:CPU takes memory for batches and intermediate results from the C library, and frees it, in every step. By its
defaults the C library (glibc) soon gives it back to the system: the next step gets new pages, each at the price of a
page fault and of being filled with zeros. A small model with `steps_per_execution=32`: 150 us a step with 13 to 26
page faults, 99 without any; a small GPT with 10,000 words: 132 ms a step with 40,000, 81 without (AMD EPYC).
"""

from __future__ import annotations

import functools
import gc
import glob
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

import jax
from jax.core import Tracer

from stratagem.core.clock import Clock
from stratagem.core.cores import available_cores
from stratagem.core.counters import resident_bytes
from stratagem.core.heap import c_library, free_pieces
from stratagem.core.huge_pages import are_on_request, request_huge_pages
from stratagem.core.tunables import user_decides

_MAX_FAST: Final = 1
_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of `mallopt(3)`."""

_NO_FAST: Final = 0
"""No freed block is kept apart for blocks of its size: each joins what is free beside it at once (`core.tunables`)."""

_NEVER: Final = -1
"""Freed memory at the end of the heap stays, however much it is, until `give_back`."""

_BLOCKS: Final = (1 << 30, 1 << 25)
"""Blocks of fewer bytes come from memory that stays: the first of these limits that the C library takes; older ones
take the second. A limit must be set as well: where only the other threshold is, all blocks of 128 KiB and more come
from the system, each time anew. Logits of 1,024 rows and 10,000 classes are a block of 40 MB: their product takes 13 ms
in memory that stays, 29 in new pages."""

_SPARE: Final = 1 << 26
"""Bytes to spare. Without them the heap of a thread goes back when all in it is free."""

_ARENAS: Final = 1
"""Heaps that threads take memory from. Each thread of XLA would get one of its own, which cannot grow beyond 64 MiB:
what is larger would come from the system. Threads keep the heap that they have begun with."""

_WORTH: Final = 1 << 22
"""Bytes of variables from which on memory is given back after the first steps."""

_FIRST: Final = 3
"""Before the first step, after it, and after the second."""

_GROWN: Final = 1.1
"""Factor by which the memory of the process has to have grown."""

_GROWN_MUCH: Final = 3.0
"""The same between those steps: blocks of 2 or 3 steps side by side are nothing unusual."""

_SECONDS_BETWEEN: Final = 0.1
"""Seconds from one look at the memory of the process to the next, which takes 10 us."""

_SECONDS_BEFORE: Final = 10.0
"""Busy seconds from the end of a process's first epoch until memory is tidied: a short run must not wait for it."""

_COLLECTING: Final = 1 / 300
"""Share of the busy time that collecting cycles may take: they are collected every 30 s or less often."""

_GIVING_BACK: Final = 1 / 100
"""Share of the busy time that giving memory back may take: of epochs of 1 s (long_run.py), it is done after each."""

_CHEAP: Final = 1 << 25
"""Bytes that steps may take from the system anew in each epoch."""

_SECONDS_A_BYTE: Final = 0.4e-9
"""Price of memory that a step has to take from the system anew: 16 ms for a block of 40 MB."""

_SECONDS_A_HUGE_BYTE: Final = 0.1e-9
"""The same in huge pages (0.07 to 0.1, Intel Xeon)."""

_SECONDS_A_LOST_BYTE: Final = 2.5e-9
"""The same in a virtual machine whose host takes back what was free for some seconds. For little it is not assumed."""

_PLUGINS: Final = ("jax_plugins",)
"""Packages that bring accelerators to JAX, besides libtpu."""

_TPUS: Final = ("/dev/accel*", "/dev/vfio/[0-9]*")
"""Files of a machine's TPUs. Without them libtpu only compiles for some (`stratagem plan`)."""


def keep_freed_memory_for_cpu() -> None:
    """Let the C library keep what steps free, where JAX can have no other devices than the CPU.

    It is called before JAX is first asked for its devices: the threads that it starts then keep their heaps.
    """
    platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    if platforms == "cpu" or (not platforms and not _may_have_accelerators()):
        keep_freed_memory()


def _may_have_accelerators() -> bool:
    if any(map(find_spec, _PLUGINS)):
        return True
    return find_spec("libtpu") is not None and any(map(glob.glob, _TPUS))


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library keep what steps free.

    Returns:
        Whether it does: not with another C library than glibc, nor where the environment sets what it keeps.
    """
    if sys.platform != "linux" or user_decides(os.environ):
        return False
    try:
        set_option = c_library().mallopt
    except AttributeError:
        return False
    if not any(set_option(_MMAP_THRESHOLD, block) for block in _BLOCKS):
        return False
    options = {_MAX_FAST: _NO_FAST, _TRIM_THRESHOLD: _NEVER, _TOP_PAD: _SPARE, _ARENA_MAX: _ARENAS}
    if not all(set_option(name, value) for name, value in options.items()):
        return False
    if are_on_request():
        with free_pieces() as pieces:
            request_huge_pages(pieces, step_runs=False)
    return True


def give_back(*, keep_large: bool = False, step_runs: bool = False) -> None:
    """Give back what is free by now, where it is kept. It takes 20 ms, and the next step new pages.

    Args:
        keep_large: Whether pieces of many MB stay, which the steps that come take again.
        step_runs: Whether a step runs meanwhile.
    """
    if not _is_kept():
        return
    if not keep_large:
        c_library().malloc_trim(0)
        if not are_on_request():
            return
    with free_pieces() as pieces:
        if keep_large:
            c_library().malloc_trim(0)
        if are_on_request():
            request_huge_pages(pieces, step_runs=step_runs)


class StepMemory:
    """Memory of a program's steps: what no later step takes goes back to the system.

    Making variables and compiling take more than a step does, and until the second step the values that variables were
    made with are there, too. A network of 88 MB of weights, Adam, two workers: 1,635 MB of a process while it trained,
    and 865 since that goes back.

    Later on what a step frees may be lost to the next one, where something small lies in it by then, or cut off from
    it (`core.tunables`). So the memory of the process is looked at again after 4, 8, 16 ... steps, and given back where
    it has grown: twice what the steps take was kept otherwise after 12 steps of a network of 25 million weights. Each
    tenth of a second it is looked at whether it is three times as much as usual: in a process with one core that was
    started without tunables each step took 117 MB more while JAX's profiler ran.

    Args:
        nbytes: Bytes of the program's variables. Of a program with few, memory is looked at each tenth of a second
            only: to give it back takes 20 ms.
        clock: Where time comes from.
    """

    def __init__(self, nbytes: int, clock: Clock | None = None) -> None:
        self._is_large = nbytes >= _WORTH
        self._clock = clock or Clock()
        self._due = 0.0
        self._calls = 0
        self._usual: int | None = None

    def tidy(self, results: Any = None) -> None:
        """Give freed memory back, before the first step and after each of the first ones, and where more is kept.

        Args:
            results: Those of the step that was begun last, None before the first. What compiling took goes back while
                that step runs, and its own memory when they are there. Without arrays nobody knows when that is.
        """
        self._calls += 1
        if self._is_large and self._calls <= _FIRST:
            give_back(step_runs=results is not None)
            if results is not None and _are_there(results):
                give_back(step_runs=False)
        elif results is None:
            return
        elif self._is_large and not self._calls & (self._calls - 1):
            step_ran = _are_there(results)
            if self._has_grown(_GROWN):
                give_back(step_runs=not step_ran)
        elif self._clock.now() >= self._due:
            self._due = self._clock.now() + _SECONDS_BETWEEN
            if self._has_grown(_GROWN_MUCH):
                give_back(step_runs=not _are_there(results))
                self._usual = max(self._usual or 0, resident_bytes())  # the rest is the program's

    def _has_grown(self, factor: float) -> bool:
        """Whether the process takes so many times as much as when this was asked first."""
        if not _is_kept():  # nor is there any such file on other systems
            return False
        resident = resident_bytes()
        self._usual = self._usual or resident
        return resident >= factor * self._usual


def _are_there(results: Any) -> bool:
    """Wait for the arrays among the results of a step; return whether there are any."""
    leaves = jax.tree.leaves(results)
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)]
    jax.block_until_ready(arrays)
    return bool(arrays)


class BusyClock(Clock):
    """The time that all cores of this process were busy. Pauses of the program do not count."""

    def now(self) -> float:
        """Return those seconds, since the start."""
        return time.process_time() / available_cores()


class NowAndThen:
    """Something that may be done at any time, and takes little of the time that a process computes.

    Args:
        do: Does it; returns how many seconds it will cost besides, later.
        share: The most of that time that it may take.
        clock: Where time comes from.
    """

    def __init__(self, do: Callable[[], float], share: float, clock: Clock | None = None) -> None:
        self._do = do
        self._share = share
        self._clock = clock or BusyClock()
        self._due: float | None = None

    def __call__(self) -> None:
        """Do it, unless the last time was too little ago for what it cost."""
        began = self._clock.now()
        if self._due is None:
            self._due = began + _SECONDS_BEFORE
        if began >= self._due:
            later = self._do()
            ended = self._clock.now()
            self._due = ended + (ended - began + later) / self._share


def _collect_cycles() -> float:
    if gc.isenabled():
        gc.collect()
    return 0.0


class EpochMemory:
    """Memory at the ends of epochs: what is free goes back.

    The next epoch takes large pieces again. They stay if that is more than a little, and no more than usual.
    """

    def __init__(self) -> None:
        self._least: int | None = None
        self._usual: int | None = None

    def __call__(self) -> float:
        """Give it back; return how many seconds the next steps will need to take it anew."""
        if not _is_kept():  # nor is there a count of resident bytes on other systems
            return 0.0
        before = resident_bytes()
        whole = self._least is None or before - self._least <= _CHEAP
        if not whole:
            self._usual = self._usual or before
            whole = before >= _GROWN * self._usual
        give_back(keep_large=not whole)
        after = resident_bytes()
        if whole:
            self._least, self._usual = after, None
        price = _SECONDS_A_HUGE_BYTE if are_on_request() else _SECONDS_A_BYTE
        return max(0, before - after) * (price if before - after <= _CHEAP else _SECONDS_A_LOST_BYTE)


_BETWEEN_EPOCHS: Final = (
    NowAndThen(_collect_cycles, _COLLECTING),
    NowAndThen(EpochMemory(), _GIVING_BACK),
)


def tidy_between_epochs() -> None:
    """Free what only cycles of objects hold, and give freed memory back: in `fit`, at the ends of epochs.

    Python collects such cycles when it has a quarter more old objects than the last time. Keras leaves 240 objects at
    each save, so that is every 200 epochs, and memory grows until then. Besides, what the steps of an epoch take need
    not lie where it lay in the epoch before: sometimes 5 to 7 MB were added and stayed (100,000 steps of a small
    network, benchmarks/long_run.py). To give that back takes 2 ms an epoch, to collect cycles 100 ms.
    """
    for tidy in _BETWEEN_EPOCHS:
        tidy()


def _is_kept() -> bool:
    """Return whether freed memory is kept. Where nobody has asked for that, as on GPUs, it is not."""
    return keep_freed_memory.cache_info().currsize > 0 and keep_freed_memory()
