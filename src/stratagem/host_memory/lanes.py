"""Copying arrays to the slots of a host's memory, and combining what lies there.

Every element is combined in the order of the workers, on whichever of them does it, so all get the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from stratagem.host_memory.plan import Plan, Run

_UFUNCS: Final[dict[str, Callable[..., Any]]] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class Slots:
    """The slots of all workers, as one of them sees them. Each has two sides, for exchanges in turn.

    Args:
        memory: Bytes of all slots.
        index: Which worker this is.
        workers: How many there are.
        capacity: Bytes of a slot.
    """

    def __init__(self, memory: np.ndarray, index: int, workers: int, capacity: int) -> None:
        self._bytes = memory
        self._begin = int(memory.ctypes.data)
        self._index = index
        self._workers = workers
        self._capacity = capacity
        self._views: dict[tuple[int, int, int], list[np.ndarray]] = {}
        self._scratch = np.empty(capacity, np.uint8)
        # It keeps the interpreter's lock: giving it up for microseconds may cost 5 ms until a busy thread returns it.
        self._copy = ctypes.PyDLL(None).memmove
        self._copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def lay(self, plan: Plan, runs: Sequence[Run], side: int, operands: Sequence[int]) -> None:
        """Copy what the others need to this worker's slot.

        Args:
            plan: The exchange.
            runs: Those of a round.
            side: Of the slots.
            operands: Where the arrays lie; behind them the shares of each kind.
        """
        slot = self._slot(side, self._index)
        for run in runs:
            begin, nbytes = run.share_of(self._index)
            if plan.phase == "collect":
                self._copy(slot + run.place + begin, operands[len(plan.parts) + run.kind] + run.lies, nbytes)
            elif plan.phase == "scatter" and run.whole:  # nobody else reads the own share
                piece = run.pieces[0]
                source, end = operands[piece.index] + piece.start, begin + nbytes
                self._copy(slot + run.place, source, begin)
                self._copy(slot + run.place + end, source + end, run.nbytes - end)
            else:
                for piece in run.pieces:
                    self._copy(slot + piece.place, operands[piece.index] + piece.start, piece.nbytes)

    def combine(
        self,
        plan: Plan,
        runs: Sequence[Run],
        side: int,
        operands: Sequence[int],
        results: Sequence[int],
        meet: Callable[[], None],
    ) -> None:
        """Combine what all have laid into the results of this worker.

        Args:
            plan: The exchange, of phase "combine".
            runs: Those of a round.
            side: Of the slots.
            operands: Where the arrays lie.
            results: Where the combined arrays are to lie.
            meet: Waits for the others once more, where they share the work.
        """
        shared = [run for run in runs if run.whole and run.operation != "gather" and self._workers > 2]
        for run in runs:
            if run.operation == "gather":
                self._gather(run, plan, side, results)
            elif not run.whole:
                total = self._scratch[: run.nbytes].view(run.dtype)
                self._fold(run, self._terms(side, run.place, run.nbytes, run.dtype), total)
                self._hand_out(run, results)
            elif run in shared:
                self._combine_own_share(run, side, results)
            else:
                self._combine_large(run, side, operands, results)
        if shared:
            meet()
            for run in shared:
                self._take_shares(run, side, results)

    def scatter(
        self, plan: Plan, runs: Sequence[Run], side: int, operands: Sequence[int], results: Sequence[int]
    ) -> None:
        """Combine this worker's share. Arguments as of `combine`; behind the results lie the shares of each kind."""
        for run in runs:
            begin, nbytes = run.share_of(self._index)
            if not nbytes:
                continue
            terms = self._terms(side, run.place + begin, nbytes, run.dtype)
            if run.whole:
                source = operands[run.pieces[0].index] + run.pieces[0].start + begin
                terms[self._index] = _view(source, nbytes, run.dtype)
            self._fold(run, terms, _view(results[len(plan.parts) + run.kind] + run.lies, nbytes, run.dtype))

    def collect(self, runs: Sequence[Run], side: int, results: Sequence[int]) -> None:
        """Put the shares of all workers together. Arguments as of `combine`."""
        for run in runs:
            if run.whole:
                self._take_shares(run, side, results, own=True)
                continue
            for worker in range(self._workers):
                begin, nbytes = run.share_of(worker)
                source = self._slot(side, worker) + run.place + begin
                self._copy(self._scratch.ctypes.data + begin, source, nbytes)
            self._hand_out(run, results)

    def _combine_large(self, run: Run, side: int, operands: Sequence[int], results: Sequence[int]) -> None:
        """Combine a large array of two workers; the own part is read where it lies, perhaps under the result."""
        piece = run.pieces[0]
        terms = self._terms(side, run.place, run.nbytes, run.dtype)
        terms[self._index] = _view(operands[piece.index] + piece.start, piece.nbytes, run.dtype)
        self._fold(run, terms, _view(results[piece.index] + piece.start, piece.nbytes, run.dtype))

    def _combine_own_share(self, run: Run, side: int, results: Sequence[int]) -> None:
        """Combine this worker's share of a large array, and lay it where its own part of that lay: nobody reads it."""
        begin, nbytes = run.share_of(self._index)
        if nbytes:
            piece = run.pieces[0]
            result = results[piece.index] + piece.start + begin
            terms = self._terms(side, run.place + begin, nbytes, run.dtype)
            self._fold(run, terms, _view(result, nbytes, run.dtype))
            self._copy(self._slot(side, self._index) + run.place + begin, result, nbytes)

    def _take_shares(self, run: Run, side: int, results: Sequence[int], *, own: bool = False) -> None:
        """Copy the shares of a large array to the result; the own one too where it does not lie there already."""
        piece = run.pieces[0]
        for worker in range(self._workers):
            begin, nbytes = run.share_of(worker)
            if nbytes and (own or worker != self._index):
                source = self._slot(side, worker) + run.place + begin
                self._copy(results[piece.index] + piece.start + begin, source, nbytes)

    def _gather(self, run: Run, plan: Plan, side: int, results: Sequence[int]) -> None:
        for worker in range(self._workers):
            slot = self._slot(side, worker)
            for piece in run.pieces:
                begin = results[piece.index] + worker * plan.parts[piece.index].nbytes + piece.start
                self._copy(begin, slot + piece.place, piece.nbytes)

    def _fold(self, run: Run, terms: Sequence[np.ndarray], total: np.ndarray) -> None:
        if len(terms) == 1:  # alone on its host
            total[:] = terms[0]
            return
        combine = _UFUNCS[run.operation]
        combine(terms[0], terms[1], out=total)
        for term in terms[2:]:
            combine(total, term, out=total)

    def _hand_out(self, run: Run, results: Sequence[int]) -> None:
        """Copy what was put together in the scratch memory to where each piece belongs."""
        begin = self._scratch.ctypes.data - run.place
        for piece in run.pieces:
            self._copy(results[piece.index], begin + piece.place, piece.nbytes)

    def _slot(self, side: int, worker: int) -> int:
        return self._begin + (side * self._workers + worker) * self._capacity

    def _terms(self, side: int, place: int, nbytes: int, dtype: np.dtype) -> list[np.ndarray]:
        """Return the same bytes of every slot, as arrays."""
        key = (side, place, nbytes)
        if key not in self._views:
            self._views[key] = [
                self._bytes[begin : begin + nbytes]
                for begin in (self._slot(side, worker) + place - self._begin for worker in range(self._workers))
            ]
        return [view.view(dtype) for view in self._views[key]]


def _view(address: int, nbytes: int, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(memoryview((ctypes.c_char * nbytes).from_address(address)), dtype)
