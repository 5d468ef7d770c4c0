"""Sums over the workers of one host, through memory that they share; of several, over connections between them too.

Each worker copies its arrays to its lane, tells the others, waits for them, and combines the values in all lanes into
its own results. So the processor reads and writes every byte once or twice. A socket on the same host (Gloo's way)
copies it through the kernel, and stalls for 50 to 190 ms at some sizes.

The workers wake each other with semaphores in the memory (`sem_overview(7)`). The memory has no name and is gone with
its last process. Each process holds a lock on one byte of it. The system drops the lock when the process dies in any
way, so a worker that waits notices it. The watchdog (`cluster.watchdog`) handles a worker that lives but does not come,
because it knows what each of them is doing.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from typing import Final

import numpy as np

from stratagem.core.errors import PeerError
from stratagem.core.progress import Progress, progress
from stratagem.host_memory.hosts import Hosts
from stratagem.host_memory.lanes import Lanes
from stratagem.host_memory.links import Links
from stratagem.host_memory.plan import Plan, PlanPart
from stratagem.host_memory.two_levels import TwoLevels

CAPACITY: Final = 16 << 20
"""Bytes of a lane. Memory that no exchange needs is never taken from the system."""

SPIN_SECONDS: Final = 1e-4
"""Seconds that a worker with its own core spins before it sleeps."""

HANG_SECONDS: Final = 1800.0
"""Longest wait for a worker that lives, if workers may change and no watchdog follows what each of them does."""

SLICE_SECONDS: Final = 0.05
"""Seconds after which a sleeping worker checks whether the workers that it waits for still live."""

_SEMAPHORE: Final = 64
_TEXT: Final = 1024 - 24
_HEAD: Final = np.dtype([("turn", "<i8"), ("signature", "<i8"), ("length", "<i8"), ("text", "S1", (_TEXT,))])
_PAGE: Final = 1 << 21
"""Lanes begin at pages of this size, which the system may use for them."""


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _System:
    """Functions of the C library. Looked up when there is memory to use them on: not all systems have them all."""

    def __init__(self) -> None:
        # These keep the interpreter's lock, as those of `lanes` do.
        quick = ctypes.PyDLL(None)
        self.begin, self.post, self.trial = quick.sem_init, quick.sem_post, quick.sem_trywait
        self.begin.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
        self.post.argtypes = self.trial.argtypes = [ctypes.c_void_p]
        self.wait = ctypes.CDLL(None).sem_timedwait
        self.wait.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Time)]


def needed_bytes(workers: int, capacity: int = CAPACITY) -> int:
    """Return the size of the memory.

    Args:
        workers: How many share it.
        capacity: Bytes of a lane.
    """
    return _control_bytes(workers) + 2 * workers * capacity


def _control_bytes(workers: int) -> int:
    control = workers * workers * _SEMAPHORE + 2 * workers * _HEAD.itemsize
    return -(-control // _PAGE) * _PAGE


class HostMemory:
    """One worker's view of the memory.

    The memory lasts as long as the process. All workers must make the same exchanges in the same order; if they do
    not, an error lists the exchanges.

    Args:
        file: The memory, `needed_bytes` large, full of zeros when the first worker gets it.
        index: The index of this worker. The first one must have made its view before the others use theirs.
        names: The name of each worker in messages.
        spins: Whether each worker has its own core.
        capacity: Bytes of a lane.
        world: The number of the world of workers, from 1, if they may change; 0 if they may not.
        counts: Counts how long exchanges take, and how much of that is spent waiting for others.
    """

    def __init__(
        self,
        file: FileIO,
        index: int,
        names: Sequence[str],
        *,
        spins: bool = True,
        capacity: int = CAPACITY,
        world: int = 0,
        counts: Progress = progress,
    ) -> None:
        self.capacity = capacity
        self._counts = counts
        self._waited = 0.0
        self._spin_seconds = SPIN_SECONDS if spins else 0.0
        self._system = _System()
        self._lock = threading.RLock()
        self._asked: dict[int, Plan] = {}
        self._plans: dict[tuple[Hosts, int], Plan | TwoLevels] = {}
        self._world, self._cut = world, 0
        self._why_cut = ""
        self._view(file, index, names, Hosts((tuple(range(len(names))),)))

    def _view(
        self, file: FileIO, index: int, names: Sequence[str], hosts: Hosts, rank: int = 0, links: Links | None = None
    ) -> None:
        self.index = index
        self.workers = len(names)
        self.hosts = hosts
        self._rank, self._links = rank, links
        self._names = tuple(names)
        self._file = file
        self._turn = 0
        self._failure: str | None = None
        self._is_lost = False
        size = needed_bytes(self.workers, self.capacity)
        mapping = mmap.mmap(file.fileno(), size)
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a system without
            pass
        self._bytes = np.frombuffer(mapping, np.uint8)
        self._begin = int(self._bytes.ctypes.data)
        heads = self.workers**2 * _SEMAPHORE
        self._heads = self._bytes[heads : heads + 2 * self.workers * _HEAD.itemsize].view(_HEAD)
        self._heads = self._heads.reshape(2, self.workers)
        self._lanes = Lanes(self._bytes[_control_bytes(self.workers) :], index, self.workers, self.capacity)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, index)
        if index == 0:
            for i in range(self.workers**2):
                self._system.begin(self._begin + i * _SEMAPHORE, 1, 0)

    @property
    def crosses_beside(self) -> bool:
        """Whether exchanges may begin while a program computes: between hosts, as their network needs no core.

        Where workers may change, programs do not know on how many hosts they will run, and all must have the same.
        """
        return self.hosts.number > 1 and not self._world

    def plan(self, name: str, parts: Sequence[PlanPart]) -> Plan:
        """Return an exchange between all workers, for `add`.

        Args:
            name: The exchange and its program; the same on every worker.
            parts: The arrays.
        """
        return Plan(name, parts, self.capacity, self.hosts)

    def add(self, plan: Plan) -> None:
        """Let programs call an exchange by its signature. Its rounds are those of the present workers."""
        self._asked.setdefault(plan.signature, plan)

    def _here(self, signature: int) -> Plan | TwoLevels:
        """Return an exchange for the present workers."""
        key = (self.hosts, signature)
        if key not in self._plans:
            plan = self._asked[signature]
            if self.hosts.number > 1:
                self._plans[key] = TwoLevels(plan, self.hosts, self._rank, self.capacity)
            elif plan.hosts == self.hosts:
                self._plans[key] = plan
            else:
                self._plans[key] = self.plan(plan.name, plan.parts)
        return self._plans[key]

    # Where workers change ------------------------------------------------------------------------

    @property
    def world(self) -> int:
        """The number of the world of workers that this memory belongs to."""
        return self._world

    @property
    def is_cut(self) -> bool:
        """Whether the present workers no longer exchange: one of them is gone, or `cut` was called."""
        is_lost = self._is_lost or (self._links is not None and self._links.is_lost)
        return is_lost or self._cut >= self._world > 0

    def is_over(self, world: int) -> bool:
        """Whether a world has ended, of which this memory may not have become a part yet.

        Args:
            world: Its number.
        """
        return self._cut >= world > 0

    def cut(self, world: int, reason: str) -> None:
        """Let exchanges fail, also those in flight, whose results have not been used. Any thread may call it.

        Args:
            world: The number of the world of workers that is over.
            reason: Why, in words.
        """
        self._why_cut, self._cut = reason, max(world, self._cut)

    def move(
        self,
        world: int,
        file: FileIO,
        index: int,
        names: Sequence[str],
        *,
        hosts: Hosts,
        rank: int,
        links: Links | None = None,
        spins: bool = True,
    ) -> None:
        """Continue in new memory. Programs for the same number of workers do not have to be compiled again.

        Args:
            world: The number of the world of workers that begins, from 1; 0 where they may not change.
            file: The new memory, `needed_bytes` large for the workers of this host.
            index: The index of this worker among them from now on.
            names: The name of each of them in messages.
            hosts: All workers by host.
            rank: The index of this worker among all.
            links: Connections to those of other hosts that have the same share, if any; None with one host.
            spins: Whether each worker has its own core.
        """
        with self._lock:
            self._file.close()
            if self._links is not None:
                self._links.close()
            self._view(file, index, names, hosts, rank, links)
            self._spin_seconds = SPIN_SECONDS if spins else 0.0
            self._world = world

    def run(self, signature: int, operands: Sequence[int], results: Sequence[int]) -> None:
        """Make an exchange that was added: the target of programs (`ffi.register`).

        Args:
            signature: The signature of the exchange.
            operands: Addresses of the arrays; in phase "collect" of the parcels. Additional operands are ignored.
            results: Addresses for the combined arrays, the same or others; in phase "scatter" for the parcels.

        Raises:
            PeerError: A worker is gone, or makes another exchange.
        """
        with self._lock:  # workers that change do not move in between
            self.begin(signature, operands, results)
            self.finish(signature, operands, results)

    def begin(self, signature: int, operands: Sequence[int], results: Sequence[int]) -> None:
        """Begin an exchange, while the program computes on: a target of programs, as `run` is.

        Args:
            signature: The signature of the exchange.
            operands: Addresses of the arrays. They belong to the exchange until `finish` is called.
            results: The same addresses.

        Raises:
            PeerError: A worker is gone, or makes another exchange.
        """
        del results
        with self._exchanging():
            plan = self._here(signature)
            if isinstance(plan, TwoLevels):
                self._links_now().crossings.clear(plan.signature)
                plan.lay(operands, self._exchange)
                self._cross(plan)

    def finish(self, signature: int, operands: Sequence[int], results: Sequence[int]) -> None:
        """Finish an exchange that has begun: a target of programs. The arguments are those of `run`.

        Raises:
            PeerError: A worker is gone, or makes another exchange.
        """
        with self._exchanging():
            plan = self._here(signature)
            if isinstance(plan, TwoLevels):
                began = time.perf_counter()
                self._links_now().crossings.end(plan.signature)
                self._waited += time.perf_counter() - began
                plan.collect(results, self._exchange)
            else:  # workers of one host copy for themselves: beside a program they would take its core
                self._exchange(plan, operands, results)

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        """Make a part of an exchange, one at a time, and count how long it takes."""
        with self._lock:
            if self._failure is not None:
                raise PeerError(self._failure)
            began, self._waited = time.perf_counter(), 0.0
            try:
                yield
            except PeerError as error:
                self._failure = str(error)
                raise
            self._counts.exchanged(time.perf_counter() - began, self._waited)

    def _exchange(self, plan: Plan, operands: Sequence[int], results: Sequence[int]) -> None:
        if plan.phase == "scatter":
            self._lanes.pack(plan, operands, results)
        elif plan.phase == "collect":
            self._lanes.unpack(plan, operands, results)
        for number, runs in enumerate(plan.rounds):
            turn, side = self._turn, self._turn % 2
            # A worker that still reads this side of the lanes, from two turns ago, has not met the others since.
            self._lanes.lay(plan, runs, side, operands)
            if number == 0:
                self._say(plan, turn, side)
            self._meet()
            if number == 0:
                self._check(plan, turn, side)
            if plan.phase == "combine":
                self._lanes.combine(plan, runs, side, operands, results, self._meet)
            elif plan.phase == "scatter":
                self._lanes.scatter(plan, runs, side, operands, results)
            else:
                self._lanes.collect(plan, runs, side, operands, results)
            self._turn += 1

    def _links_now(self) -> Links:
        assert self._links is not None, "several hosts have connections"
        return self._links

    def _cross(self, plan: TwoLevels) -> None:
        """Begin to combine with other hosts."""
        links, began = self._links_now(), time.perf_counter()

        def check() -> None:
            self._check_wait(began, "the workers of other hosts")

        links.crossings.begin(plan.signature, lambda: plan.cross(links, check))

    # Meeting -------------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Tell the others that this worker is here, and wait for them."""
        others = [worker for worker in range(self.workers) if worker != self.index]
        for worker in others:
            self._system.post(self._semaphore(self.index, worker))
        began = time.perf_counter()
        for worker in others:
            self._await(worker)
        self._waited += time.perf_counter() - began

    def _semaphore(self, sender: int, receiver: int) -> int:
        return self._begin + (sender * self.workers + receiver) * _SEMAPHORE

    def _await(self, worker: int) -> None:
        semaphore = self._semaphore(worker, self.index)
        if self._system.trial(semaphore) == 0:
            return
        limit = time.perf_counter() + self._spin_seconds
        while time.perf_counter() < limit:
            if self._system.trial(semaphore) == 0:
                return
        until = _Time()
        while True:
            # Of POSIX's waits with a limit the one that all systems have goes by the time of day. If that is set back
            # the sleep is longer, but it still ends when the other worker comes.
            nanoseconds = time.time_ns() + int(1e9 * SLICE_SECONDS)
            until.seconds, until.nanoseconds = divmod(nanoseconds, 10**9)
            if self._system.wait(semaphore, until) == 0:
                return
            self._check_wait(limit, self._names[worker])
            if not self._lives(worker):
                self._is_lost = True
                raise PeerError(
                    f"{self._names[worker]} has ended while {self._names[self.index]} waited for it in a step.",
                    "Look at its output, and start the group again (`stratagem run --max-restarts` does).",
                )

    def _check_wait(self, began: float, other: str) -> None:
        """Raise an error where a wait of an exchange has become vain, or too long."""
        if self._cut >= self._world > 0:
            raise PeerError(f"The exchange of a step was cut: {self._why_cut}.")
        if self._world and time.perf_counter() > began + HANG_SECONDS:
            raise PeerError(
                f"{self._names[self.index]} waited {HANG_SECONDS:g} s for {other} in a step.",
                "That worker is alive, but it is stuck or runs another part of the program.",
                "Look at its output, and run the same program on every worker.",
            )

    def _lives(self, worker: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, worker)
        except OSError:
            return True
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, worker)
        return False

    def _say(self, plan: Plan, turn: int, side: int) -> None:
        """Write down which exchange this worker makes."""
        head = self._heads[side, self.index]
        text = plan.text.encode()[:_TEXT]
        head["turn"], head["signature"], head["length"] = turn, plan.signature, len(text)
        head["text"][: len(text)] = np.frombuffer(text, "S1")

    def _check(self, plan: Plan, turn: int, side: int) -> None:
        """Compare what the others have written down.

        Raises:
            PeerError: They make other exchanges.
        """
        heads = self._heads[side]
        if (heads["signature"] == plan.signature).all() and (heads["turn"] == turn).all():
            return
        lines = []
        for name, head in zip(self._names, heads, strict=True):
            text = head["text"][: head["length"]].tobytes().decode(errors="replace")
            lines.append(f"\n    {name}: exchange {head['turn'] + 1}, {text}")
        raise PeerError(
            f"The workers combine different values in the same step:{''.join(lines)}",
            "Gradients of one variable would be added to those of another.",
            "Run the same program with the same model and data on every worker.",
        )
