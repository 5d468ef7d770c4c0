"""Depthwise convolutions: the numbers of XLA's, and its gradients."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from tests.unit.program.rules.convolving import (
    NCHW,
    NWC,
    assert_same_numbers,
    conv,
    convolutions,
    numbers,
    with_gradients,
)

CASES = {
    "one filter a channel": ((2, 6, 7, 5), (3, 3, 1, 5), {}),
    "two filters a channel": ((2, 6, 7, 5), (3, 3, 1, 10), {}),
    "strides": ((2, 7, 8, 5), (3, 3, 1, 5), {"window_strides": (2, 2)}),
    "strides in one direction, two filters": ((2, 7, 8, 3), (3, 2, 1, 6), {"window_strides": (1, 2)}),
    "dilated": ((2, 8, 8, 4), (3, 3, 1, 4), {"rhs_dilation": (2, 3)}),
    "unpadded": ((2, 6, 7, 5), (3, 5, 1, 5), {"padding": "VALID"}),
    "cut": ((2, 6, 7, 5), (3, 3, 1, 5), {"padding": ((-1, 2), (0, 1))}),
    "channels first": ((2, 5, 6, 7), (10, 1, 3, 3), {"dimension_numbers": NCHW}),
    "one direction": ((3, 9, 4), (3, 1, 4), {"dimension_numbers": NWC, "window_strides": (1,)}),
    "transposed": ((2, 4, 4, 3), (3, 3, 1, 3), {"lhs_dilation": (2, 2), "padding": ((2, 2), (1, 2))}),
}


def convolved(images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]) -> tuple[Any, Any, Any]:
    groups = images[1] if how.get("dimension_numbers") == NCHW else images[-1]
    return functools.partial(conv, feature_group_count=groups, **how), numbers(*images), numbers(*kernel)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("images", "kernel", "how"), CASES.values(), ids=CASES)
def test_result_and_gradients_are_the_same(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    assert_same_numbers(*convolved(images, kernel, how))


@pytest.mark.parametrize(("images", "kernel", "how"), CASES.values(), ids=CASES)
def test_no_convolution_in_groups_is_left(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    function, x, w = convolved(images, kernel, how)
    left = convolutions(with_gradients(function), x, w)
    assert [each for each in left if each["feature_group_count"] * each["batch_group_count"] > 1] == []


@pytest.mark.parametrize(
    ("images", "kernel", "dtype"),
    [((2, 6, 7, 5), (3, 3, 1, 5), "bfloat16"), ((2, 12, 12, 5), (9, 9, 1, 5), "float32")],
    ids=["short floats", "large window"],
)
def test_others_are_left_to_xla(images: tuple[int, ...], kernel: tuple[int, ...], dtype: str) -> None:
    x, w = numbers(*images, dtype=dtype), numbers(*kernel, dtype=dtype)
    (left,) = convolutions(functools.partial(conv, feature_group_count=5), x, w)
    assert left["feature_group_count"] == 5 or dtype == "float32"
