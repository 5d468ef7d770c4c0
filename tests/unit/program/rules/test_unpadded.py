"""Unpadded convolutions of some rows at a time: they have the numbers of XLA's, and others are left alone."""

from __future__ import annotations

import functools
from typing import Any

import jax
import pytest
from tests.unit.program.rules.convolving import NCHW, NWC, assert_same_numbers, conv, numbers

from stratagem.program.rules import unpadded
from stratagem.program.rules.cpu import suited_to_cpu

VALID = {"padding": "VALID"}
CASES = {
    "two of eight rows": ((8, 6, 5, 3), (3, 3, 3, 4), {}, 2, 4),
    "a divisor of the rows": ((9, 6, 5, 3), (3, 3, 3, 4), {}, 4, 3),
    "a prime number of rows": ((7, 6, 5, 3), (3, 3, 3, 4), {}, 3, 7),
    "less than a row": ((4, 6, 5, 3), (3, 3, 3, 4), {}, 0.5, 4),
    "strides": ((8, 9, 8, 3), (3, 2, 3, 4), {"window_strides": (2, 3)}, 2, 4),
    "dilation": ((8, 9, 8, 3), (3, 2, 3, 4), {"rhs_dilation": (2, 3)}, 2, 4),
    "channels first": ((8, 3, 6, 5), (4, 3, 3, 3), {"dimension_numbers": NCHW}, 2, 4),
    "one direction": ((8, 9, 3), (4, 3, 4), {"dimension_numbers": NWC, "window_strides": (1,)}, 2, 4),
}
"""Images, kernel, how they are convolved, rows that a part may have, and the number of parts."""


@pytest.fixture(autouse=True)
def any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpadded, "FIRST_SLOW_JAX", (0,))
    monkeypatch.setattr(unpadded, "_LEAST_CHANNELS", 3)


@pytest.mark.parametrize(("images", "kernel", "how", "rows", "parts"), CASES.values(), ids=CASES)
def test_result_and_gradients_are_the_same(
    images: tuple[int, ...],
    kernel: tuple[int, ...],
    how: dict[str, Any],
    rows: float,
    parts: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function, x, w = functools.partial(conv, **VALID, **how), numbers(*images), numbers(*kernel)
    of_row = (x.nbytes + jax.eval_shape(function, x, w).size * 4) // len(x)
    monkeypatch.setattr(unpadded, "_PART_BYTES", int(rows * of_row))
    monkeypatch.setattr(unpadded, "_MANY_BYTES", 2 * of_row)
    assert_same_numbers(function, x, w)
    program = jax.make_jaxpr(suited_to_cpu(function))(x, w)
    [loop] = [eqn for eqn in program.eqns if eqn.primitive.name == "scan"]
    assert loop.params["length"] == parts


@pytest.mark.parametrize(
    ("images", "kernel", "how", "constants"),
    [
        ((8, 6, 5, 3), (3, 3, 3, 4), {"padding": "SAME"}, {}),
        ((8, 6, 5, 3), (3, 3, 3, 4), {"lhs_dilation": (2, 1), "padding": ((0, 0), (0, 0))}, {}),
        ((8, 6, 5, 4), (3, 3, 2, 4), {"feature_group_count": 2, **VALID}, {}),
        ((8, 6, 5, 3), (3, 3, 3, 4), VALID, {"_LEAST_CHANNELS": 4}),
        ((8, 6, 5, 3), (3, 3, 3, 4), VALID, {"_MANY_BYTES": 100}),
        ((8, 6, 5, 3), (3, 3, 3, 4), VALID, {"_MANY_BYTES": 1 << 20}),
        ((8, 6, 5, 3), (3, 3, 3, 4), VALID, {"FIRST_SLOW_JAX": (99,)}),
    ],
    ids=["padded", "spread", "groups", "few channels", "large rows", "few bytes", "older JAX"],
)
def test_other_convolutions_are_left_to_xla(
    images: tuple[int, ...],
    kernel: tuple[int, ...],
    how: dict[str, Any],
    constants: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"_PART_BYTES": 1, "_MANY_BYTES": 2000, **constants}.items():
        monkeypatch.setattr(unpadded, name, value)
    function = functools.partial(conv, **how)
    assert "scan" not in str(jax.make_jaxpr(suited_to_cpu(function))(numbers(*images), numbers(*kernel)))
