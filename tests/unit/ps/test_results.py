"""Results of functions: what comes back, and what is refused."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.ps.results import put_together, taken_apart


class Pair(NamedTuple):
    first: int
    second: Any


def test_a_result_comes_back_as_it_was() -> None:
    value = {"a": [1, 2.5, None, True], "b": ("text", np.arange(3), jnp.ones(2)), "c": {}, "d": keras.Variable(4.0)}
    nest, arrays = taken_apart(value)
    back = put_together(json.loads(json.dumps(nest)), arrays)
    assert back["a"] == [1, 2.5, None, True]
    assert back["b"][0] == "text"
    assert isinstance(back["b"], tuple)
    assert [array.tolist() for array in (*back["b"][1:], back["d"])] == [[0, 1, 2], [1.0, 1.0], 4.0]
    assert back["c"] == {}
    assert put_together(*taken_apart(Pair(1, np.float32(2)))) == (1, 2.0)


@pytest.mark.parametrize(
    ("value", "found"),
    [({1: 2}, "a dict"), ({1, 2}, "a set"), (np.array(["x", None], object), "a ndarray"), ([object()], "a object")],
)
def test_other_results_are_refused(value: Any, found: str) -> None:
    with pytest.raises(InputError, match=f"returned {found}"):
        taken_apart(value)


@pytest.mark.parametrize("nest", [{"array": 1}, {"array": -1}, {"tuple": 3}, {"set": []}, [1], {}])
def test_what_is_no_result_is_refused(nest: Any) -> None:
    with pytest.raises(InputError, match="is not a result"):
        put_together(nest, [np.zeros(1)])
