"""Random pipelines, read by random numbers of workers and resumed by others, against what they must contain.

The reference knows nothing of blocks, streams or shares. It is a list of *parts* of the pass, in order: a part says
which elements stand there and how many of them, and their order where no shuffle has touched it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stratagem.data import Dataset
from stratagem.data import shuffle as shuffling

PIPELINES = 100
"""Random pipelines of each seed. About half of them have elements in a known order, most of the rest a shuffle."""


@dataclass(frozen=True)
class Part:
    """Some consecutive elements of a pass.

    Args:
        pool: Elements that may stand here, each at most so often.
        count: How many do.
        order: The elements, where their order is known.
    """

    pool: Counter[int]
    count: int
    order: tuple[int, ...] | None

    @classmethod
    def ordered(cls, elements: list[int]) -> Part:
        return cls(Counter(elements), len(elements), tuple(elements))

    @property
    def is_exact(self) -> bool:
        return self.count == self.pool.total()

    def check(self, elements: list[int]) -> None:
        assert len(elements) == self.count
        if self.order is not None:
            assert elements == list(self.order)
        assert Counter(elements) <= self.pool, "an element comes twice, or is not one of the dataset"


@dataclass(frozen=True)
class Pipeline:
    """A dataset, and what it must contain."""

    dataset: Dataset
    parts: list[Part]
    steps: str


def cut(parts: list[Part], start: int, stop: int) -> list[Part]:
    """Return the elements from `start` to `stop` of known parts."""
    out, here = [], 0
    for part in parts:
        low, high = max(start - here, 0), min(stop - here, part.count)
        if low < high:
            order = None if part.order is None else part.order[low:high]
            out.append(Part(part.pool if order is None else Counter(order), high - low, order))
        here += part.count
    return out


def merged(parts: list[Part]) -> list[Part]:
    """Return the parts as one whose order is not known."""
    pool: Counter[int] = Counter()
    for part in parts:
        pool += part.pool
    return [Part(pool, sum(part.count for part in parts), None)]


def length(parts: list[Part]) -> int:
    return sum(part.count for part in parts)


def source(rng: random.Random) -> Pipeline:
    count = rng.choice([0, 1, 2, 5, 9, 16, 23])
    values = list(range(1000, 1000 + count))
    kind = rng.choice(["range", "arrays", "generator", "rebatched", "cached", "interleaved"])
    if kind == "range":
        dataset = Dataset.range(1000, 1000 + count)
    elif kind == "interleaved":
        dataset = Dataset.range(1000, 1003).interleave(lambda first: Dataset.range(first, 1000 + count, 3), 3)
    elif kind == "generator":
        dataset = Dataset.from_generator(lambda: iter(values))
    else:
        dataset = Dataset.from_tensor_slices(np.array(values, np.int64))
        dataset = dataset.map(lambda x: x).cache() if kind == "cached" else dataset.batch(3).unbatch()
    return Pipeline(dataset, [Part.ordered(values)], f"{kind}({count})")


def stepped(rng: random.Random, p: Pipeline) -> Pipeline | None:
    """Return the pipeline with one more random step, or None where what it contains would not be known."""
    step = rng.choice(list(STEPS))
    made = STEPS[step](rng, p.dataset, p.parts)
    return None if made is None else Pipeline(made[0], made[1], f"{p.steps}.{made[2]}")


Step = Callable[[random.Random, Dataset, list[Part]], tuple[Dataset, list[Part], str] | None]


def shuffle(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    size, seed = rng.choice([1, 2, 5, 16, 1000]), rng.randrange(100)
    return dataset.shuffle(size, seed=seed), parts if size == 1 else merged(parts), f"shuffle({size})"


def take(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    count = rng.choice([0, 1, 4, 11, 50, -1])
    return dataset.take(count), cut(parts, 0, 10**9 if count < 0 else count), f"take({count})"


def skip(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    count = rng.choice([0, 1, 3, 12])
    return dataset.skip(count), cut(parts, count, 10**9), f"skip({count})"


def shard(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    count = rng.randint(1, 3)
    index = rng.randrange(count)
    out, here = [], 0
    for part in parts:
        first = (index - here) % count
        order = None if part.order is None else part.order[first::count]
        many = len(range(first, part.count, count))
        out.append(Part(part.pool if order is None else Counter(order), many, order))
        here += part.count
    return dataset.shard(count, index), out, f"shard({count}, {index})"


def repeat(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str] | None:
    count = rng.choice([1, 2, 3])
    return (dataset.repeat(count), parts * count, f"repeat({count})") if length(parts) < 100 else None


def endless(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str] | None:
    if not length(parts):  # by tf.data's rule such a dataset says that it has no end, if its length was not known
        return None
    count = rng.choice([7, 30])
    times = -(-count // length(parts))
    return dataset.repeat().take(count), cut(parts * times, 0, count), f"repeat().take({count})"


def mapped(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    out = [
        Part(
            Counter({x + 1: n for x, n in part.pool.items()}),
            part.count,
            None if part.order is None else tuple(x + 1 for x in part.order),
        )
        for part in parts
    ]
    return dataset.map(lambda x: x + 1), out, "map"


def filtered(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str] | None:
    if not all(part.is_exact for part in parts):  # how many are left is not known
        return None
    out = []
    for part in parts:
        pool = Counter({x: n for x, n in part.pool.items() if x % 3})
        order = None if part.order is None else tuple(x for x in part.order if x % 3)
        out.append(Part(pool, pool.total(), order))
    return dataset.filter(lambda x: bool(x % 3)), out, "filter"


def concatenated(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    other = source(rng)
    return dataset.concatenate(other.dataset), parts + other.parts, f"concatenate({other.steps})"


def with_itself(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str] | None:
    return (dataset.concatenate(dataset), parts * 2, "concatenate(itself)") if length(parts) < 100 else None


def rebatched(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    size = rng.choice([1, 2, 5])
    return dataset.batch(size).unbatch(), parts, f"batch({size}).unbatch()"


def flattened(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    flat = dataset.batch(3).flat_map(lambda batch: Dataset.from_tensor_slices(batch).prefetch())
    return flat, parts, "batch(3).flat_map"


def dropped(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    whole = length(parts) // 4 * 4
    return dataset.batch(4, drop_remainder=True).unbatch(), cut(parts, 0, whole), "batch(4, drop).unbatch()"


def batches_shuffled(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    return dataset.batch(2).shuffle(4, seed=rng.randrange(9)).unbatch(), merged(parts), "batch(2).shuffle.unbatch()"


def zipped(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    other = rng.choice([3, 10, 1000])
    both = Dataset.zip((Dataset.range(other), dataset)).map(lambda number, x: x)
    return both, cut(parts, 0, other), f"zip(range({other}))"


def cached(rng: random.Random, dataset: Dataset, parts: list[Part]) -> tuple[Dataset, list[Part], str]:
    return dataset.cache(), parts, "cache"


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        shuffle,
        take,
        skip,
        shard,
        repeat,
        endless,
        mapped,
        filtered,
        concatenated,
        with_itself,
        rebatched,
        flattened,
        dropped,
        batches_shuffled,
        zipped,
        cached,
    )
}


def pipelines(seed: int) -> Iterator[tuple[random.Random, Pipeline]]:
    rng = random.Random(seed)
    for _ in range(PIPELINES):
        made = source(rng)
        for _ in range(rng.randint(1, 6)):
            made = stepped(rng, made) or made
        yield rng, made


def check(parts: list[Part], elements: list[int]) -> None:
    here = 0
    for part in parts:
        part.check(elements[here : here + part.count])
        here += part.count
    assert elements[here:] == [], "there are more elements than there should be"


def rows(worker: int, workers: int) -> Callable[[int], slice]:
    return lambda count: slice(count * worker // workers, count * (worker + 1) // workers)


def read(dataset: Dataset, workers: int, iteration: int, state: Any, batches: int | None) -> tuple[list[int], Any]:
    """Read the shares of all workers side by side; return the elements, and the state after the last batch."""
    iterators = [dataset.batches(rows(worker, workers), iteration=iteration) for worker in range(workers)]
    elements: list[int] = []
    for iterator in iterators:
        if state is not None:
            iterator.set_state(json.loads(json.dumps(state)))
    while batches is None or batches > 0:
        shares = [next(iterator, None) for iterator in iterators]
        if None in shares:
            assert set(shares) == {None}, "all workers end together"
            break
        together = [x for share in shares for x in share.data.tolist()]
        assert {share.rows for share in shares} == {len(together)}
        elements += together
        batches = None if batches is None else batches - 1
    states = [iterator.get_state() for iterator in iterators]
    assert all(other == states[0] for other in states)
    return elements, states[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_every_element_of_a_random_pipeline_exactly_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:  # a shuffle of these short datasets is a permutation function where it can be, as for long ones
        monkeypatch.setattr(shuffling, "_LONGEST_SORTED", 1)
    for number, (rng, made) in enumerate(pipelines(seed)):
        size, iteration = rng.choice([1, 3, 4, 7]), rng.choice([0, 0, 1, 5])
        say = f"seed {seed}, pipeline {number}: {made.steps}.batch({size}), iteration {iteration}"
        try:
            batched = made.dataset.batch(size)
            known = int(made.dataset.cardinality())
            assert known in (length(made.parts), -2)
            whole, _ = read(batched, 1, iteration, None, None)
            check(made.parts, whole)
            workers, others = rng.randint(1, 4), rng.randint(1, 4)
            first, state = read(batched, workers, iteration, None, rng.randint(0, len(whole) // size + 1))
            rest, _ = read(batched, others, 0, state, None)
            assert first + rest == whole, f"{workers} workers, then {others}"
        except Exception as error:
            error.add_note(say)
            raise
