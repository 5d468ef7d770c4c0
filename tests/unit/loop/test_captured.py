"""Numbers round a traced function: never stale, and not traced again at each step."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

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


@pytest.mark.parametrize("compiled", [False, True], ids=["run", "function"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_five_values_of_an_argument_are_one_program(replicas: int, compiled: bool) -> None:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    traces: list[int] = []

    def step(x: Any, rate: float, *, schedule: dict[str, Any]) -> Any:
        traces.append(1)
        return x * rate + schedule["step"] * schedule["scales"][1]

    def total(rate: float, count: int) -> Any:
        schedule = {"step": count, "scales": [1, 0.5], "name": "linear", "warm": True, "none": None}
        result = strategy.run(step, args=(np.float32(2), rate), kwargs={"schedule": schedule})
        return strategy.reduce("MEAN", result, axis=None)

    call = stratagem.function(total) if compiled else total
    found = [float(call(1.0, 0))]
    count = len(traces)
    found += [float(call(rate, count)) for rate, count in ((0.5, 1), (0.25, 2), (0.125, 3), (0.0625, 4))]
    assert found == [2.0, 1.5, 1.5, 1.75, 2.125]
    assert len(traces) == count


@pytest.mark.parametrize("entry", ["run", "function"])
def test_a_number_is_plain_only_where_python_needs_it(entry: str) -> None:
    """`steps` makes a program for each value, `rate` beside it does not."""
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    traces: list[int] = []

    def repeated(x: Any, steps: int, rate: float) -> Any:
        traces.append(1)
        for _ in range(steps):
            x = x + rate
        return x * 10 if steps > 2 else x

    compiled = stratagem.function(repeated)

    def call(*args: Any) -> float:
        return float(strategy.run(repeated, args=args) if entry == "run" else compiled(*args))

    assert [call(np.float32(0), steps, 1.0) for steps in (1, 3, 2)] == [1.0, 30.0, 2.0]
    count = len(traces)
    assert [call(np.float32(0), 2, rate) for rate in (0.5, 0.25, 2.0)] == [1.0, 0.5, 4.0]
    assert len(traces) == count


def _checked(n: Any) -> int:
    if not isinstance(n, int):
        raise TypeError("n must be a Python integer")
    return n


TABLE = {1: "one", 2: "two"}


@pytest.mark.parametrize(
    ("fn", "values", "expected"),
    [
        (lambda x, n: x * len(TABLE[n]), (1, 2), [3.0, 3.0]),
        (lambda x, n: x + _checked(n), (1, 2), [2.0, 3.0]),
        (lambda x, n: keras.ops.sum(keras.ops.ones((n, 2))) * x, (1, 3), [2.0, 6.0]),
        (lambda x, n: x * (n % 7), (2**40, 2**40 + 1), [2.0, 3.0]),
        (lambda x, n: x if n else -x, (True, False), [1.0, -1.0]),
        (lambda x, n: keras.ops.cast(x, "int32") * n / 2, (1, 1.0, 3), [0.5, 0.5, 1.5]),
        (lambda x, n: keras.ops.cast(x, "int32") * n, (1, 1.5, 1.0), [1, 1.5, 1.0]),
    ],
    ids=["a key", "its type", "a shape", "too large", "a boolean", "both types", "dtype"],
)
def test_a_number_python_needs_is_never_stale(fn: Any, values: tuple[Any, ...], expected: list[float]) -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    compiled = stratagem.function(fn)
    assert [float(strategy.run(fn, args=(np.float32(1), value))) for value in values] == expected
    assert [float(compiled(np.float32(1), value)) for value in values] == expected


def test_an_error_of_the_function_is_its_own() -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:0")

    def wrong(x: Any, n: int) -> Any:
        raise LookupError(f"no layer {n}")

    with pytest.raises(LookupError, match="no layer 3") as error:
        strategy.run(wrong, args=(np.float32(1), 3))
    assert error.value.__context__ is None


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
