"""Sums over the workers of one host, through memory that they have in common.

Each worker copies its arrays to its slot, tells the others, waits for them, and combines what lies in all slots into
its own results. So every byte is read and written once or twice by the processor, where a socket on the same host
(Gloo's way) copies it through the kernel, and stalls for 50 to 190 ms at some sizes. Every element is combined in the
order of the workers, on whichever of them does it, so all get the same bits.

The workers wake each other with semaphores that lie in the memory (`sem_overview(7)`). The memory has no name and is
gone with its last process. Each process holds a lock on one byte of it, which the system drops when the process dies,
however it dies: so who waits finds out. A worker that lives but does not come is a matter for the watchdog
(`cluster.watchdog`), which knows what each of them is doing.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import threading
import time
from collections.abc import Callable, Sequence
from io import FileIO
from typing import Any, Final

import numpy as np

from stratagem.core.errors import PeerError, explain
from stratagem.replica.host_plan import ALIGNMENT, Plan, Run

CAPACITY: Final = 16 << 20
"""Bytes of a slot. Memory that no exchange needs is never taken from the system."""

SPIN_SECONDS: Final = 1e-4
"""How long a worker with a core of its own looks out for another one before it sleeps."""

SLICE_SECONDS: Final = 0.05
"""How often a sleeping worker looks whether those it waits for still live."""

_SEMAPHORE: Final = 64
_TEXT: Final = 1024 - 24
_HEAD: Final = np.dtype([("turn", "<i8"), ("signature", "<i8"), ("length", "<i8"), ("text", "S1", (_TEXT,))])
_PAGE: Final = 1 << 21
"""Slots begin at pages of this size, which the system may use for them."""

_UFUNCS: Final[dict[str, Callable[..., Any]]] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class _Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _System:
    """Functions of the C library. Looked up when there is memory to use them on: not all systems have them all."""

    def __init__(self) -> None:
        # These keep the interpreter's lock: giving it up for microseconds may cost 5 ms until a busy thread returns it.
        quick = ctypes.PyDLL(None)
        self.copy, self.begin, self.post, self.trial = quick.memmove, quick.sem_init, quick.sem_post, quick.sem_trywait
        self.copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self.begin.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
        self.post.argtypes = self.trial.argtypes = [ctypes.c_void_p]
        self.wait = ctypes.CDLL(None).sem_timedwait
        self.wait.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Time)]


def needed_bytes(workers: int, capacity: int = CAPACITY) -> int:
    """Return the size of the memory.

    Args:
        workers: How many have it in common.
        capacity: Bytes of a slot.
    """
    return _control_bytes(workers) + 2 * workers * capacity


def _control_bytes(workers: int) -> int:
    control = workers * workers * _SEMAPHORE + 2 * workers * _HEAD.itemsize
    return -(-control // _PAGE) * _PAGE


class HostMemory:
    """One worker's view of the memory.

    The memory lasts as long as the process. Exchanges must be made by all workers in the same order; who makes
    another one than the others is told so.

    Args:
        file: The memory, `needed_bytes` large, full of zeros when the first worker gets it.
        index: Which worker this is. The first one must have made its view before the others use theirs.
        names: What to call each worker in messages.
        spins: Whether each worker has a core of its own.
        capacity: Bytes of a slot.
    """

    def __init__(
        self, file: FileIO, index: int, names: Sequence[str], *, spins: bool = True, capacity: int = CAPACITY
    ) -> None:
        self.index = index
        self.workers = len(names)
        self.capacity = capacity
        self._names = tuple(names)
        self._spin_seconds = SPIN_SECONDS if spins else 0.0
        self._file = file
        self._system = _System()
        self._turn = 0
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._plans: dict[int, Plan] = {}
        self._views: dict[tuple[int, int, int], list[np.ndarray]] = {}
        size = needed_bytes(self.workers, capacity)
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
        self._scratch = np.empty(capacity, np.uint8)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, index)
        if index == 0:
            for i in range(self.workers**2):
                self._system.begin(self._begin + i * _SEMAPHORE, 1, 0)

    def add(self, plan: Plan) -> None:
        """Let programs call an exchange by its signature."""
        self._plans.setdefault(plan.signature, plan)

    def run(self, signature: int, operands: Sequence[int], results: Sequence[int]) -> None:
        """Make an exchange that was added: the target of programs (`ffi.register`).

        Args:
            signature: Which exchange.
            operands: Where the arrays lie in memory; more than the exchange has are left alone.
            results: Where the combined arrays are to lie: there too, or elsewhere.

        Raises:
            PeerError: A worker is gone, or makes another exchange.
        """
        with self._lock:
            if self._failure is not None:
                raise PeerError(self._failure)
            try:
                self._exchange(self._plans[signature], operands, results)
            except PeerError as error:
                self._failure = str(error)
                raise

    def _exchange(self, plan: Plan, operands: Sequence[int], results: Sequence[int]) -> None:
        for number, runs in enumerate(plan.rounds):
            turn, side = self._turn, self._turn % 2
            # Whoever still reads this side of the slots, from two turns ago, has not told the others of the last one.
            slot = self._slot(side, self.index)
            for run in runs:
                for piece in run.pieces:
                    self._system.copy(slot + piece.place, operands[piece.index] + piece.start, piece.nbytes)
            if number == 0:
                self._say(plan, turn, side)
            self._meet()
            if number == 0:
                self._check(plan, turn, side)
            shared = [run for run in runs if run.whole and run.operation != "gather" and self.workers > 2]
            for run in runs:
                if run.operation == "gather":
                    self._gather(run, plan, side, results)
                elif not run.whole:
                    self._combine_small(run, side, results)
                elif run in shared:
                    self._combine_own_share(run, side, results)
                else:
                    self._combine(run, side, operands, results)
            if shared:
                self._meet()
                for run in shared:
                    self._take_shares(run, side, results)
            self._turn += 1

    # Combining -----------------------------------------------------------------------------------

    def _combine(self, run: Run, side: int, operands: Sequence[int], results: Sequence[int]) -> None:
        """Combine a large array of two workers; the own part is read where it lies, perhaps under the result."""
        piece = run.pieces[0]
        terms = list(self._terms(side, run.place, run.nbytes, run.dtype))
        terms[self.index] = _view(operands[piece.index] + piece.start, piece.nbytes, run.dtype)
        _UFUNCS[run.operation](*terms, out=_view(results[piece.index] + piece.start, piece.nbytes, run.dtype))

    def _combine_small(self, run: Run, side: int, results: Sequence[int]) -> None:
        total = self._scratch[: run.nbytes].view(run.dtype)
        self._fold(run, self._terms(side, run.place, run.nbytes, run.dtype), total)
        begin = self._scratch.ctypes.data - run.place
        for piece in run.pieces:
            self._system.copy(results[piece.index], begin + piece.place, piece.nbytes)

    def _fold(self, run: Run, terms: Sequence[np.ndarray], total: np.ndarray) -> None:
        combine = _UFUNCS[run.operation]
        combine(terms[0], terms[1], out=total)
        for term in terms[2:]:
            combine(total, term, out=total)

    def _combine_own_share(self, run: Run, side: int, results: Sequence[int]) -> None:
        """Combine this worker's share of a large array, and lay it where its own part of that lay: nobody reads it."""
        begin, nbytes = self._share(run, self.index)
        if nbytes:
            piece = run.pieces[0]
            result = results[piece.index] + piece.start + begin
            terms = self._terms(side, run.place + begin, nbytes, run.dtype)
            self._fold(run, terms, _view(result, nbytes, run.dtype))
            self._system.copy(self._slot(side, self.index) + run.place + begin, result, nbytes)

    def _take_shares(self, run: Run, side: int, results: Sequence[int]) -> None:
        piece = run.pieces[0]
        for worker in range(self.workers):
            begin, nbytes = self._share(run, worker)
            if worker != self.index and nbytes:
                source = self._slot(side, worker) + run.place + begin
                self._system.copy(results[piece.index] + piece.start + begin, source, nbytes)

    def _share(self, run: Run, worker: int) -> tuple[int, int]:
        """Return where a worker's share of a run begins, and its bytes."""
        share = -(-run.nbytes // (self.workers * ALIGNMENT)) * ALIGNMENT
        begin = min(worker * share, run.nbytes)
        return begin, min(share, run.nbytes - begin)

    def _gather(self, run: Run, plan: Plan, side: int, results: Sequence[int]) -> None:
        for worker in range(self.workers):
            slot = self._slot(side, worker)
            for piece in run.pieces:
                begin = results[piece.index] + worker * plan.parts[piece.index].nbytes + piece.start
                self._system.copy(begin, slot + piece.place, piece.nbytes)

    def _slot(self, side: int, worker: int) -> int:
        return self._begin + _control_bytes(self.workers) + (side * self.workers + worker) * self.capacity

    def _terms(self, side: int, place: int, nbytes: int, dtype: np.dtype) -> list[np.ndarray]:
        """Return the same bytes of every slot, as arrays."""
        key = (side, place, nbytes)
        if key not in self._views:
            self._views[key] = [
                self._bytes[begin : begin + nbytes]
                for begin in (self._slot(side, worker) + place - self._begin for worker in range(self.workers))
            ]
        return [view.view(dtype) for view in self._views[key]]

    # Meeting -------------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Tell the others that this worker is here, and wait for them."""
        others = [worker for worker in range(self.workers) if worker != self.index]
        for worker in others:
            self._system.post(self._semaphore(self.index, worker))
        for worker in others:
            self._await(worker)

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
            if not self._lives(worker):
                raise PeerError(
                    explain(
                        f"{self._names[worker]} has ended while {self._names[self.index]} waited for it in a step.",
                        "Values of all workers could not be combined.",
                        "Look at its output, and start the group again (`stratagem run --max-restarts` does).",
                    )
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
            explain(
                f"The workers combine different values in the same step:{''.join(lines)}",
                "Gradients of one variable would be added to those of another.",
                "Run the same program with the same model and data on every worker.",
            )
        )


def _view(address: int, nbytes: int, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(memoryview((ctypes.c_char * nbytes).from_address(address)), dtype)
