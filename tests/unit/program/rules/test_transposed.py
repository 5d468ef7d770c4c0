"""Transposed convolutions: gradients of their kernels have the numbers of XLA's, without a large window."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from tests.unit.program.rules.convolving import (
    NCHW,
    NWC,
    assert_same_numbers,
    convolutions,
    numbers,
    transposed,
    with_gradients,
)

CASES = {
    "same size": ((2, 5, 6, 4), (3, 3, 4, 5), {}),
    "window of the strides": ((2, 5, 6, 4), (2, 2, 4, 5), {}),
    "large strides": ((2, 5, 6, 4), (2, 3, 4, 5), {"strides": (3, 4)}),
    "unpadded": ((2, 5, 6, 4), (4, 4, 4, 5), {"padding": "VALID"}),
    "padded and cut": ((2, 5, 6, 4), (3, 3, 4, 5), {"padding": ((3, -1), (0, 2))}),
    "strides in one direction": ((2, 5, 6, 4), (3, 3, 4, 5), {"strides": (1, 2)}),
    "channels first": ((2, 4, 5, 6), (5, 4, 3, 3), {"dimension_numbers": NCHW}),
    "one direction": ((2, 9, 4), (4, 4, 5), {"dimension_numbers": NWC, "strides": (2,)}),
}


@pytest.mark.parametrize(("images", "kernel", "how"), CASES.values(), ids=CASES)
def test_result_and_gradients_are_the_same(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    function, x, w = functools.partial(transposed, **how), numbers(*images), numbers(*kernel)
    assert_same_numbers(function, x, w)
    spread = [each["lhs_dilation"] for each in convolutions(with_gradients(function), x, w)]
    assert sum(max(by) > 1 for by in spread) == 1  # the convolution itself, which XLA is fast at
