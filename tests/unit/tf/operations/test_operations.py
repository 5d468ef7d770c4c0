"""Values and derivatives of operations are TensorFlow's: the table of cases against what TensorFlow computed."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest
from packaging.requirements import Requirement
from tests.unit.tf.operations import table
from tests.unit.tf.operations.table import Case

import stratagem.tf as tf
from stratagem import keras

HELD: Final = {"int64": "int32", "float64": "float32", "complex128": "complex64", "uint64": "uint32"}
"""JAX's dtypes for those of TensorFlow that it does not hold."""

RELATIVE: Final = {"float32": 1e-5, "complex64": 1e-5, "float16": 2**-9, "bfloat16": 2**-6}
"""Elementary functions differ in the last bits between XLA and Eigen. Short floats differ by the roundings between:
XLA computes a chain of them in float32, TensorFlow rounds after each step (a derivative has about twice as many).
"""

ABSOLUTE: Final = {"float32": 1e-6, "complex64": 1e-6, "float16": 2**-10, "bfloat16": 2**-7}
"""In units of the greatest number of an array: what cancels is as far from zero as its terms are inexact."""


@functools.cache
def goldens(area: str) -> dict[str, Any]:
    lines = (table.FOLDER / "goldens" / f"{area}.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["case"]: line for line in map(json.loads, lines[1:])}


EACH_CHANGE: Final = ("ones",)
"""Areas that `make test` has: the functions of one tensor, among them most with kinks. The rest (`make
test-table`) takes seven minutes, as each small operation is compiled for each shape and dtype."""


def by_name() -> list[Any]:
    """Return (area, name) for each operation of each file."""
    pairs = dict.fromkeys((area, case.name) for area in table.areas() for case in table.cases(area))
    return [
        pytest.param(area, name, id=f"{area}-{name}", marks=[] if area in EACH_CHANGE else [pytest.mark.table])
        for area, name in pairs
    ]


def differences(area: str, case: Case, within: Callable[..., Any] | None = None) -> list[str]:
    """Return what differs from TensorFlow."""
    golden = goldens(area).get(case.text)
    if golden is None:
        return [f"{case.text}: not recorded"]
    found = []
    for dtype in case.dtypes:
        expected = golden.get(dtype)
        if expected is None:
            found.append(f"{case.text} [{dtype}]: not recorded")
        elif "unsupported" not in expected:
            differs = [f"{case.text} [{dtype}] {what}" for what in _differences(case, dtype, expected, within)]
            if is_otherwise(case):
                differs = [] if differs else [f"{case.text} [{dtype}]: as in TensorFlow, after all"]
            found += differs
    return found


def is_otherwise(case: Case) -> bool:
    """Tell whether this release of Keras or JAX has another result, as docs/keras.md says."""
    releases = case.options.get("otherwise")
    if not releases:
        return releases is not None
    requirement = Requirement(releases)
    version = {"jax": jax, "keras": keras}[requirement.name].__version__
    return requirement.specifier.contains(version, prereleases=True)


def _differences(case: Case, dtype: str, expected: Any, within: Any) -> list[str]:
    try:
        value, first, second = table.run(tf, case, dtype, lambda gradient: gradient, within)
    except Exception as error:
        if "raises" in expected:
            return []
        return [f"raised {type(error).__name__}: {str(error)[:300]}"]
    if "raises" in expected:
        return [f"gave {[table.written(v) for v in value]}; TensorFlow raises {expected['raises']}"]
    found = _compared(case, "value", value, expected["value"])
    found += _compared(case, "first", first, expected.get("first"))
    if "second" in expected:
        found += _compared(case, "second", second, expected["second"])
    return found


def _compared(case: Case, what: str, found: Any, expected: Any) -> list[str]:
    if found is None and expected is None:
        return []
    if what == "second":  # that nothing leads there and that zero does are one; of a first derivative they are not
        found = [None] * len(expected) if found is None else found
        found, expected = [_zeros_as_none(each) for each in found], [_zeros_as_none(each) for each in expected]
    if found is None or expected is None or len(found) != len(expected):
        return [f"{what}: {found}, not {expected}"]
    pairs = enumerate(zip(found, expected, strict=True))
    return [f"{what} {place}: {why}" for place, (a, b) in pairs if (why := _difference(case, what, a, b))]


def _zeros_as_none(value: Any) -> Any:
    if value is None:
        return None
    array = table.read(value) if isinstance(value, str) else np.asarray(value)
    return None if isinstance(array, np.ndarray) and array.dtype != object and not array.any() else value


def _difference(case: Case, what: str, found: Any, expected: str | None) -> str | None:
    if expected is None or (found is None and expected != "None"):
        return None if found is expected else f"{None if found is None else table.written(found)}, not {expected}"
    wanted = table.read(expected)
    if not isinstance(wanted, np.ndarray):
        return None if table.written(found) == expected else f"{table.written(found)}, not {expected}"
    shown = table.written(found)
    array = table.read(shown)
    if not isinstance(array, np.ndarray):
        return f"{shown}, not {expected}"
    if HELD.get(array.dtype.name, array.dtype.name) != HELD.get(wanted.dtype.name, wanted.dtype.name):
        return f"dtype: {shown}, not {expected}"
    if array.shape != wanted.shape:
        return f"shape: {shown}, not {expected}"
    return None if _near(case, what, array, wanted) else f"{shown}, not {expected}"


def _near(case: Case, what: str, array: np.ndarray, wanted: np.ndarray) -> bool:
    if array.dtype == object or array.dtype.kind in "iub":
        return array.tolist() == wanted.tolist()
    kind = HELD.get(wanted.dtype.name, wanted.dtype.name)
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    array, wanted = array.astype(wide), wanted.astype(wide)
    if "exact" in case.options:
        return bool(np.array_equal(array, wanted, equal_nan=True))
    relative, absolute = RELATIVE[kind], ABSOLUTE[kind]
    greatest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    if kind in ("float32", "complex64"):
        relative = float(case.options.get("rtol", relative))
        absolute = float(case.options.get("atol", relative / 10))
    else:
        roundings = {"value": 1, "first": 2, "second": 4}[what]
        relative, absolute, greatest = relative * roundings, absolute * roundings, max(greatest, 1.0)
    absolute *= greatest
    return bool(np.allclose(array, wanted, rtol=relative, atol=absolute, equal_nan=True))


@pytest.mark.parametrize(("area", "name"), by_name())
def test_values_and_derivatives_are_those_of_tensorflow(area: str, name: str) -> None:
    found = [line for case in table.cases(area) if case.name == name for line in differences(area, case)]
    assert found == []
