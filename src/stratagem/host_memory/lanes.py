"""Lanes of a host's memory, one for each worker: arrays are copied there, and combined.

Every element is combined in the order of the workers, whichever worker does it, so all get the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from stratagem.host_memory.plan import Operation, Plan, Run

_UFUNCS: Final[dict[str, Callable[..., Any]]] = {"sum": np.add, "scatter": np.add, "min": np.minimum, "max": np.maximum}


class Lanes:
    """The lanes of all workers, as one of them sees them. Each lane has two sides, which exchanges use in turn.

    Args:
        memory: Bytes of all lanes.
        index: The index of this worker.
        workers: Number of workers.
        capacity: Bytes of a lane.
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

    def pack(self, plan: Plan, operands: Sequence[int], results: Sequence[int]) -> None:
        """Copy this worker's block of gathered arrays to the parcels, which a plan of phase "scatter" makes."""
        for index in plan.copied():
            parcel, place = plan.in_parcel(index)
            self._copy(results[parcel] + place, operands[index], plan.block(index))

    def unpack(self, plan: Plan, operands: Sequence[int], results: Sequence[int]) -> None:
        """Copy this worker's block of scattered arrays out of the parcels, which a plan of phase "collect" has."""
        for index in plan.copied():
            parcel, place = plan.in_parcel(index)
            self._copy(results[index], operands[parcel] + place, plan.block(index))

    def lay(self, plan: Plan, runs: Sequence[Run], side: int, operands: Sequence[int]) -> None:
        """Copy the values that the others need to this worker's lane.

        Args:
            plan: The exchange.
            runs: The runs of a round.
            side: The side of the lanes.
            operands: Addresses of the arrays; of the parcels in phase "collect".
        """
        lane = self._lane(side, self._index)
        for run in runs:
            begin, nbytes = run.share_of(self._index)
            if plan.phase == "collect" and run.operation == "gather":
                self._lay_blocks(lane, run, plan, operands)
            elif plan.phase == "collect":
                if self._workers > 1 or not run.whole:  # a share that nobody else reads is copied to its result at once
                    self._copy(lane + run.place + begin, self._in_parcel(plan, run, operands), nbytes)
            elif run.operation == "scatter" and self._reads_own(plan):
                own = [(each.begin, each.nbytes) for each in plan.stretches(run.pieces[0], self._index)]
                self._lay_around(lane, run, operands, own)
            elif plan.phase == "scatter" and run.operation != "scatter" and run.whole:
                self._lay_around(lane, run, operands, [(begin, nbytes)])
            else:
                for piece in run.pieces:
                    self._copy(lane + piece.place, operands[piece.index] + piece.start, piece.nbytes)

    def _lay_blocks(self, lane: int, run: Run, plan: Plan, operands: Sequence[int]) -> None:
        """Copy the blocks of this worker's group, which came in a parcel, to the lane."""
        for piece in run.pieces:
            for each in plan.stretches(piece, self._index):
                parcel, place = plan.in_parcel(piece.index, each.number)
                self._copy(lane + piece.place + each.begin, operands[parcel] + place + each.start, each.nbytes)

    def _lay_around(self, lane: int, run: Run, operands: Sequence[int], own: Iterable[tuple[int, int]]) -> None:
        """Copy a piece of a large array to the lane, without the bytes that nobody else reads.

        Args:
            lane: Where the lane begins.
            run: The piece.
            operands: Where the arrays lie.
            own: First byte in the piece, and number, of bytes that stay.
        """
        piece = run.pieces[0]
        source = operands[piece.index] + piece.start
        end = 0
        for begin, nbytes in [*sorted(own), (run.nbytes, 0)]:
            self._copy(lane + run.place + end, source + end, begin - end)
            end = begin + nbytes

    def combine(
        self,
        plan: Plan,
        runs: Sequence[Run],
        side: int,
        operands: Sequence[int],
        results: Sequence[int],
        meet: Callable[[], None],
    ) -> None:
        """Combine the values in all lanes into the results of this worker.

        Args:
            plan: The exchange, of phase "combine".
            runs: The runs of a round.
            side: The side of the lanes.
            operands: Addresses of the arrays.
            results: Addresses for the combined arrays.
            meet: Waits for the others once more, if they share the work.
        """
        shared = [run for run in runs if run.whole and run.operation not in ("gather", "scatter") and self._workers > 2]
        for run in runs:
            if run.operation == "gather":
                self._gather(run, plan, side, results)
            elif run.operation == "scatter":
                self._fold_own_blocks(run, plan, side, operands, results)
            elif not run.whole:
                self._fold(run, side, 0, self._scratch[: run.nbytes])
                self._hand_out(run, results)
            elif run in shared:
                self._combine_own_share(run, side, results)
            else:
                piece = run.pieces[0]  # the own part is read where it lies, perhaps under the result
                total = bytes_at(results[piece.index] + piece.start, piece.nbytes)
                self._fold(run, side, 0, total, own=operands[piece.index] + piece.start)
        if shared:
            meet()
            for run in shared:
                self._take_shares(run, side, results)

    def scatter(
        self, plan: Plan, runs: Sequence[Run], side: int, operands: Sequence[int], results: Sequence[int]
    ) -> None:
        """Combine the values for this worker's parcels, which are the results. The arguments are those of `combine`."""
        for run in runs:
            if run.operation == "scatter":
                self._fold_own_blocks(run, plan, side, operands, results)
                continue
            begin, nbytes = run.share_of(self._index)
            if not nbytes:
                continue
            own = operands[run.pieces[0].index] + run.pieces[0].start + begin if run.whole else None
            share = bytes_at(self._in_parcel(plan, run, results), nbytes)
            self._fold(run, side, begin, share, own)

    def collect(
        self, plan: Plan, runs: Sequence[Run], side: int, operands: Sequence[int], results: Sequence[int]
    ) -> None:
        """Put together the values in the parcels of all workers. The arguments are those of `combine`."""
        for run in runs:
            if run.operation == "gather":
                self._gather(run, plan, side, results)
                continue
            if run.whole:
                self._take_shares(run, side, results, own=self._in_parcel(plan, run, operands))
                continue
            for worker in range(self._workers):
                begin, nbytes = run.share_of(worker)
                source = self._lane(side, worker) + run.place + begin
                self._copy(self._scratch.ctypes.data + begin, source, nbytes)
            self._hand_out(run, results)

    def _combine_own_share(self, run: Run, side: int, results: Sequence[int]) -> None:
        """Combine this worker's share of a large array, and lay it where its own part of that lay: nobody reads it."""
        begin, nbytes = run.share_of(self._index)
        if nbytes:
            piece = run.pieces[0]
            result = results[piece.index] + piece.start + begin
            self._fold(run, side, begin, bytes_at(result, nbytes))
            self._copy(self._lane(side, self._index) + run.place + begin, result, nbytes)

    def _take_shares(self, run: Run, side: int, results: Sequence[int], *, own: int | None = None) -> None:
        """Copy the shares of a large array to the result.

        Args:
            run: The array.
            side: Of the lanes.
            results: Addresses for the combined arrays.
            own: Where the own share lies; None where it lies in the result already.
        """
        piece = run.pieces[0]
        for worker in range(self._workers):
            begin, nbytes = run.share_of(worker)
            source = own if worker == self._index else self._lane(side, worker) + run.place + begin
            if nbytes and source is not None:
                self._copy(results[piece.index] + piece.start + begin, source, nbytes)

    def _in_parcel(self, plan: Plan, run: Run, parcels: Sequence[int]) -> int:
        """Return where the share of this worker lies in the parcel of its kind."""
        return parcels[plan.kind(run.operation, run.dtype)] + run.lies

    def _reads_own(self, plan: Plan) -> bool:
        """Whether this worker reads its blocks of a sum where they lie.

        The sum may lie under them where there are no parcels. Of two terms that does no harm; of more the own one would
        be overwritten before its turn.
        """
        return plan.phase == "scatter" or self._workers == 2

    def _fold_own_blocks(
        self, run: Run, plan: Plan, side: int, operands: Sequence[int], results: Sequence[int]
    ) -> None:
        piece = run.pieces[0]
        for each in plan.stretches(piece, self._index):
            begin = piece.start + each.begin
            parcel, place = plan.in_parcel(piece.index, each.number)
            address = results[parcel] + place + each.start if plan.phase == "scatter" else results[piece.index] + begin
            own = operands[piece.index] + begin if self._reads_own(plan) else None
            self._fold(run, side, each.begin, bytes_at(address, each.nbytes), own)

    def _gather(self, run: Run, plan: Plan, side: int, results: Sequence[int]) -> None:
        for worker, group in enumerate(plan.groups[: self._workers]):
            lane = self._lane(side, worker)
            for piece in run.pieces:
                for each in plan.stretches(piece, worker):
                    begin = results[piece.index] + group[each.number] * plan.block(piece.index) + each.start
                    self._copy(begin, lane + piece.place + each.begin, each.nbytes)

    def _fold(self, run: Run, side: int, begin: int, result: np.ndarray, own: int | None = None) -> None:
        """Combine the same bytes of all lanes.

        Args:
            run: Which.
            side: Of the lanes.
            begin: First byte in the run.
            result: Where the combined bytes are to lie; as many as there are to combine.
            own: Where this worker's lie, if not in its lane.
        """
        total = result.view(run.dtype)
        terms = self._terms(side, run.place + begin, result.nbytes, run.dtype)
        if own is not None:
            terms[self._index] = bytes_at(own, result.nbytes).view(run.dtype)
        fold(run.operation, total, terms[1:], terms[0])

    def _hand_out(self, run: Run, results: Sequence[int]) -> None:
        """Copy what was put together in the scratch memory to where each piece belongs."""
        begin = self._scratch.ctypes.data - run.place
        for piece in run.pieces:
            self._copy(results[piece.index], begin + piece.place, piece.nbytes)

    def _lane(self, side: int, worker: int) -> int:
        return self._begin + (side * self._workers + worker) * self._capacity

    def _terms(self, side: int, place: int, nbytes: int, dtype: np.dtype) -> list[np.ndarray]:
        """Return the same bytes of every lane, as arrays."""
        key = (side, place, nbytes)
        if key not in self._views:
            self._views[key] = [
                self._bytes[begin : begin + nbytes]
                for begin in (self._lane(side, worker) + place - self._begin for worker in range(self._workers))
            ]
        return [view.view(dtype) for view in self._views[key]]


def fold(operation: Operation, total: np.ndarray, terms: Sequence[np.ndarray], first: np.ndarray | None = None) -> None:
    """Combine terms in their order, without a warning: what overflows is infinite, as in XLA.

    Args:
        operation: How they combine.
        total: Where the result is to lie.
        terms: The terms behind the first.
        first: The first; None where it is in `total`.
    """
    if first is not None and not terms:  # of a worker that is alone
        total[:] = first
        return
    combine = _UFUNCS[operation]
    with np.errstate(all="ignore"):
        for term in terms:
            combine(total if first is None else first, term, out=total)
            first = None


def bytes_at(address: int, nbytes: int) -> np.ndarray:
    """Return the bytes that lie at an address, which the caller keeps there."""
    return np.frombuffer(memoryview((ctypes.c_char * nbytes).from_address(address)), np.uint8)
