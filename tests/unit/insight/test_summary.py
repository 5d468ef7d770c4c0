from __future__ import annotations

import pytest

from stratagem.core.spent import Spent
from stratagem.insight.samples import Sample
from stratagem.insight.summary import advice_for, summary, table_of


def _sample(steps: int = 100, *, joined: bool = True, **spent: float) -> Sample:
    return Sample(0.0, 0.0, 11, steps, "computing", Spent(**spent), 0.5, 0, joined)


def test_a_short_run_has_no_table() -> None:
    assert summary({}) is None
    assert summary({"worker 0": _sample(computing=4.0)}) is None
    assert summary({"worker 0": _sample(19, computing=400.0)}) is None
    assert summary({"worker 0": _sample(0, starting=400.0)}) is None


def test_shares_are_those_of_the_training() -> None:
    sample = _sample(50, starting=3.0, compiling=2.5, computing=6.0, waiting=2.0, saving=2.0)
    table = table_of({"worker 0": sample, "worker 1": _sample(0, starting=9.0)})
    assert table is not None
    head, row = table.splitlines()
    assert head.split()[-9:] == ["compute", "exchange", "wait", "input", "copy", "between", "save", "start", "compile"]
    assert row.split() == ["worker", "0", "5.0", "60%", "0%", "20%", "0%", "0%", "0%", "20%", "3.0", "s", "2.5", "s"]


def test_a_task_of_another_host_has_its_name() -> None:
    spent = Spent(computing=8.0, waiting=2.0)
    here = Sample(0.0, 0.0, 11, 100, "computing", spent, 0.5, 0)
    table = table_of({"worker 0": here, "worker 1": here._replace(host="node-b")})
    assert table is not None
    assert table.splitlines()[1:] == [
        "  worker 0               10.0      80%        0%   20%     0%    0%       0%    0%    0.0 s    0.0 s",
        "  worker 1 (node-b)      10.0      80%        0%   20%     0%    0%       0%    0%    0.0 s    0.0 s",
    ]


def test_a_slow_worker_is_named_before_all_else() -> None:
    quick = _sample(starting=2.0, compiling=5.0, computing=2.0, exchanging=0.5, waiting=7.5)
    slow = _sample(starting=2.5, compiling=4.0, computing=2.0, exchanging=0.5, input=7.5)
    advice = advice_for({"worker 0": quick, "worker 1": slow})
    assert advice is not None
    assert advice.startswith("worker 1 is slow: it waits for its input 75.0 ms longer than the others in each step of")


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ("input", "dataset.prefetch"),
        ("between", "steps_per_execution"),
        ("exchanging", "CommunicationOptions"),
        ("saving", "BackupAndRestore"),
    ],
)
def test_what_takes_much_time_has_advice(part: str, word: str) -> None:
    sample = _sample(**{"exchanging": 0.1, "computing": 4.0, part: 3.0})
    advice = advice_for({"worker 0": sample, "worker 1": sample})
    assert advice is not None
    assert word in advice


def test_a_run_that_computes_needs_no_advice() -> None:
    assert advice_for({"worker 0": _sample(computing=9.0, input=1.0)}) is None
    assert advice_for({}) is None
