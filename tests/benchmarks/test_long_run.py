"""What a long run is judged by: the growth of memory, and of the time of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Script = Callable[[str], Any]


def test_growth_is_the_slope_of_the_second_half_in_megabytes_an_hour(script: Script) -> None:
    long_run = script("long_run")
    # 36 s an epoch; memory doubles at first, then grows by 10,000 bytes an epoch.
    resident = [50e6, 100e6, *(100e6 + 1e4 * i for i in range(18))]
    epochs = [long_run.Epoch(36.0 * i, 1.0, int(nbytes)) for i, nbytes in enumerate(resident)]

    assert long_run.growth(epochs) == pytest.approx(1.0)
    assert long_run.growth([each._replace(resident=7) for each in epochs]) == pytest.approx(0.0)


def test_the_last_fifth_is_compared_with_the_second(script: Script) -> None:
    long_run = script("long_run")
    times = [9.0, 9.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.2, 2.2]

    assert long_run.slower([long_run.Epoch(float(i), ms, 1) for i, ms in enumerate(times)]) == pytest.approx(1.1)


def test_the_table_has_a_row_for_each_tenth(script: Script) -> None:
    long_run = script("long_run")
    worker = [long_run.Epoch(float(i), 1.0 + i, 1_000_000 * (i + 1)) for i in range(20)]

    head, rule, *rows = long_run.table([worker, worker]).splitlines()

    assert head == "| steps | ms/step, worker 0 | MB | ms/step, worker 1 | MB |"
    assert head.count("|") == rule.count("|") == rows[0].count("|")
    assert rows[0] == "| 2,000 | 1.500 | 2.0 | 1.500 | 2.0 |"
    assert rows[-1].startswith("| 20,000 | 19.500 | 20.0 |")
    assert len(rows) == 10
