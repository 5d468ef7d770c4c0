"""Each mistake that people make with the input of distributed training is found, with its place and its repair."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.core.findings import Finding
from stratagem.core.types import InputContext
from stratagem.data import AutoShardPolicy, Dataset, NumpyDataset, Options, ShardingReport, verify_sharding
from stratagem.data.experimental import SHARD_HINT


def failed(report: ShardingReport) -> Finding:
    """Return the only thing that is wrong."""
    (finding,) = [finding for finding in report.findings if finding.verdict == "FAIL"]
    assert report.ok is False
    return finding


def verdicts(report: ShardingReport) -> dict[str, str]:
    return {finding.check: finding.verdict for finding in report.findings}


def with_policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return [np.arange(index * 4, index * 4 + 4), np.array([f"{index}"] * 4)]


RIGHT: dict[str, tuple[Any, int, int]] = {
    "arrays": (Dataset.from_tensor_slices((np.ones((23, 2)), np.arange(23))).shuffle(23, seed=1).batch(5), 5, 23),
    "without a seed": (Dataset.range(23).shuffle(23).batch(5), 5, 23),
    "fewer rows than workers": (Dataset.range(2).batch(2), 1, 2),
    "repeated": (Dataset.range(7).shuffle(7).repeat(3).batch(4), 6, 21),
    "mapped, filtered": (Dataset.range(40).map(lambda x: 2 * x).filter(lambda x: x % 3 > 0).batch(5), 6, 26),
    "text": (Dataset.from_tensor_slices(np.array(["a", "bb", "ccc"])).batch(2), 2, 3),
    "generator": (Dataset.from_generator(lambda: iter(["x", "long", "yy", "z"])).batch(3), 2, 4),
    "cached": (Dataset.range(9).map(lambda x: x + 1).cache().shuffle(9).batch(4), 3, 9),
    "batches of several sizes": (Dataset.from_generator(lambda: (np.full(i, i) for i in (3, 1, 4))), 3, 8),
    "a function": (lambda: Dataset.range(23).shuffle(23).batch(5), 5, 23),
    "PyDataset": (Batches(), 3, 12),
    "a function of a generator": (lambda: itertools.repeat(np.arange(3)), 6, 18),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_is_right_passes(name: str, workers: int) -> None:
    given, batches, examples = RIGHT[name]
    report = verify_sharding(given, workers=workers, max_batches=6)
    assert set(verdicts(report).values()) == {"ok"}, str(report)
    assert (report.ok, report.workers, report.batches, report.examples) == (True, workers, batches, examples)
    assert report.first_difference is None
    report.raise_if_wrong()


def test_a_report_says_what_was_read() -> None:
    report = verify_sharding(Dataset.range(10).repeat().batch(4), max_batches=5)
    assert (report.policy, report.complete, report.examples, report.distinct) == (AutoShardPolicy.DATA, False, 20, 10)
    assert "20 in 5 batches, 10 of them like another one; what comes after these was not read" in " ".join(
        str(report).split()
    )


def test_passes_that_are_read_do_not_count() -> None:
    dataset, untouched = (Dataset.range(30).shuffle(30, seed=1).batch(30) for _ in range(2))
    verify_sharding(dataset)
    assert next(dataset.batches()).data.tolist() == next(untouched.batches()).data.tolist()


# ---------------------------------------------------------------------- mistakes


def shuffling() -> Iterator[int]:
    rows = list(range(40))
    random.shuffle(rows)
    yield from rows


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("max_batches", [None, 3])
def test_an_unseeded_shuffle_in_a_generator(cached: bool, max_batches: int | None) -> None:
    """Also behind cache(), which hides it in one process: every worker has a cache of its own."""
    dataset = Dataset.from_generator(shuffling)
    dataset = (dataset.cache() if cached else dataset).batch(12)
    report = verify_sharding(dataset, max_batches=max_batches)
    finding = failed(report)
    assert finding.check == "determinism"
    assert report.first_difference is not None
    step, worker, row = report.first_difference
    assert worker is None
    assert f"the same examples in another order, from step {step}, row {row} on" in finding.found
    assert "rng = numpy.random.default_rng(7) inside the generator" in finding.repair
    with pytest.raises(
        InputError,
        match=r"2 workers would not read the dataset correctly(.|\n)*What to do: Make the random generator again",
    ):
        report.raise_if_wrong()


def test_random_numbers_in_a_map() -> None:
    """The order is right and the content changes, which is said."""
    rng = np.random.default_rng(1)
    dataset = Dataset.range(40).map(lambda x: x * (1 + int(x >= 20) * rng.random())).batch(12)
    report = verify_sharding(dataset, workers=2)
    finding = failed(report)
    assert finding.check == "determinism"
    assert "gives other examples, not only another order: 20 of 40 differ, first at step 1, row 8" in finding.found
    assert "dataset.enumerate().map(lambda i, x: augment(x, numpy.random.default_rng([7, i])))" in finding.repair
    assert report.first_difference == (1, None, 8)


def test_the_repair_of_random_numbers_in_a_map_works() -> None:
    def augment(x: Any, rng: np.random.Generator) -> Any:
        return x + rng.random()

    dataset = Dataset.range(40).enumerate().map(lambda i, x: augment(x, np.random.default_rng([7, i])))
    report = verify_sharding(dataset.shuffle(40).batch(12), workers=3)
    assert (report.ok, report.distinct) == (True, 40)


def test_a_shard_by_hand() -> None:
    dataset = Dataset.range(40).shard(num_shards=2, index=0).batch(5)
    finding = failed(verify_sharding(dataset, workers=2))
    assert finding.check == "shard"
    assert "the workers share every 2th example of it, and 1 of 2 examples are never read" in finding.found
    assert finding.repair.startswith("Remove .shard(2, 0): ")
    split = verify_sharding(Dataset.range(40).shard(num_shards=10, index=0).batch(2), workers=2)
    assert (split.ok, verdicts(split)["shard"]) == (True, "warn")


def test_generators_that_are_used_up() -> None:
    once = iter([np.arange(4), np.arange(4, 8)])
    finding = failed(verify_sharding(once))
    assert "the input is a list_iterator, which can be read once: a second pass finds it used up" in finding.found
    assert "Dataset.from_generator(make_examples)" in finding.repair
    made = (np.int64(x) for x in range(9))
    finding = failed(verify_sharding(Dataset.from_generator(lambda: made).batch(2)))
    assert "a second pass finds no example" in finding.found
    assert "make a new generator" in finding.repair
    finding = failed(verify_sharding(lambda: (np.arange(2) for _ in range(3))))
    assert "which can be read once" in finding.found


def test_a_length_that_changes() -> None:
    left = itertools.count(12)
    dataset = Dataset.from_generator(lambda: iter(range(next(left)))).batch(5)
    report = verify_sharding(dataset, workers=2)
    assert failed(report).check == "determinism"
    assert "a second pass has 13 examples in 3 batches, the first had 12 in 3" in failed(report).found
    assert report.first_difference == (2, None, 2)


def test_a_length_that_is_not_true() -> None:
    class Longer(Batches):
        def __iter__(self) -> Any:
            return (self[k] for k in range(2))

    report = verify_sharding(Longer())
    assert failed(report).found == "the dataset reports a length of 3 batches, but a pass has 2"


def test_a_function_that_makes_another_dataset_on_each_worker() -> None:
    def dataset() -> Dataset:
        order = np.random.permutation(30)
        return Dataset.from_tensor_slices(order).batch(8)

    report = verify_sharding(dataset, workers=2)
    assert failed(report).found.startswith("the dataset of a second call of the function gives the same examples in ")
    assert "numpy.random.default_rng(7).permutation(n)" in failed(report).repair
    seeded = verify_sharding(lambda: Dataset.from_tensor_slices(np.random.default_rng(7).permutation(30)).batch(8))
    assert seeded.ok


def test_a_map_that_counts_its_calls() -> None:
    """Equal in two whole passes, and wrong on workers: each calls it for its own rows only."""
    calls = itertools.count()
    dataset = Dataset.range(24).map(lambda x: np.int64(next(calls) % 24)).batch(6)
    report = verify_sharding(dataset, workers=2)
    finding = failed(report)
    assert finding.check == "shares"
    assert report.first_difference == (0, 1, 3)
    assert finding.found == (
        "worker 1 reads other rows than those of the global batch, first at step 0, row 3; together the workers read "
        "0 examples too often and 0 never"
    )
    assert "depend only on their arguments" in finding.repair


def test_rows_that_no_worker_has() -> None:
    """A function that knows which worker calls it, say from the environment, and gives each a dataset of its own."""
    calls = itertools.count()

    def dataset() -> Dataset:
        worker = max(0, next(calls) - 2)
        return Dataset.range(10 * (worker == 1), 20 + 10 * (worker == 1)).batch(10)

    report = verify_sharding(dataset, workers=2)
    assert report.first_difference == (0, 1, 5)
    assert "together the workers read 5 examples too often and 5 never" in failed(report).found


def test_an_empty_dataset() -> None:
    report = verify_sharding(Dataset.range(5).filter(lambda x: x > 9).batch(2))
    assert (failed(report).check, failed(report).found, report.examples) == ("examples", "there is none", 0)


# ---------------------------------------------------------------------- streams of the workers' own


def test_hint_gives_each_its_part() -> None:
    hinted = Dataset.range(23).shuffle(23).shard(SHARD_HINT, SHARD_HINT).batch(4)
    report = verify_sharding(with_policy(hinted, AutoShardPolicy.HINT), workers=3)
    assert set(verdicts(report).values()) == {"ok"}, str(report)
    assert "together the workers read each example once (8 + 8 + 7)" in str(report)
    changing = Dataset.from_generator(shuffling).shard(SHARD_HINT, SHARD_HINT).batch(4)
    assert failed(verify_sharding(with_policy(changing, AutoShardPolicy.HINT))).check == "determinism"


def test_off_lets_each_read_all() -> None:
    report = verify_sharding(with_policy(Dataset.range(8).batch(4), AutoShardPolicy.OFF), workers=3)
    assert (report.ok, verdicts(report)["shares"]) == (True, "warn")
    assert "each worker reads the whole dataset (8 + 8 + 8 examples)" in report.findings[-2].found


def files(folder: Path, *counts: int) -> list[str]:
    paths = [str(folder / f"{number}.npy") for number in range(len(counts))]
    ends = np.cumsum(counts).tolist()
    for path, count, end in zip(paths, counts, ends, strict=True):
        np.save(path, np.arange(end - count, end))
    return paths


def test_file_gives_each_its_files(tmp_path: Path) -> None:
    dataset = NumpyDataset(files(tmp_path, 5, 3, 1)).shuffle(4).batch(4)
    report = verify_sharding(with_policy(dataset, AutoShardPolicy.FILE), workers=2)
    assert set(verdicts(report).values()) == {"ok"}, str(report)
    assert report.policy is AutoShardPolicy.FILE
    assert "together the workers read each example once (6 + 3)" in str(report)
    twice = NumpyDataset([str(tmp_path / name) for name in ("0.npy", "1.npy", "0.npy")]).batch(4)
    assert verify_sharding(with_policy(twice, AutoShardPolicy.FILE), workers=2).distinct == 8


@pytest.mark.parametrize("max_batches", [None, 2])
def test_files_read_in_turn_give_the_global_batches(tmp_path: Path, max_batches: int | None) -> None:
    names = Dataset.list_files(files(tmp_path, 6, 6, 6, 6), shuffle=False)
    dataset = names.interleave(lambda name: NumpyDataset(name)).batch(8)
    report = verify_sharding(dataset, workers=2, max_batches=max_batches)
    assert report.policy is AutoShardPolicy.FILE
    assert set(verdicts(report).values()) == {"ok"}, str(report)
    rows = "12 + 12" if max_batches is None else "8 + 8"
    assert f"at each step the workers' rows are the global batch ({rows} rows)" in str(report)


def test_a_function_of_a_context() -> None:
    def dataset(context: InputContext, divides: bool = True) -> Dataset:
        data = Dataset.range(24).shuffle(24)
        if divides:
            data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
        return data.batch(context.get_per_replica_batch_size(6))

    report = verify_sharding(dataset, workers=3)
    assert set(verdicts(report).values()) == {"ok"}, str(report)
    assert "the workers have 4, 4, 4 batches" in str(report)
    report = verify_sharding(lambda context: dataset(context, divides=False), workers=3)
    assert failed(report).found == "of 24 examples the workers read 48 too often and 0 never (24 + 24 + 24)"
    assert "dataset.shard(context.num_input_pipelines, context.input_pipeline_id)" in failed(report).repair


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (((np.ones(3), np.ones(3)),), "The input is tuple"),
        ((3,), "The input is int"),
        ((lambda a, b: None,), "takes 2 arguments"),
        ((Dataset.range(3),), "have no common batch dimension"),
        ((Dataset.range(3).batch(1), 0), "workers is 0"),
    ],
)
def test_what_cannot_be_read(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(InputError, match=f"{said}(.|\\n)*What to do"):
        verify_sharding(*arguments)
