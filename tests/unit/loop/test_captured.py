"""Numbers round a traced function: never stale, and not traced again at each step."""

from __future__ import annotations

from typing import Any

import numpy as np

import stratagem

scale = 1.0


def _scaled(x: Any) -> Any:
    return x * scale


def test_a_number_of_the_enclosing_function() -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    traces: list[int] = []
    rate = 1.0

    def step(x: Any) -> Any:
        traces.append(1)
        return x * rate

    found = []
    for rate in (1.0, 0.5, 0.25, 0.125, 0.0625):  # noqa: B007 - read by the function
        found.append(float(strategy.run(step, args=(np.float32(2),))))
    assert found == [2.0, 1.0, 0.5, 0.25, 0.125]
    assert len(traces) <= 4  # the first value, then once more with the number as an input


def test_a_number_of_the_module_through_another_function() -> None:
    global scale
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])

    def step(x: Any) -> Any:
        return _scaled(x) + 1

    found = []
    for scale in (1.0, 2.0, 3.0):  # noqa: B007 - read by the function
        found.append(float(strategy.reduce("mean", strategy.run(step, args=(np.float32(2),)), axis=None)))
    assert found == [3.0, 5.0, 7.0]
    assert scale == 3.0


def test_a_number_that_python_decides_by() -> None:
    traces: list[int] = []
    count = 0

    @stratagem.function
    def step(x: Any) -> Any:
        traces.append(1)
        return x * 10 if count > 1 else x

    found = []
    for count in (0, 1, 2, 3):  # noqa: B007 - read by the function
        found.append(float(step(1.0)))
    assert found == [1.0, 1.0, 10.0, 10.0]


def test_a_lambda_in_the_loop_is_traced_once() -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    traces: list[int] = []

    def step(x: Any) -> Any:
        traces.append(1)
        return x + 1

    for i in range(5):
        assert float(strategy.run(lambda x: step(x) * 2, args=(np.float32(i),))) == 2 * (i + 1)
    assert len(traces) <= 2


class Trainer:
    def __init__(self) -> None:
        self.traces = 0

    def step(self, x: Any) -> Any:
        self.traces += 1
        return x * 2


def test_a_method_is_traced_once() -> None:
    strategy, trainer = stratagem.OneDeviceStrategy("cpu:0"), Trainer()
    for i in range(4):
        assert float(strategy.run(trainer.step, args=(np.float32(i),))) == 2 * i
    assert trainer.traces <= 2


class Unhashable:
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, factor: float) -> None:
        self.factor = factor


def test_an_argument_that_cannot_be_hashed_counts_by_identity() -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    twice, thrice = Unhashable(2.0), Unhashable(3.0)
    scaled = stratagem.function(lambda x, by: x * by.factor)
    for by in (twice, thrice, twice):
        assert float(strategy.run(lambda x, by: x * by.factor, args=(np.float32(5), by))) == 5 * by.factor
        assert float(scaled(5.0, by)) == 5 * by.factor


def test_a_number_is_an_input_until_python_decides_by_it() -> None:
    traces: list[int] = []

    @stratagem.function
    def scaled(x: Any, by: float) -> Any:
        traces.append(1)
        return x * by

    assert [float(scaled(2.0, by)) for by in (1.0, 2.0, 3.0, 4.0)] == [2.0, 4.0, 6.0, 8.0]
    assert len(traces) == 2  # discovery and the program

    @stratagem.function
    def repeated(x: Any, times: int) -> Any:
        for _ in range(times):
            x = x + 1
        return x

    assert [float(repeated(np.float32(0), times)) for times in (1, 3, 2)] == [1.0, 3.0, 2.0]
