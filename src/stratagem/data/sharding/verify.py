"""Proof that a dataset is divided rightly: it is read as each of several workers would, and compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.findings import Finding, has_failed, passed, table
from stratagem.data import check
from stratagem.data.batches import RowsOf
from stratagem.data.dataset import Dataset
from stratagem.data.options import AutoShardPolicy
from stratagem.data.sharding.digests import Difference, Steps, difference, twice_and_never
from stratagem.data.sharding.rehearsal import Rehearsal, balanced, length_of, state_after

MOST_BATCHES: Final = 1000
"""Batches that are compared unless the caller says otherwise: of a dataset without end, or one that takes hours."""


class Place(NamedTuple):
    """Where something first differs.

    Args:
        step: Number of the batch, from 0.
        worker: Which worker reads it; None where all do.
        row: Row of the global batch; of the worker's own batch where each worker reads a stream of its own.
    """

    step: int
    worker: int | None
    row: int


@dataclass(frozen=True)
class ShardingReport:
    """What `verify_sharding` found. `print(report)` shows it as a table.

    Args:
        workers: As how many workers the dataset was read.
        policy: How it is divided among them; None where it is no `Dataset`, or its function divides it.
        batches: Global batches that one worker reads, as far as they were compared.
        examples: Rows of these batches.
        distinct: How many different ones these are.
        complete: Whether that is all of the dataset.
        findings: One for each check, in the order of the checks.
        first_difference: Where the first of them that failed begins; None where that has no place.
    """

    workers: int
    policy: AutoShardPolicy | None
    batches: int
    examples: int
    distinct: int
    complete: bool
    findings: tuple[Finding, ...]
    first_difference: Place | None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not has_failed(self.findings)

    def __str__(self) -> str:
        return table(self.findings)

    def raise_if_wrong(self) -> None:
        """Raise an error that shows the report, unless `ok`.

        Raises:
            InputError: Something is wrong with the dataset.
        """
        if not self.ok:
            wrong = next(finding for finding in self.findings if finding.verdict == "FAIL")
            raise InputError(
                f"{self.workers} workers would not read the dataset rightly.\n{self}",
                "The workers would train on other examples than one worker, or a restarted run on others than "
                "the run that ended.",
                wrong.repair,
            )


def verify_sharding(dataset: Any, workers: int = 2, *, max_batches: int | None = MOST_BATCHES) -> ShardingReport:
    """Read a dataset as each of several workers would, in this process, and see that together they read it rightly.

    That is: a second pass gives the same examples in the same order; at each step the workers' rows together are the
    global batch that one worker would see, so that no example comes twice and none is left out; all workers have as
    many steps; and in the middle of the pass another number of workers can go on. Where each worker reads a stream
    of its own (policies OFF, HINT and FILE, and functions of an `InputContext`), it is: each stream is the same at a
    second pass, and all of them together are the dataset, each example once.

    Passes that this reads do not count: the next pass over the dataset has the order that it would have had.

    Args:
        dataset: What `fit` or a strategy is given: a batched `Dataset`, or anything else that yields batches. Better
            a function that returns it, which is called anew for each worker, as each worker's program does: then it
            is seen when two workers would make different datasets. A function with one argument gets an
            `InputContext`, as in `strategy.distribute_datasets_from_function`.
        workers: As how many workers to read it.
        max_batches: How many batches of each pass to compare; None for all.

    Raises:
        InputError: An argument is wrong, or the dataset cannot be read at all.

    Example:
        >>> report = verify_sharding(Dataset.range(40).shuffle(40, seed=1).batch(6), workers=2)
        >>> report.ok, report.batches, report.examples
        (True, 7, 40)
        >>> print(report)
        check        verdict  found
        sharding     ok       auto-shard DATA (AUTO, as there are no files): each of 2 workers reads its
                              rows of every batch
        examples     ok       40 in 7 batches
        determinism  ok       a second pass gives the same examples in the same order
        shares       ok       at each step the workers' rows are the global batch (20 + 20 rows)
        steps        ok       7 on each worker
        resume       ok       after step 3 of 2 workers, 3 workers go on with the very rows that follow
    """
    check.integer("workers", workers, 1, "Write as how many workers to read the dataset, such as 2.")
    if max_batches is not None:
        check.integer("max_batches", max_batches, 1, "Write how many batches to compare, or None for all.")
    return _Verification(Rehearsal(dataset, workers, max_batches)).report()


class _Verification:
    """The checks, one after the other. The first that fails ends them: it is mostly the cause of what would follow."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._input = rehearsal
        self._workers = rehearsal.workers
        self._findings = [passed("sharding", rehearsal.reason)]
        self._first: Place | None = None
        self._reference, self._complete = rehearsal.read(self._whole(rehearsal.first))

    def report(self) -> ShardingReport:
        checks = [self._check_shards, self._check_examples, self._check_passes, self._check_calls]
        checks += [self._check_streams] if self._input.own_streams else [self._check_shares, self._check_resume]
        all(each() for each in checks)
        rows = _joined(self._reference)
        return ShardingReport(
            self._workers,
            self._input.policy,
            len(self._reference),
            len(rows),
            len(np.unique(rows)),
            self._complete,
            tuple(self._findings),
            self._first,
        )

    def _whole(self, made: Any) -> Any:
        return self._input.part(made, 1, 0)

    def _part_of(self, worker: int, workers: int) -> Any:
        return self._input.part(self._input.make(workers, worker), workers, worker)

    # ------------------------------------------------------------------ checks: each tells whether to go on

    def _fail(self, check: str, found: str, repair: str, place: Place | None = None) -> bool:
        self._findings.append(Finding(check, "FAIL", found, repair))
        self._first = place
        return False

    def _pass(self, check: str, found: str) -> bool:
        self._findings.append(passed(check, found))
        return True

    def _warn(self, check: str, found: str, repair: str) -> bool:
        self._findings.append(Finding(check, "warn", found, repair))
        return True

    def _check_shards(self) -> bool:
        """See that nobody divided the global dataset by hand before it is divided."""
        made = self._input.first
        for count, index in made.shards if isinstance(made, Dataset) and not self._input.takes_context else []:
            found = f"shard({count}, {index}) is in the dataset: the workers share every {count}th example of it"
            if self._input.policy is AutoShardPolicy.OFF or count != self._workers or count == 1:
                self._warn("shard", found, "Remove it if it was meant to divide the dataset among the workers.")
            else:
                return self._fail(
                    "shard",
                    f"{found}, and {count - 1} of {count} examples are never read",
                    f"Remove .shard({count}, {index}): fit and the strategies divide the global dataset themselves.",
                )
        return True

    def _check_examples(self) -> bool:
        batches, rows = len(self._reference), _joined(self._reference)
        if not len(rows):
            return self._fail(
                "examples",
                "there is none",
                "Check the folder or the filter; an iterator that was used up must be made anew.",
            )
        told = length_of(self._input.first)
        if self._complete and told is not None and told != batches:
            return self._fail(
                "examples",
                f"the length is said to be {told} batches, but a pass has {batches}",
                "Let the length be the number of batches: fit makes its steps by it.",
                Place(min(told, batches), None, 0),
            )
        alike = len(rows) - len(np.unique(rows))
        also = f", {alike} of them like another one" if alike else ""
        limit = "" if self._complete else "; what comes after these was not read"
        return self._pass("examples", f"{len(rows)} in {batches} batches{also}{limit}")

    def _check_passes(self) -> bool:
        """See that a second pass is as the first."""
        made = self._input.first
        once = isinstance(made, Iterator)
        if once and (self._complete or not self._input.is_function):
            return self._fail(
                "determinism",
                f"the input is a {type(made).__name__}, which can be read once: a second pass finds it used up",
                "Give what can be read anew: Dataset.from_generator(make_examples), with the function that makes the "
                "generator.",
            )
        again, _ = self._input.read(self._whole(self._input.make(1, 0) if once else made))
        found = difference(self._reference, again, complete=self._complete)
        if found is None:
            return self._pass("determinism", "a second pass gives the same examples in the same order")
        if not again:
            return self._fail(
                "determinism",
                "a second pass finds no example: the first one used the input up",
                "Let the function given to from_generator make its generator anew at each call.",
                Place(0, None, 0),
            )
        return self._fail_difference("a second pass", again, found, _REPAIRS[found.kind])

    def _check_calls(self) -> bool:
        """See that the function makes the same dataset for another worker."""
        if not self._input.is_function:
            return True
        again, _ = self._input.read(self._whole(self._input.make(1, 0)))
        found = difference(self._reference, again, complete=self._complete)
        if found is None:
            return True
        return self._fail_difference(
            "the dataset of a second call of the function",
            again,
            found,
            "Every worker calls it. Let it make the same dataset each time: seed what it draws, such as "
            "numpy.random.default_rng(7).permutation(n), and sort what it lists, such as sorted(os.listdir(folder)).",
        )

    def _fail_difference(self, what: str, steps: Steps, found: Difference, repair: str) -> bool:
        place = f"step {found.step}, row {found.row}"
        rows = len(_joined(self._reference))
        said = {
            "order": f"gives the same examples in another order, from {place} on",
            "content": f"gives other examples, not only another order: {found.rows} of {rows} differ, first at {place}",
            "length": f"has {len(_joined(steps))} examples in {len(steps)} batches, the first had {rows} in "
            f"{len(self._reference)}; they part at {place}",
        }
        return self._fail("determinism", f"{what} {said[found.kind]}", repair, Place(found.step, None, found.row))

    def _check_shares(self) -> bool:
        """See that at each step the workers' rows, side by side, are the global batch."""
        shares: list[Steps] = []
        wrong: list[tuple[int, int, int]] = []
        for worker in range(self._workers):
            rows_of = balanced(self._workers, worker)
            shares.append(self._input.read(self._part_of(worker, self._workers), rows_of).steps)
            found = difference(_rows(self._reference, rows_of), shares[-1])
            if found is not None:
                rows = [len(step) for step in self._reference[found.step :]] or [0]
                wrong.append((found.step, rows_of(rows[0]).start + found.row, worker))
        counts = [len(share) for share in shares]
        if wrong:
            step, row, worker = min(wrong)
            twice, never = twice_and_never(_joined(self._reference), np.concatenate([*map(_joined, shares)]))
            steps = f", in {', '.join(map(str, counts))} steps" if len(set(counts)) > 1 else ""
            return self._fail(
                "shares",
                f"worker {worker} reads other rows than those of the global batch, first at step {step}, row {row}; "
                f"together the workers read {twice} examples too often and {never} never{steps}",
                "Let functions given to map, filter and from_generator depend on their arguments alone: each worker "
                "calls them for its own rows.",
                Place(step, worker, row),
            )
        self._pass("shares", f"at each step the workers' rows are the global batch ({_counted(shares)} rows)")
        return self._pass("steps", f"{counts[0]} on each worker")

    def _check_resume(self) -> bool:
        """See that another number of workers goes on in the middle of the pass."""
        if not isinstance(self._input.first, Dataset):
            return self._pass("resume", "not looked at: the input is no stratagem.data.Dataset")
        done, others = len(self._reference) // 2, self._workers + 1
        state = state_after(self._part_of(0, self._workers), balanced(self._workers, 0), done)
        for worker in range(others):
            rows_of = balanced(others, worker)
            rest, _ = self._input.read(self._part_of(worker, others), rows_of, state, done)
            found = difference(_rows(self._reference[done:], rows_of), rest)
            if found is not None:
                return self._fail(
                    "resume",
                    f"after step {done} of {self._workers} workers, worker {worker} of {others} reads other rows than "
                    f"those that follow, from step {done + found.step} on",
                    "Let generators and functions give the same examples wherever reading begins.",
                    Place(done + found.step, worker, found.row),
                )
        return self._pass(
            "resume",
            f"after step {done} of {self._workers} workers, {others} workers go on with the very rows that follow",
        )

    def _check_streams(self) -> bool:
        """See that each worker's own stream is the same at a second pass, and all together are the dataset."""
        streams, complete = [], self._complete
        for worker in range(self._workers):
            part = self._part_of(worker, self._workers)
            stream, ended = self._input.read(part)
            streams.append(stream)
            complete = complete and ended
            found = difference(stream, self._input.read(part).steps, complete=ended)
            if found is not None:
                return self._fail(
                    "streams",
                    f"a second pass of worker {worker} differs, from step {found.step}, row {found.row} on",
                    _REPAIRS[found.kind],
                    Place(found.step, worker, found.row),
                )
        self._pass("streams", "a second pass of each worker gives the same examples in the same order")
        steps = ", ".join(str(len(stream)) for stream in streams)
        return self._check_union(streams, complete) and self._pass("steps", f"the workers have {steps} batches")

    def _check_union(self, streams: list[Steps], complete: bool) -> bool:
        if self._input.policy is AutoShardPolicy.OFF:
            return self._warn(
                "shares",
                f"each worker reads the whole dataset ({_counted(streams)} examples), so that each example is read "
                f"{self._workers} times",
                "That is what OFF means. AutoShardPolicy.AUTO lets each worker read its part.",
            )
        if self._input.policy is AutoShardPolicy.FILE and self._input.even:
            return self._check_even_files(streams)
        if not complete:
            return self._pass("shares", "not compared, as the workers' streams were not read to their end")
        rows = _joined(self._reference)
        twice, never = twice_and_never(rows, np.concatenate([*map(_joined, streams)]))
        if not (twice or never):
            return self._pass("shares", f"together the workers read each example once ({_counted(streams)})")
        shard = "dataset.shard(context.num_input_pipelines, context.input_pipeline_id)"
        return self._fail(
            "shares",
            f"of {len(rows)} examples the workers read {twice} too often and {never} never ({_counted(streams)})",
            f"Let each worker take its part: {shard}, before batch()."
            if self._input.takes_context
            else "Give every worker the same dataset, with the same seeds, up to where it is divided.",
        )

    def _check_even_files(self, streams: list[Steps]) -> bool:
        """See that at each step the workers' files have the rows of the global batch, in whatever order."""
        for step, batches in enumerate(itertools.zip_longest(self._reference, *streams, fillvalue=_NO_ROWS)):
            twice, never = twice_and_never(batches[0], np.concatenate(batches[1:]))
            if twice or never:
                return self._fail(
                    "shares",
                    f"at step {step} the workers read {twice} rows too often and {never} never of the global batch",
                    "Use AutoShardPolicy.DATA: each worker then reads its rows of every batch.",
                    Place(step, None, 0),
                )
        return self._pass("shares", f"at each step the workers' rows are the global batch ({_counted(streams)} rows)")


_NO_ROWS: Final = np.empty(0, np.uint64)

_REPAIRS: Final = {
    "order": "Seed what shuffles where a pass begins, rng = numpy.random.default_rng(7) inside the generator; or leave "
    "the order to dataset.shuffle(buffer_size, seed=7).",
    "content": "Draw random numbers by the example's number: dataset.enumerate().map(lambda i, x: augment(x, "
    "numpy.random.default_rng([7, i]))); or augment in the model, with layers such as keras.layers.RandomFlip.",
    "length": "Let each pass give all examples anew, and choose among them by their content or number, not by chance.",
}


def _joined(steps: Steps) -> np.ndarray:
    return np.concatenate([_NO_ROWS, *steps])


def _rows(steps: Steps, rows_of: RowsOf) -> Steps:
    return [step[rows_of(len(step))] for step in steps]


def _counted(shares: Sequence[Steps]) -> str:
    return " + ".join(str(len(_joined(share))) for share in shares)
