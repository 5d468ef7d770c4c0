"""Pointwise convolutions: results and gradients have the numbers of XLA's, and are products of matrices."""

from __future__ import annotations

import functools
from typing import Any

import jax
import pytest
from tests.unit.program.rules.convolving import (
    NCHW,
    NWC,
    assert_same_numbers,
    conv,
    convolutions,
    numbers,
    transposed,
    with_gradients,
)

CASES = {
    "same size": ((2, 5, 6, 4), (1, 1, 4, 3), {}),
    "strides": ((2, 5, 6, 4), (1, 1, 4, 3), {"window_strides": (2, 3)}),
    "strides in one direction": ((2, 5, 6, 4), (1, 1, 4, 3), {"window_strides": (1, 2), "padding": "VALID"}),
    "padded": ((2, 5, 6, 4), (1, 1, 4, 3), {"padding": ((1, 0), (1, 0)), "window_strides": (2, 2)}),
    "cut": ((2, 5, 6, 4), (1, 1, 4, 3), {"padding": ((-1, 0), (0, -2))}),
    "one direction": ((2, 9, 4), (1, 4, 5), {"dimension_numbers": NWC, "window_strides": (3,)}),
    "one row": ((1, 4, 4, 3), (1, 1, 3, 2), {}),
    "one place": ((3, 1, 1, 4), (1, 1, 4, 2), {}),
    "channels first": ((2, 4, 5, 6), (3, 4, 1, 1), {"dimension_numbers": NCHW}),
}

XLAS_OWN = {"padded": 1, "channels first": 1}
"""Convolutions that XLA is left of the three: gradients of a kernel beyond the images, and with rows between places."""


@pytest.mark.parametrize("case", CASES)
def test_result_and_gradients_are_the_same(case: str) -> None:
    images, kernel, how = CASES[case]
    function, x, w = functools.partial(conv, **how), numbers(*images), numbers(*kernel)
    assert_same_numbers(function, x, w)
    assert len(convolutions(with_gradients(function), x, w)) == XLAS_OWN.get(case, 0)


def test_a_transposed_one_spreads_what_it_has_multiplied() -> None:
    x, w = numbers(2, 3, 4, 5), numbers(1, 1, 5, 2)
    assert_same_numbers(transposed, x, w)
    assert not convolutions(transposed, x, w)


@pytest.mark.parametrize(
    ("images", "kernel", "how"),
    [
        ((2, 5, 6, 4), (3, 3, 4, 3), {}),
        ((2, 5, 6, 4), (1, 1, 2, 4), {"feature_group_count": 2}),
        ((2, 5, 6, 4), (1, 1, 4, 3), {"window_strides": (2, 2), "lhs_dilation": (3, 3), "padding": ((0, 0), (1, 1))}),
    ],
    ids=["larger window", "groups", "spread and strided"],
)
def test_other_convolutions_are_not_these(images: Any, kernel: Any, how: dict[str, Any]) -> None:
    x, w = numbers(*images), numbers(*kernel)
    assert_same_numbers(functools.partial(conv, **how), x, w)
    assert convolutions(functools.partial(conv, **how), x, w)


def test_short_floats_are_left_to_xla() -> None:
    x, w = numbers(2, 5, 6, 4, dtype="bfloat16"), numbers(1, 1, 4, 3, dtype="bfloat16")
    assert convolutions(conv, x, w)
    assert jax.eval_shape(conv, x, w).dtype == "bfloat16"
