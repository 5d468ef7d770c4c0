"""The dataset of a function is found, read together by all replicas, and judged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import stratagem
from stratagem.core.types import InputContext
from stratagem.data import Dataset
from stratagem.doctor import datasets


def strategy_of(replicas: int) -> stratagem.MirroredStrategy:
    return stratagem.MirroredStrategy(jax.devices()[:replicas])


def alone(said: Any) -> list[Any]:
    return [said]


def pairs() -> Dataset:
    data = {"x": np.arange(44).reshape(22, 2), "y": np.arange(22)}
    return Dataset.from_tensor_slices(data).shuffle(22).batch(5)


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_example_is_counted_once(replicas: int) -> None:
    finding = datasets.read_together(strategy_of(replicas), pairs, alone)
    assert (finding.verdict, finding.found) == ("ok", "each of 22 examples once (shares: 22)")


def of_context(context: InputContext) -> Dataset:
    assert context.num_input_pipelines == 1
    return Dataset.range(10).batch(context.get_per_replica_batch_size(2 * context.num_replicas_in_sync))


def batches() -> Iterator[np.ndarray]:
    return iter([np.arange(4), np.arange(4, 7)])


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (of_context, "each of 10 examples once (shares: 10)"),
        (batches, "each of 7 examples once (shares: 7)"),
        (lambda: Dataset.range(8).filter(lambda x: x > 2).batch(2), "each of 5 examples once (shares: 5)"),
        (
            lambda: Dataset.range(8).shuffle(8).repeat().batch(2),
            "each of 2000 examples of the first 1000 batches once (shares: 2000)",
        ),
    ],
)
def test_whatever_a_strategy_takes(function: Callable[..., Any], found: str) -> None:
    finding = datasets.read_together(strategy_of(2), function, alone)
    assert (finding.verdict, finding.found) == ("ok", found)


def test_examples_that_come_twice_or_never_are_seen() -> None:
    def dataset() -> Dataset:
        return Dataset.range(12).batch(4)

    twice = datasets.read_together(strategy_of(2), dataset, lambda said: [said, said])
    assert (twice.verdict, "12 examples, and the workers read 24" in twice.found) == ("FAIL", True)
    never = datasets.read_together(strategy_of(2), dataset, lambda said: [[12, str(int(said[1]) ^ 1), *said[2:]]])
    assert never.verdict == "FAIL"


def test_workers_that_make_different_datasets_are_named() -> None:
    finding = datasets.read_together(
        strategy_of(2), lambda: Dataset.range(12).batch(4), lambda said: [said, said, [0, "0", 6, "1"]]
    )
    assert finding.verdict == "FAIL"
    assert finding.found.startswith("worker 2 makes a different dataset than worker 0: 6 and 12 examples")


MODULE = """
from stratagem.data import Dataset
import other_part
numbers = 3
def dataset():
    return Dataset.range(other_part.COUNT).batch(2)
def broken():
    return 1 / 0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_training.py").write_text(MODULE)
    (tmp_path / "other_part.py").write_text("COUNT = 5\n")
    (tmp_path / "imports_nothing.py").write_text("import no_such_package\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("their_training", "other_part", "imports_nothing"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_function_that_does_not_exist_is_a_finding_with_its_repair() -> None:
    (finding,) = datasets.check_dataset(strategy_of(1), "train", alone)
    assert finding.verdict == "FAIL"
    assert finding.found.startswith("--dataset train: it does not name a module and a function")
    assert "What to do: Name a function that returns the batched global dataset" in finding.found


def test_what_the_program_raises_is_a_finding(folder: Path) -> None:
    (finding,) = datasets.check_dataset(strategy_of(1), f"{folder}/their_training.py:broken", alone)
    assert finding.verdict == "FAIL"
    assert "raised ZeroDivisionError: division by zero (" in finding.found
    assert finding.found.endswith("their_training.py, line 8)")
    (finding,) = datasets.check_dataset(strategy_of(1), f"{folder}/imports_nothing.py:dataset", alone)
    assert "raised ModuleNotFoundError: No module named 'no_such_package'" in finding.found


def test_all_that_is_found_about_a_right_dataset(folder: Path) -> None:
    findings = datasets.check_dataset(strategy_of(2), f"{folder}/their_training.py:dataset", alone)
    assert [(finding.check, finding.verdict) for finding in findings] == [
        (check, "ok") for check in ("dataset", "sharding", "examples", "determinism", "shares", "steps", "resume")
    ]
