"""Proof that a dataset is divided correctly: it is read as each of several workers would read it, and compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.findings import Finding, has_failed, passed, table
from stratagem.core.split import even_part
from stratagem.data import check
from stratagem.data.batches import RowsOf
from stratagem.data.dataset import Dataset
from stratagem.data.options import AutoShardPolicy
from stratagem.data.sharding.digests import Steps, difference, twice_and_never
from stratagem.data.sharding.rehearsal import Rehearsal, length_of

MOST_BATCHES: Final = 1000
"""Batches that are compared unless the caller says otherwise: of a dataset without end, or one that takes hours."""


class RowPosition(NamedTuple):
    """Position of the first difference.

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
    """Result of `verify_sharding`. `print(report)` shows it as a table.

    Args:
        workers: Number of workers that were simulated.
        policy: How the dataset is divided among them; None if it is not a `Dataset`, or if its function divides it.
        batches: Number of compared global batches.
        examples: Number of rows in these batches.
        distinct: Number of different rows.
        complete: Whether the whole dataset was compared.
        findings: The result of each check, in order.
        first_difference: The place where the first failed check begins to differ; None if it has no place.
    """

    workers: int
    policy: AutoShardPolicy | None
    batches: int
    examples: int
    distinct: int
    complete: bool
    findings: tuple[Finding, ...]
    first_difference: RowPosition | None

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
                f"{self.workers} workers would not read the dataset correctly.\n{self}",
                "The workers would not train on the examples that one worker trains on, or a restarted run would not "
                "continue with the right ones.",
                wrong.repair,
            )


def verify_sharding(dataset: Any, workers: int = 2, *, max_batches: int | None = MOST_BATCHES) -> ShardingReport:
    """Read a dataset in this process as several workers would, and check that they read it correctly.

    It checks that a second pass gives the same examples in the same order, and that at each step the rows of all
    workers together are the global batch that one worker would see. So no example comes twice, and none is missing. It
    also checks that all workers have the same number of steps, and that another number of workers can resume in the
    middle of the pass.

    Each worker reads its own stream under the policies OFF, HINT and FILE, and with a function of an `InputContext`.
    Then it checks that each stream is the same in a second pass, and that all streams together contain each example
    once.

    These passes do not count: the next pass over the dataset has the order that it would have had.

    Args:
        dataset: The input of `fit` or a strategy: a batched `Dataset`, or another object that yields batches. Or,
            better, a function that returns it. The function is called anew for each worker, as in a real cluster, so
            the check finds a function that makes different datasets. A function with one argument gets an
            `InputContext`, as in `strategy.distribute_datasets_from_function`.
        workers: Number of workers to simulate.
        max_batches: Number of batches of each pass to compare; None means all.

    Raises:
        InputError: An argument is wrong, or the dataset cannot be read.

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
        resume       ok       after step 3 of 2 workers, 3 workers continue with exactly the next rows
    """
    check.integer("workers", workers, 1, "Write the number of workers that read the dataset, such as 2.")
    if max_batches is not None:
        check.integer("max_batches", max_batches, 1, "Write how many batches to compare, or None for all.")
    return _Verification(Rehearsal(dataset, workers, max_batches)).report()


class _Verification:
    """The checks, one after the other. The first that fails ends them: it is mostly the cause of what would follow."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._input = rehearsal
        self._workers = rehearsal.workers
        self._first: RowPosition | None = None
        self._reference, self._complete = rehearsal.read(self._whole(rehearsal.first))
        self._rows = _joined(self._reference)

    def report(self) -> ShardingReport:
        findings = [passed("sharding", self._input.reason)]
        checks = [self._check_shards, self._check_examples, self._check_passes]
        checks += [self._check_streams] if self._input.own_streams else [self._check_shares, self._check_resume]
        for finding in itertools.chain.from_iterable(findings_of() for findings_of in checks):
            findings.append(finding)
            if finding.verdict == "FAIL":
                break
        return ShardingReport(
            self._workers,
            self._input.policy,
            len(self._reference),
            len(self._rows),
            len(np.unique(self._rows)),
            self._complete,
            tuple(findings),
            self._first,
        )

    def _whole(self, made: Any) -> Any:
        return self._input.part(made, 1, 0)

    def _part_of(self, worker: int, workers: int) -> Any:
        return self._input.part(self._input.make(workers, worker), workers, worker)

    def _fail(self, check: str, found: str, repair: str, place: RowPosition | None = None) -> Finding:
        self._first = place
        return Finding(check, "FAIL", found, repair)

    # ------------------------------------------------------------------ checks: nothing runs after a failure

    def _check_shards(self) -> Iterator[Finding]:
        """See that nobody divided the global dataset by hand before it is divided."""
        made = self._input.first
        for count, index in made.shards if isinstance(made, Dataset) and not self._input.takes_context else []:
            found = f"shard({count}, {index}) is in the dataset: the workers share every {count}th example of it"
            if self._input.policy is AutoShardPolicy.OFF or count != self._workers or count == 1:
                repair = "Remove it if it was meant to divide the dataset among the workers."
                yield Finding("shard", "warn", found, repair)
            else:
                yield self._fail(
                    "shard",
                    f"{found}, and {count - 1} of {count} examples are never read",
                    f"Remove .shard({count}, {index}): fit and the strategies divide the global dataset themselves.",
                )

    def _check_examples(self) -> Iterator[Finding]:
        batches, rows = len(self._reference), self._rows
        if not len(rows):
            repair = "Check the folder or the filter. If an iterator was used up, make it again."
            yield self._fail("examples", "there is none", repair)
        told = length_of(self._input.first)
        if self._complete and told is not None and told != batches:
            yield self._fail(
                "examples",
                f"the dataset reports a length of {told} batches, but a pass has {batches}",
                "Let the dataset report the number of batches, because fit takes its number of steps from it.",
                RowPosition(min(told, batches), None, 0),
            )
        alike = len(rows) - len(np.unique(rows))
        also = f", {alike} of them like another one" if alike else ""
        limit = "" if self._complete else "; what comes after these was not read"
        yield passed("examples", f"{len(rows)} in {batches} batches{also}{limit}")

    def _check_passes(self) -> Iterator[Finding]:
        """See that a second pass is as the first, and that a function makes the same dataset for another worker."""
        made = self._input.first
        once = isinstance(made, Iterator)
        if once and (self._complete or not self._input.is_function):
            yield self._fail(
                "determinism",
                f"the input is a {type(made).__name__}, which can be read once: a second pass finds it used up",
                "Give an input that can be read again: Dataset.from_generator(make_examples), with the function that "
                "makes the generator.",
            )
        again, _ = self._input.read(self._whole(self._input.make(1, 0) if once else made))
        if not again:
            yield self._fail(
                "determinism",
                "a second pass finds no example: the first one used the input up",
                "Let the function given to from_generator make a new generator at each call.",
                RowPosition(0, None, 0),
            )
        yield from self._compared("a second pass", again)
        yield passed("determinism", "a second pass gives the same examples in the same order")
        if self._input.is_function:
            again, _ = self._input.read(self._whole(self._input.make(1, 0)))
            yield from self._compared(
                "the dataset of a second call of the function",
                again,
                "Every worker calls it. Let it make the same dataset each time. Give random numbers a seed, such as "
                "numpy.random.default_rng(7).permutation(n), and sort lists of files, such as "
                "sorted(os.listdir(folder)).",
            )

    def _compared(self, what: str, steps: Steps, repair: str = "") -> Iterator[Finding]:
        """Yield a failure where a pass differs from the first one."""
        found = difference(self._reference, steps, complete=self._complete)
        if found is None:
            return
        place, rows = f"step {found.step}, row {found.row}", len(self._rows)
        said = {
            "order": f"gives the same examples in another order, from {place} on",
            "content": f"gives other examples, not only another order: {found.rows} of {rows} differ, first at {place}",
            "length": f"has {len(_joined(steps))} examples in {len(steps)} batches, the first had {rows} in "
            f"{len(self._reference)}; they part at {place}",
        }
        position = RowPosition(found.step, None, found.row)
        yield self._fail("determinism", f"{what} {said[found.kind]}", repair or _REPAIRS[found.kind], position)

    def _check_shares(self) -> Iterator[Finding]:
        """See that at each step the workers' rows, side by side, are the global batch."""
        shares: list[Steps] = []
        wrong: list[RowPosition] = []
        for worker in range(self._workers):
            rows_of = partial(even_part, parts=self._workers, index=worker)
            share, _ = self._input.read(self._part_of(worker, self._workers), rows_of)
            shares.append(share)
            found = difference(_rows(self._reference, rows_of), share)
            if found is not None:
                rows = len(self._reference[found.step]) if found.step < len(self._reference) else 0
                wrong.append(RowPosition(found.step, worker, rows_of(rows).start + found.row))
        counts = [len(share) for share in shares]
        if wrong:
            first = min(wrong, key=lambda place: (place.step, place.row))
            twice, never = twice_and_never(self._rows, _joined([*itertools.chain(*shares)]))
            steps = f", in {', '.join(map(str, counts))} steps" if len(set(counts)) > 1 else ""
            yield self._fail(
                "shares",
                f"worker {first.worker} reads other rows than those of the global batch, first at step {first.step}, "
                f"row {first.row}; together the workers read {twice} examples too often and {never} never{steps}",
                "Let functions given to map, filter and from_generator depend only on their arguments: each worker "
                "calls them for its own rows.",
                first,
            )
        yield self._shares_fit(shares)
        yield passed("steps", f"{counts[0]} on each worker")

    def _check_resume(self) -> Iterator[Finding]:
        """See that another number of workers goes on in the middle of the pass."""
        if not isinstance(self._input.first, Dataset):
            yield passed("resume", "not looked at: the input is no stratagem.data.Dataset")
            return
        done, others = len(self._reference) // 2, self._workers + 1
        first_rows = partial(even_part, parts=self._workers, index=0)
        with closing(self._part_of(0, self._workers).unread().batches(first_rows, iteration=0)) as batches:
            for _ in itertools.islice(batches, done):
                pass
            state = batches.get_state()
        for worker in range(others):
            rows_of = partial(even_part, parts=others, index=worker)
            rest, _ = self._input.read(self._part_of(worker, others), rows_of, state, done)
            found = difference(_rows(self._reference[done:], rows_of), rest)
            if found is not None:
                step = done + found.step
                yield self._fail(
                    "resume",
                    f"after step {done} of {self._workers} workers, worker {worker} of {others} does not continue "
                    f"with the rows that follow, from step {step} on",
                    "Let generators and functions give the same examples, regardless of where reading begins.",
                    RowPosition(step, worker, found.row),
                )
        said = f"after step {done} of {self._workers} workers, {others} workers continue with exactly the next rows"
        yield passed("resume", said)

    def _check_streams(self) -> Iterator[Finding]:
        """See that each worker's own stream is the same at a second pass, and all together are the dataset."""
        streams, complete = [], self._complete
        for worker in range(self._workers):
            part = self._part_of(worker, self._workers)
            stream, ended = self._input.read(part)
            streams.append(stream)
            complete = complete and ended
            found = difference(stream, self._input.read(part)[0], complete=ended)
            if found is not None:
                yield self._fail(
                    "streams",
                    f"a second pass of worker {worker} differs, from step {found.step}, row {found.row} on",
                    _REPAIRS[found.kind],
                    RowPosition(found.step, worker, found.row),
                )
        yield passed("streams", "a second pass of each worker gives the same examples in the same order")
        yield self._union(streams, complete)
        yield passed("steps", f"the workers have {', '.join(str(len(stream)) for stream in streams)} batches")

    def _union(self, streams: list[Steps], complete: bool) -> Finding:
        """Compare what all workers read together with the dataset."""
        if self._input.policy is AutoShardPolicy.OFF:
            return Finding(
                "shares",
                "warn",
                f"each worker reads the whole dataset ({_counted(streams)} examples), so that each example is read "
                f"{self._workers} times",
                "AutoShardPolicy.OFF does this. With AutoShardPolicy.AUTO each worker reads its part.",
            )
        if self._input.policy is AutoShardPolicy.FILE and self._input.even:
            return self._whole_files(streams)
        if not complete:
            return passed("shares", "not compared, as the workers' streams were not read to their end")
        twice, never = twice_and_never(self._rows, _joined([*itertools.chain(*streams)]))
        if not (twice or never):
            return passed("shares", f"together the workers read each example once ({_counted(streams)})")
        shard = "dataset.shard(context.num_input_pipelines, context.input_pipeline_id)"
        return self._fail(
            "shares",
            f"of {len(self._rows)} examples the workers read {twice} too often and {never} never ({_counted(streams)})",
            f"Let each worker take its part: {shard}, before batch()."
            if self._input.takes_context
            else "Up to the step that divides the dataset, give every worker the same dataset with the same seeds.",
        )

    def _whole_files(self, streams: list[Steps]) -> Finding:
        """See that at each step the workers' files have the rows of the global batch, in whatever order."""
        for step, batches in enumerate(itertools.zip_longest(self._reference, *streams, fillvalue=_NO_ROWS)):
            twice, never = twice_and_never(batches[0], np.concatenate(batches[1:]))
            if twice or never:
                return self._fail(
                    "shares",
                    f"at step {step} the workers read {twice} rows too often and {never} never of the global batch",
                    "Use AutoShardPolicy.DATA: each worker then reads its rows of every batch.",
                    RowPosition(step, None, 0),
                )
        return self._shares_fit(streams)

    def _shares_fit(self, shares: list[Steps]) -> Finding:
        return passed("shares", f"at each step the workers' rows are the global batch ({_counted(shares)} rows)")


_NO_ROWS: Final = np.empty(0, np.uint64)

_REPAIRS: Final = {
    "order": (
        "Make the random generator again for each pass, with the same seed: rng = numpy.random.default_rng(7) "
        "inside the generator. Or let dataset.shuffle(buffer_size, seed=7) choose the order."
    ),
    "content": "Draw random numbers by the example's number: dataset.enumerate().map(lambda i, x: augment(x, "
    "numpy.random.default_rng([7, i]))); or augment in the model, with layers such as keras.layers.RandomFlip.",
    "length": "Let each pass give all examples again, and select examples by their content or number, not at random.",
}


def _joined(steps: Steps) -> np.ndarray:
    return np.concatenate([_NO_ROWS, *steps])


def _rows(steps: Steps, rows_of: RowsOf) -> Steps:
    return [step[rows_of(len(step))] for step in steps]


def _counted(shares: Sequence[Steps]) -> str:
    return " + ".join(str(len(_joined(share))) for share in shares)
